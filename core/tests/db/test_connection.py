"""Transactions, their settings, and how Postgres' errors reach us."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from psycopg.errors import ReadOnlySqlTransaction, UndefinedTable, UniqueViolation
from psycopg.rows import tuple_row
from psycopg.types.json import Jsonb

from latent_core.db.connection import Database, DatabaseTimeouts
from latent_core.domain.errors import Invalid, OutOfSpace, TimedOut, Unavailable

KEEP = "INSERT INTO secrets VALUES (%(name)s, 'x')"
COUNT = "SELECT count(*) AS n FROM secrets"
KILL = "SELECT pg_terminate_backend(%(pid)s, 5000)"


async def count(db: Database) -> int:
    async with db.transaction(read_only=True) as conn:
        row = await (await conn.execute(COUNT)).fetchone()
        assert row is not None
        return int(row["n"])


async def keep(db: Database, name: str, fail: Exception | None = None) -> None:
    async with db.transaction() as conn:
        await conn.execute(KEEP, {"name": name})
        if fail is not None:
            raise fail


async def test_a_transaction_commits_when_its_block_ends_and_rolls_back_when_it_raises(
    database: Database,
) -> None:
    await keep(database, "kept")
    with pytest.raises(KeyError):
        await keep(database, "lost", fail=KeyError())
    assert await count(database) == 1


async def test_rows_are_dicts_unless_a_cursor_asks_for_tuples(database: Database) -> None:
    async with database.transaction() as conn:
        assert await (await conn.execute("SELECT 1 AS one")).fetchone() == {"one": 1}
        async with conn.cursor(row_factory=tuple_row, binary=True) as cursor:
            await cursor.execute("SELECT 1 AS one, '\\xff'::bytea AS two")
            assert await cursor.fetchone() == (1, b"\xff")


async def test_jsonb_and_times_come_back_as_they_were(database: Database) -> None:
    value = {"text": "Grüße 🎨", "list": [1, 2.5, None, True], "deep": {"a": {}}}
    at = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
    async with database.transaction() as conn:
        cursor = await conn.execute(
            "SELECT %(value)s::jsonb AS value, %(at)s::timestamptz AS at",
            {"value": Jsonb(value), "at": at},
        )
        row = await cursor.fetchone()
    assert row == {"value": value, "at": at}
    assert row["at"].utcoffset() == at.utcoffset()


async def test_repeatable_read_sees_one_snapshot_and_the_next_transaction_does_not(
    dsn: str,
) -> None:
    async with await Database.open(dsn, max_size=1) as one, await Database.open(dsn) as other:
        async with one.transaction(isolation="repeatable read") as conn:
            before = await (await conn.execute(COUNT)).fetchone()
            await keep(other, "meanwhile")
            assert await (await conn.execute(COUNT)).fetchone() == before
        assert await count(one) == 1
        await keep(one, "written")  # the same connection: nothing of it has stayed


async def test_a_read_only_transaction_cannot_write(database: Database) -> None:
    with pytest.raises(ReadOnlySqlTransaction):
        async with database.transaction(read_only=True) as conn:
            await conn.execute(KEEP, {"name": "no"})


async def test_what_a_repository_must_judge_itself_is_left_as_it_is(database: Database) -> None:
    await keep(database, "twice")
    with pytest.raises(UniqueViolation):
        await keep(database, "twice")
    with pytest.raises(UndefinedTable):
        async with database.transaction() as conn:
            await conn.execute("SELECT * FROM nothing")


async def test_a_statement_over_its_time_is_timed_out(dsn: str) -> None:
    async with await Database.open(dsn, limits=DatabaseTimeouts(statement=0.05)) as db:
        with pytest.raises(TimedOut, match="statement timeout"):
            async with db.transaction() as conn:
                await conn.execute("SELECT pg_sleep(30)")
        await db.ping()


async def test_a_lock_that_is_not_given_is_timed_out(dsn: str) -> None:
    limits = DatabaseTimeouts(lock=0.05)
    async with await Database.open(dsn, limits=limits) as db, db.transaction() as holder:
        await holder.execute("LOCK TABLE secrets")
        with pytest.raises(TimedOut, match="lock timeout"):
            await count(db)


async def test_a_full_disk_is_out_of_space(database: Database) -> None:
    with pytest.raises(OutOfSpace, match="disk of Postgres is full"):
        async with database.transaction() as conn:
            await conn.execute("COPY (SELECT generate_series(1, 100000)) TO '/dev/full'")


async def test_when_no_connection_becomes_free_it_is_unavailable(dsn: str) -> None:
    async with await Database.open(dsn, max_size=1, limits=DatabaseTimeouts(wait=0.1)) as db:
        async with db.transaction():
            with pytest.raises(Unavailable, match="became free"):
                await count(db)
        assert await count(db) == 0


async def test_a_connection_lost_in_a_transaction_is_unavailable_and_the_next_call_works(
    dsn: str,
) -> None:
    async def lose(db: Database, killer: Database) -> None:
        async with db.transaction() as conn:
            async with killer.transaction() as other:
                await other.execute(KILL, {"pid": conn.info.backend_pid})
            await conn.execute(COUNT)

    async with await Database.open(dsn, max_size=1) as db, await Database.open(dsn) as killer:
        with pytest.raises(Unavailable):
            await lose(db, killer)
        assert await count(db) == 0


async def test_a_connection_lost_in_the_pool_is_never_handed_out(dsn: str) -> None:
    async with await Database.open(dsn, max_size=1) as db, await Database.open(dsn) as killer:
        async with db.transaction() as conn:
            pid = conn.info.backend_pid
        async with killer.transaction() as other:
            await other.execute(KILL, {"pid": pid})
        assert await count(db) == 0


async def test_a_cancelled_query_ends_in_the_server_and_the_pool_is_whole(
    database: Database,
) -> None:
    async def sleep() -> None:
        async with database.transaction() as conn:
            await conn.execute("SELECT pg_sleep(60)")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await sleep()
    async with database.transaction() as conn:
        cursor = await conn.execute(
            "SELECT count(*) AS n FROM pg_stat_activity WHERE query LIKE '%%pg_sleep(60)' "
            "AND state = 'active' AND pid <> pg_backend_pid() AND datname = current_database()"
        )
        assert await cursor.fetchone() == {"n": 0}


async def test_a_dedicated_connection_has_the_same_settings_and_hears_notifications(
    database: Database,
) -> None:
    async with database.dedicated(name="listener") as listener:
        await listener.execute("LISTEN tests")
        async with database.transaction() as conn:
            await conn.execute("NOTIFY tests, 'hello'")
        async for notice in listener.notifies(timeout=10, stop_after=1):
            assert notice.payload == "hello"
        row = await (await listener.execute("SHOW application_name")).fetchone()
        assert row == {"application_name": "latent listener"}


async def test_an_unreadable_dsn_is_invalid_and_an_absent_server_unavailable(
    tmp_path: Path,
) -> None:
    with pytest.raises(Invalid, match="DSN"):
        await Database.open("not a dsn at all")
    with pytest.raises(Unavailable, match="not available"):
        await Database.open(f"host={tmp_path} dbname=x user=x")


async def test_a_closed_database_says_that_it_is_closed(dsn: str) -> None:
    db = await Database.open(dsn)
    await db.close()
    with pytest.raises(Unavailable, match="shutting down") as caught:
        await count(db)
    assert isinstance(caught.value.__cause__, psycopg.Error)


async def test_a_value_that_says_that_a_disk_is_full_fills_none(database: Database) -> None:
    with pytest.raises(Invalid, match="cannot store a value"):
        async with database.transaction() as conn:
            await conn.execute("SELECT %(value)s::integer", {"value": "No space left on device"})


async def test_a_call_that_ends_well_shows_that_the_server_answers(database: Database) -> None:
    now = asyncio.get_running_loop().time
    begun = now()
    assert not database.answered_since(begun)
    with pytest.raises(UndefinedTable):
        async with database.reading() as conn:
            await conn.execute("SELECT * FROM absent")
    assert not database.answered_since(begun)
    assert await count(database) == 0
    assert database.answered_since(begun)
    assert not database.answered_since(now())


async def test_the_connection_that_was_used_last_is_used_next(dsn: str) -> None:
    async with await Database.open(dsn, min_size=3, max_size=3) as database:
        async with database.reading() as first, database.reading() as second:
            used = [first.info.backend_pid, second.info.backend_pid]
        last = used[0]  # given back after the other
        for _ in range(5):
            async with database.reading() as conn:
                assert conn.info.backend_pid == last


async def test_of_idle_connections_the_one_that_was_not_used_for_longest_is_closed(
    dsn: str,
) -> None:
    async with await Database.open(dsn, min_size=1, max_size=3) as database:
        async with AsyncExitStack() as stack:
            conns = [await stack.enter_async_context(database.reading()) for _ in range(3)]
            pids = [conn.info.backend_pid for conn in conns]  # the first is given back last
        for kept in (3, 2, 1):  # the first call begins the time in which they are idle
            await database._pool._shrink_pool()
            assert [conn.info.backend_pid for conn in database._pool._pool] == pids[:kept]
        await database._pool._shrink_pool()
        assert len(database._pool._pool) == 1


async def test_callers_that_are_cancelled_at_any_moment_give_their_connections_back(
    dsn: str,
) -> None:
    async def read(database: Database) -> None:
        async with database.transaction(isolation="repeatable read", read_only=True) as conn:
            await conn.execute("SELECT pg_sleep(0.002)")

    async with await Database.open(dsn, min_size=4, max_size=4) as database:
        for steps in range(150):
            tasks = [asyncio.create_task(read(database)) for _ in range(6)]
            for _ in range(steps):
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        async with AsyncExitStack() as stack:
            for _ in range(4):
                conn = await stack.enter_async_context(database.transaction())
                row = await (await conn.execute("SHOW transaction_isolation")).fetchone()
                assert row == {"transaction_isolation": "read committed"}
                row = await (await conn.execute("SHOW transaction_read_only")).fetchone()
                assert row == {"transaction_read_only": "off"}
