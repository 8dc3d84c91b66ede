"""A database that goes away, and listeners nobody reaches. F-numbers name failures known from other queues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from psycopg.conninfo import conninfo_to_dict

from latent_core.db.connection import Connection, Database, DatabaseTimeouts
from latent_core.domain.job import JobKind, JobState
from latent_core.queue.context import JobContext
from latent_core.queue.enqueue import enqueue
from latent_core.queue.errors import LeaseLost
from latent_core.queue.finish import finish
from latent_core.queue.runner import Handler, Runner
from latent_core.queue.wakeup import Listener, Wakeup
from tests.support.queue import job, must_hold, put, sql, until, view
from tests.support.servers.proxy import DatabaseProxy


@pytest.fixture
async def gate(dsn: str) -> AsyncIterator[DatabaseProxy]:
    if not str(conninfo_to_dict(dsn).get("host")).startswith("/"):
        pytest.skip("the test server is not on a Unix socket")
    async with DatabaseProxy(dsn) as opened:
        yield opened


@asynccontextmanager
async def through(gate: DatabaseProxy) -> AsyncIterator[Database]:
    limits = DatabaseTimeouts(wait=0.3, statement=5, lock=5)
    async with await Database.open(gate.dsn, limits=limits, max_size=4) as db:
        yield db


@asynccontextmanager
async def running(
    db: Database, handler: Handler, *, lease_seconds: float = 30.0
) -> AsyncIterator[Runner]:
    runner = Runner(
        db,
        {JobKind.INGEST: handler},
        worker_id="w",
        concurrency=2,
        lease_seconds=lease_seconds,
        poll_seconds=0.05,
    )
    task = asyncio.create_task(runner.run())
    try:
        yield runner
    finally:
        runner.stop()
        async with asyncio.timeout(20):
            await task


async def is_done(db: Database, job_id: int) -> bool:
    return (await view(db, job_id)).state is JobState.DONE


async def nothing(context: JobContext) -> None:
    await context.checkpoint()


# --- a database that goes away -----------------------------------------------------------------


async def test_a_finish_waits_for_a_database_that_comes_back_within_the_lease_f7(
    database: Database, gate: DatabaseProxy
) -> None:
    (job_id,) = await put(database)
    finished = 0

    async def handler(context: JobContext) -> None:
        async def publish(conn: Connection) -> None:
            await finish(conn, context.job)
            await enqueue(conn, job("effect", kind=JobKind.PURGE))

        gate.shut()
        asyncio.get_running_loop().call_later(0.5, gate.open)
        await context.checkpoint()  # the heartbeat is fresh: no question is asked
        await context.progress(1, 1)  # worth no failure
        await context.transact(publish)
        nonlocal finished
        finished += 1

    async with through(gate) as db, running(db, handler):
        await until(lambda: is_done(database, job_id))
    assert finished == 1
    assert (await view(database, job_id)).attempts == 1
    assert len(await sql(database, "SELECT 1 FROM jobs WHERE kind = 'purge'")) == 1


async def test_a_database_outage_longer_than_the_lease_costs_the_claim_not_the_job_f7(
    database: Database, gate: DatabaseProxy
) -> None:
    (job_id,) = await put(database)
    lost = asyncio.Event()

    async def handler(context: JobContext) -> None:
        if context.job.attempts == 1:
            gate.shut()
            try:
                await context.transact(lambda conn: finish(conn, context.job))
            except LeaseLost:
                gate.open()
                lost.set()
                raise

    async with through(gate) as db, running(db, handler, lease_seconds=1.0):
        await lost.wait()
        await until(lambda: is_done(database, job_id))
    assert (await view(database, job_id)).attempts > 1


async def test_without_a_database_a_checkpoint_past_the_lease_says_the_lease_is_lost(
    gate: DatabaseProxy,
) -> None:
    async with through(gate) as db:
        context = JobContext(db, await must_hold(db, lease_seconds=0.0))
        gate.shut()
        with pytest.raises(LeaseLost):
            await context.checkpoint()


async def test_a_worker_outlives_its_database_f7(database: Database, gate: DatabaseProxy) -> None:
    async with through(gate) as db, running(db, nothing) as runner:
        gate.shut()
        await put(database)
        gate.open()
        await until(lambda: runner.stats.settled == 1)


# --- waking ------------------------------------------------------------------------------------


@asynccontextmanager
async def listening(db: Database) -> AsyncIterator[asyncio.Event]:
    """Set whenever the listener calls."""
    called = asyncio.Event()
    task = asyncio.create_task(
        Listener(db, called.set, ping_seconds=0.1, deaf_seconds=0.3).run(), name="listener"
    )
    try:
        yield called
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def hears(called: asyncio.Event, wakeup: Wakeup | None = None) -> None:
    called.clear()
    if wakeup is not None:
        wakeup.wake()
    await until(called.is_set)


async def test_waking_is_heard_and_many_calls_are_few_notifications_f15_f16(
    database: Database,
) -> None:
    async with database.dedicated(name="ear") as ear, Wakeup(database) as wakeup:
        await ear.execute("LISTEN latent_jobs")
        for _ in range(1000):
            wakeup.wake()
            await asyncio.sleep(0)
        heard = [note async for note in ear.notifies(timeout=20, stop_after=1)]
        heard += [note async for note in ear.notifies(timeout=0.2)]
    assert 1 <= len(heard) <= 20


async def test_a_listener_that_was_cut_off_listens_again_f9(database: Database) -> None:
    async with listening(database) as called, Wakeup(database) as wakeup:
        await hears(called)  # its own start
        await hears(called, wakeup)
        await sql(
            database,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name IN ('latent listener', 'latent wakeup')"
            " AND datname = current_database()",
        )
        await hears(called)  # it starts again
        await hears(called, wakeup)


async def test_a_listener_notices_that_its_connection_went_deaf_f9(gate: DatabaseProxy) -> None:
    async with through(gate) as db, listening(db) as called:
        await hears(called)
        gate.silence()
        called.clear()
        await until(lambda: gate.refused > 0)  # it comes back although nobody hung up
        gate.speak()
        await until(called.is_set)


async def test_jobs_are_found_by_polling_when_nobody_wakes_f9(database: Database) -> None:
    async with running(database, nothing) as runner:
        for n in range(3):
            await put(database)
            await until(lambda n=n: runner.stats.settled == n + 1)  # type: ignore[misc]
