"""Reading without BEGIN and COMMIT: each statement by itself, and nothing of it stays."""

from __future__ import annotations

import pytest
from psycopg.errors import UndefinedTable
from psycopg.pq import TransactionStatus

from latent_core.db.connection import Database
from latent_core.domain.errors import Unavailable

KEEP = "INSERT INTO secrets VALUES (%(name)s, 'x')"
COUNT = "SELECT count(*) AS n FROM secrets"
KILL = "SELECT pg_terminate_backend(%(pid)s, 5000)"


async def test_each_statement_sees_what_was_committed_before_it(dsn: str) -> None:
    async with (
        await Database.open(dsn, max_size=1) as one,
        await Database.open(dsn) as other,
        one.reading() as conn,
    ):
        assert await (await conn.execute(COUNT)).fetchone() == {"n": 0}
        async with other.transaction() as writing:
            await writing.execute(KEEP, {"name": "meanwhile"})
        assert await (await conn.execute(COUNT)).fetchone() == {"n": 1}
        assert conn.info.transaction_status == TransactionStatus.IDLE


async def test_a_statement_that_fails_leaves_the_connection_ready_for_the_next(dsn: str) -> None:
    async with await Database.open(dsn, max_size=1) as db:
        with pytest.raises(UndefinedTable):
            async with db.reading() as conn:
                await conn.execute("SELECT * FROM nothing")
        async with db.transaction() as conn:
            await conn.execute(KEEP, {"name": "kept"})
        async with db.reading() as conn:
            assert await (await conn.execute(COUNT)).fetchone() == {"n": 1}


async def test_a_connection_lost_while_reading_is_unavailable(dsn: str) -> None:
    async def lose(db: Database, killer: Database) -> None:
        async with db.reading() as conn:
            async with killer.reading() as other:
                await other.execute(KILL, {"pid": conn.info.backend_pid})
            await conn.execute(COUNT)

    async with await Database.open(dsn, max_size=1) as db, await Database.open(dsn) as killer:
        with pytest.raises(Unavailable):
            await lose(db, killer)
        async with db.reading() as conn:
            assert await (await conn.execute(COUNT)).fetchone() == {"n": 0}
