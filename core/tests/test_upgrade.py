"""What the revision before this one and the first one stored is whole and usable after the migration to this one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from latent_core.bm25.bm25 import PostgresKeywordIndex
from latent_core.db import containers
from latent_core.db.connection import Database
from latent_core.db.documents import documents
from latent_core.db.migrate import current_revision, head_revision, migrate
from latent_core.db.transfer import archives
from latent_core.db.transfer.archives import ArchiveKind
from latent_core.domain.ids import document_id

DATA: Final = Path(__file__).parents[2] / "tests" / "data"
DUMPS: Final = ("previous_revision.sql", "initial_revision.sql")
"""Of the revision before the newest one (``make revision-dump``), and of the oldest one that can be migrated."""
LAMP: Final = document_id("museum", "file:///museum/lamp.md")
MOVED: Final[dict[str, set[str]]] = {"tokens": {"scopes"}}
"""Columns that a revision since these dumps takes away or changes, by table; what replaces them has its own test."""
TABLES: Final = """
SELECT table_name FROM information_schema.tables
WHERE table_schema = 'public' AND table_name <> 'alembic_version' ORDER BY table_name
"""

COLUMNS: Final = """
SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns
WHERE table_schema = 'public' ORDER BY table_name, column_name
"""


@pytest.fixture(params=DUMPS)
def dump(request: pytest.FixtureRequest) -> Path:
    return DATA / str(request.param)


def load(dsn: str, dump: Path) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute(dump.read_bytes())


def stored(dsn: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of every table that has any."""
    with psycopg.connect(dsn) as conn:
        tables = [name for (name,) in conn.execute(TABLES).fetchall()]
        found = {table: rows(conn, table) for table in tables}
    return {table: some for table, some in found.items() if some}


def columns_of(dsn: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as conn:
        return conn.execute(COLUMNS).fetchall()


def rows(conn: psycopg.Connection, table: str) -> list[dict[str, Any]]:
    statement = SQL("SELECT to_jsonb(t) FROM {} t").format(Identifier(table))
    return [row for (row,) in conn.execute(statement).fetchall()]


def comparable(found: list[dict[str, Any]], columns: set[str]) -> list[str]:
    return sorted(json.dumps({k: row.get(k) for k in columns}, sort_keys=True) for row in found)


async def test_rows_of_the_previous_revision_are_unchanged_after_the_migration(
    empty_dsn: str, dump: Path
) -> None:
    await asyncio.to_thread(load, empty_dsn, dump)
    before = await asyncio.to_thread(stored, empty_dsn)
    assert {"containers", "documents", "chunks", "jobs", "tokens", "archives"} <= before.keys()

    await migrate(empty_dsn)

    assert await current_revision(empty_dsn) == head_revision()
    after = await asyncio.to_thread(stored, empty_dsn)
    for table, found in before.items():
        columns = set(found[0]) - MOVED.get(table, set())
        assert comparable(after[table], columns) == comparable(found, columns), table


async def test_a_migrated_database_has_the_columns_of_a_new_one(
    empty_dsn: str, dsn: str, dump: Path
) -> None:
    await asyncio.to_thread(load, empty_dsn, dump)
    await migrate(empty_dsn)
    assert await asyncio.to_thread(columns_of, empty_dsn) == await asyncio.to_thread(
        columns_of, dsn
    )


async def test_a_migrated_container_is_listed_searched_and_restorable(
    empty_dsn: str, dump: Path
) -> None:
    await asyncio.to_thread(load, empty_dsn, dump)
    await migrate(empty_dsn)
    async with await Database.open(empty_dsn, name="test") as database:
        async with database.transaction() as conn:
            museum = await containers.get(conn, "museum")
            lamp = await documents.view(conn, LAMP)
            kept = await archives.listed(conn, ArchiveKind.BACKUP, ["museum"], 10)
        hits = await PostgresKeywordIndex(database).search(
            "museum", ["lamp"], 10, timeout_seconds=10
        )
    assert museum is not None
    assert (museum.manifest.name, museum.space.lineage) == ("Museum", "v2")
    assert lamp is not None
    assert (lamp.title, lamp.meta["room"]) == ("Lamp", "Nørrebro")
    assert [one.filename for one in kept] == ["museum-1.latent.tar.zst"]
    assert hits.chunk_nos.tolist() == [0, 2]


@pytest.mark.parametrize("dump", [DATA / "initial_revision.sql"])
async def test_tokens_of_before_the_renamed_scopes_keep_their_rights_and_gain_none(
    empty_dsn: str, dump: Path
) -> None:
    def add() -> None:
        with psycopg.connect(empty_dsn) as conn:
            conn.execute(
                "INSERT INTO tokens (sha256, principal, name, scopes, containers, created_by)"
                " VALUES (sha256('1'), 'agent:a', 'a', '{read,ingest,admin}', '{museum}', 'local:you'),"
                " (sha256('2'), 'agent:b', 'b', '{ingest}', NULL, 'local:you')"
            )

    await asyncio.to_thread(load, empty_dsn, dump)
    await asyncio.to_thread(add)
    await migrate(empty_dsn)
    after = (await asyncio.to_thread(stored, empty_dsn))["tokens"]
    assert {row["principal"]: set(row["scopes"]) for row in after} == {
        "guide": {"read"},
        "agent:a": {"read", "write", "delete", "admin", "create"},
        "agent:b": {"write", "delete"},
    }
    assert all(row["needs_role"] for row in after)
