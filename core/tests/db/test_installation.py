"""The identity of an installation in its database, and what a copy of the database may do."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import SQL, Identifier

from latent_core.db.connection import Database
from latent_core.db.installation import check_holder, ensure_installation, has_content, take_over
from latent_core.domain.errors import Misconfigured

COPY = SQL("CREATE DATABASE {copy} TEMPLATE {original}")
DROP = SQL("DROP DATABASE IF EXISTS {copy} WITH (FORCE)")


@pytest.fixture
def copied_dsn(dsn: str) -> Iterator[str]:
    """A copy of the database after its installation got an id."""

    async def first_start() -> None:
        async with await Database.open(dsn, name="original") as db, db.transaction() as conn:
            await ensure_installation(conn)

    asyncio.run(first_start())
    name = f"copy_{uuid.uuid4().hex}"
    original = conninfo_to_dict(dsn)["dbname"]
    names = {"copy": Identifier(name), "original": Identifier(str(original))}
    with psycopg.connect(make_conninfo(dsn, dbname="postgres"), autocommit=True) as conn:
        conn.execute(COPY.format(**names))
        yield make_conninfo(dsn, dbname=name)
        conn.execute(DROP.format(copy=Identifier(name)))


async def test_all_processes_of_an_installation_get_the_same_identity(database: Database) -> None:
    async with database.transaction() as conn:
        first = await ensure_installation(conn)
    async with database.transaction() as conn:
        assert await ensure_installation(conn) == first
        await check_holder(conn, first)
    assert len(first.id) == 12


def test_a_copy_of_the_database_is_refused_until_it_takes_over(dsn: str, copied_dsn: str) -> None:
    async def scenario() -> None:
        async with await Database.open(copied_dsn, name="copy") as db:
            async with db.transaction() as conn:
                copied = await ensure_installation(conn)
                with pytest.raises(Misconfigured, match=f"copy of.*{copied.id}.*latent adopt"):
                    await check_holder(conn, copied)
            async with db.transaction() as conn:
                adopted = await take_over(conn)
            async with db.transaction() as conn:
                assert await ensure_installation(conn) == adopted
                await check_holder(conn, adopted)
        async with await Database.open(dsn, name="original") as db, db.transaction() as conn:
            original = await ensure_installation(conn)
            await check_holder(conn, original)
        assert original.id == adopted.id
        assert original.holder == copied.holder != adopted.holder

    asyncio.run(scenario())


async def test_a_new_database_lists_no_content_and_one_with_a_blob_does(database: Database) -> None:
    async with database.transaction() as conn:
        assert not await has_content(conn)
        await conn.execute(
            "INSERT INTO blobs (sha256, bytes, state) VALUES (repeat('b', 64), 1, 'present')"
        )
        assert await has_content(conn)
