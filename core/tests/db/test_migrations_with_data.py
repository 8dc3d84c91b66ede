"""An installation that has been used for long: every revision since its first leaves what it holds."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import psycopg
import pytest
from alembic import command
from alembic.config import Config
from psycopg.sql import SQL, Identifier
from sqlalchemy import NullPool, create_engine

from latent_core.domain.ids import chunk_id, content_hash, document_id
from latent_core.registry import containers
from latent_core.registry.connection import Database
from latent_core.registry.migrate import head_revision, migrate, migrations_folder

LAMP = document_id("museum", "file:///museum/lamp.md")
TEXTS = ("The lamp burns colza oil.", "Café, smørrebrød, 日本語.", "The lamp burns colza oil.")
DROPPED = {"chunks": {"duplicate_of"}}
"""Columns that a revision took away, by table."""
FILLED = (
    *("containers", "spaces", "ord_counters", "container_languages", "documents", "chunks"),
    *("pages", "blobs", "blob_refs", "uploads", "postings", "loose_postings", "keyword_stats"),
    *("dead_ords", "embedding_cache", "jobs", "job_events"),
)

MUSEUM = """
BEGIN;
INSERT INTO containers (id, manifest, etag) VALUES ('museum', '{"id": "museum", "name": "Museum"}', 'e1');
INSERT INTO spaces (container_id, embedder, version, dims, state)
VALUES ('museum', 'local', 'v1', 384, 'retired'), ('museum', 'local', 'v2', 384, 'live');
UPDATE containers SET live_space = (SELECT id FROM spaces WHERE state = 'live');
INSERT INTO ord_counters VALUES ('museum', 3);
INSERT INTO container_languages VALUES ('museum', 'english');
INSERT INTO postings VALUES ('museum', 'lamp', 1, '\\x0000000002000000', '\\x0101', '\\x05000500');
INSERT INTO loose_postings VALUES ('museum', 'café', 2, '\\x01000000', '\\x01', '\\x0300');
INSERT INTO keyword_stats (container_id, live_chunks, live_length) VALUES ('museum', 3, 13);
INSERT INTO dead_ords VALUES ('museum', 3, '\\x02000000');
INSERT INTO embedding_cache (content_hash, space, vector) VALUES (repeat('a', 64), 'local:v2', '\\x00ff');
INSERT INTO blobs (sha256, bytes, state) VALUES (repeat('b', 64), 54, 'present');
INSERT INTO uploads (container_id, sha256, filename, mime, bytes, principal)
VALUES ('museum', repeat('b', 64), 'lamp.md', 'text/markdown', 54, 'local:you');
COMMIT;
"""
DOCUMENT = """
INSERT INTO documents (id, container_id, uri, mime, source_type, title, sha256, bytes, meta, live_generation,
                       next_generation, live_chunks, fingerprint, language, source_mtime_ns)
VALUES (%(id)s, 'museum', 'file:///museum/lamp.md', 'text/markdown', 'markdown', 'Lamp', repeat('b', 64), 54,
        '{"room": "Nørrebro", "year": 1887}', 1, 2, 3, 'f', 'english', 1700000000123456789)
"""
CHUNK = """
INSERT INTO chunks (doc_id, generation, ordinal, id, container_id, ord, source_type, block_type, text, embed_text,
                    heading_path, offset_start, offset_end, content_hash, token_count, windows, tsv, length,
                    provenance)
VALUES (%(doc)s, 1, %(at)s, %(id)s, 'museum', %(at)s, 'markdown', 'paragraph', %(text)s, %(text)s, '{Lamp}', %(at)s,
        %(at)s + 25, %(hash)s, 7, 1, 'lamp:1', 5, '{"handler": "markdown parser"}')
