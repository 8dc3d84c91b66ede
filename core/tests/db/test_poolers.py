"""PgBouncer before Postgres: session mode works, the other modes are named at start."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest

from latent_core.db.connection import Database
from latent_core.db.installation import taking_part
from latent_core.db.migrate import migrate
from latent_core.db.start import await_server, check_sessions
from latent_core.domain.errors import Invalid
from latent_core.domain.job import JobKind
from latent_core.queue.context import JobContext
from latent_core.queue.runner import Runner
from latent_core.queue.wakeup import Wakeup
from tests.support.queue import put, sql, until
from tests.support.servers.pgbouncer import MISSING, Mode, pgbouncer, program
from tests.support.servers.postgres_server import postgres_server, wheel_programs

LISTENERS = """
SELECT 1 FROM pg_stat_activity WHERE application_name = 'latent listener' AND query LIKE '%%pg_notify%%'
"""

pytestmark = pytest.mark.skipif(program() is None, reason=f"poolers: {MISSING}")


@pytest.fixture(scope="module")
def behind() -> Iterator[str]:
    """A Postgres of these tests' own, reached by TCP, as a pooler needs it."""
    with postgres_server(wheel_programs(18)) as dsn:
        yield dsn


@pytest.mark.parametrize("mode", ["transaction", "statement"])
@pytest.mark.parametrize("size", [1, 2, 50])
async def test_a_pooler_that_keeps_no_session_is_named_at_start(
    behind: str, mode: Mode, size: int
) -> None:
    with (
        pgbouncer(behind, mode, size=size) as dsn,
        pytest.raises(Invalid, match="pool_mode=transaction") as caught,
    ):
        await await_server(dsn)
    assert "LLC_POSTGRES_DSN" in caught.value.message
    assert "session mode" in caught.value.message


async def test_a_busy_transaction_pooler_is_named_too(behind: str) -> None:
    with pgbouncer(behind, "transaction", size=10) as dsn:
        busy = [asyncio.create_task(_work(dsn)) for _ in range(6)]
        try:
            for _ in range(10):
                with pytest.raises(Invalid, match="transaction pooler"):
                    await check_sessions(dsn)
        finally:
            for task in busy:
                task.cancel()
            await asyncio.gather(*busy, return_exceptions=True)


async def _work(dsn: str) -> None:
    """As other processes on the same pooler."""
    async with await psycopg.AsyncConnection.connect(
        dsn, autocommit=True, prepare_threshold=None
    ) as conn:
        while True:
            async with conn.transaction():
                await conn.execute("SELECT pg_sleep(random() * 0.003)")


async def test_plain_postgres_and_session_mode_are_never_taken_for_one(behind: str) -> None:
    with pgbouncer(behind, "session") as dsn:
        for reached in (behind, dsn):
            busy = asyncio.create_task(_work(reached))
            for _ in range(10):
                await check_sessions(reached)
            busy.cancel()
            with suppress(asyncio.CancelledError):
                await busy


async def _listens(db: Database) -> bool:
    """Whether the worker's listener has heard its first ping, or waits for it: then it has looked for work."""
    return bool(await sql(db, LISTENERS))


async def test_a_worker_runs_through_session_mode(behind: str) -> None:
    """Migration and its lock, LISTEN, session locks, prepared statements, and cancelled statements."""
    worked = asyncio.Event()

    async def work(context: JobContext) -> None:
        worked.set()

    with pgbouncer(behind, "session") as dsn:
        await await_server(dsn)
        await migrate(dsn)
        async with (
            await Database.open(dsn) as db,
            taking_part(db, alone=True),
            Wakeup(db) as wakeup,
        ):
            runner = Runner(
                db,
                {JobKind.INGEST: work},
                worker_id="w",
                concurrency=1,
                lease_seconds=30.0,
                poll_seconds=60.0,
            )
            task = asyncio.create_task(runner.run())
            await until(lambda: _listens(db))
            await put(db)
            wakeup.wake()  # polling alone would take a minute
            async with asyncio.timeout(20):
                await worked.wait()
            await until(lambda: runner.stats.settled == 1)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1), db.reading() as conn:
                    await conn.execute("SELECT pg_sleep(30)")
            await db.ping()
            runner.stop()
            await task