"""
BELONGINGS = """
INSERT INTO pages (doc_id, generation, page, image_sha256, text) VALUES (%(id)s, 1, 1, repeat('b', 64), 'Lamp');
INSERT INTO blob_refs VALUES (%(id)s, 1, 'original', 0, repeat('b', 64), 'text/markdown', 'lamp.md')
"""
JOBS = """
INSERT INTO jobs (kind, container_id, doc_id, payload, state, principal, finished_at)
VALUES ('ingest', 'museum', %(id)s, '{"filename": "lamp.md"}', 'done', 'local:you', now()),
       ('ingest', 'museum', %(id)s, '{"filename": "lamp.md"}', 'queued', 'local:you', NULL);
INSERT INTO job_events (job_id, event) SELECT id, 'queued' FROM jobs
"""


def upgraded(dsn: str, revision: str) -> None:
    """As an installation of an older release has it."""
    engine = create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(dsn), poolclass=NullPool
    )
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    with engine.connect() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


def fill(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute(MUSEUM.encode())
        conn.execute(DOCUMENT, {"id": LAMP})
        for at, text in enumerate(TEXTS):
            hashed = content_hash(text)
            identity = chunk_id(LAMP, hashed, TEXTS[:at].count(text))
            conn.execute(
                CHUNK, {"doc": LAMP, "at": at, "id": identity, "text": text, "hash": hashed}
            )
        for statements in (BELONGINGS, JOBS):
            for statement in statements.split(";"):
                conn.execute(statement.encode(), {"id": LAMP} if "%(id)s" in statement else None)


def held(dsn: str) -> dict[str, list[dict[str, Any]]]:
    """Every row of the tables that were filled, in the order of their contents."""
    with psycopg.connect(dsn) as conn:
        return {table: rows(conn, table) for table in FILLED}


def rows(conn: psycopg.Connection, table: str) -> list[dict[str, Any]]:
    statement = SQL("SELECT to_jsonb(t) FROM {} t").format(Identifier(table))
    return [row for (row,) in conn.execute(statement).fetchall()]


def kept(table: str, found: list[dict[str, Any]], columns: set[str]) -> list[str]:
    wanted = columns - DROPPED.get(table, set())
    return sorted(json.dumps({k: row.get(k) for k in wanted}, sort_keys=True) for row in found)


@pytest.mark.parametrize("revision", ["0001", "0007"])
async def test_what_an_older_release_has_stored_is_whole_at_the_head(
    empty_dsn: str, revision: str
) -> None:
    await asyncio.to_thread(upgraded, empty_dsn, "0001")
    await asyncio.to_thread(fill, empty_dsn)
    await asyncio.to_thread(upgraded, empty_dsn, revision)
    before = await asyncio.to_thread(held, empty_dsn)
    assert all(before.values()), "every table of the first revision holds something"

    assert (await migrate(empty_dsn))[-1] == head_revision()

    after = await asyncio.to_thread(held, empty_dsn)
    for table, found in before.items():
        columns = set(found[0])
        assert kept(table, after[table], columns) == kept(table, found, columns), table


async def test_chunks_of_an_older_release_are_found_and_judged_by_this_one(empty_dsn: str) -> None:
    await asyncio.to_thread(upgraded, empty_dsn, "0001")
    await asyncio.to_thread(fill, empty_dsn)
    await migrate(empty_dsn)
    async with (
        await Database.open(empty_dsn, name="test") as database,
        database.transaction() as conn,
    ):
        museum = await containers.get(conn, "museum")
        signatures = await conn.execute("SELECT ord, bits::text FROM signatures ORDER BY ord")
        patterns = await signatures.fetchall()
        unjudged = await conn.execute("SELECT first_ord, last_ord FROM unjudged_ords")
        ranges = await unjudged.fetchall()
    assert museum is not None
    assert (museum.manifest.name, museum.space.lineage) == ("Museum", "v2")
    # A pattern of ones lets an exact search read the chunk itself.
    assert [row["ord"] for row in patterns] == [0, 1, 2]
    assert all(set(row["bits"]) == {"1"} for row in patterns)
    assert [(row["first_ord"], row["last_ord"]) for row in ranges] == [(0, 2)]
