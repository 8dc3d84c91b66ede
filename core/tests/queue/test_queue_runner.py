"""The worker's loop, its leases and its end. F-numbers name failures known from other queues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from latent_core.db.connection import Connection, Database
from latent_core.domain.errors import (
    IngestFailed,
    Issue,
    IssueCode,
    LimitReached,
    ServiceUnreachable,
    StoreFull,
    TimedOut,
    Unavailable,
)
from latent_core.domain.job import JobKind, JobState
from latent_core.queue import admin, clock
from latent_core.queue.claim import claim
from latent_core.queue.context import JobContext
from latent_core.queue.errors import JobCancelled, LeaseLost
from latent_core.queue.finish import finish
from latent_core.queue.lease import Heartbeat
from latent_core.queue.reaper import reap
from latent_core.queue.requeue import retry_or_fail
from latent_core.queue.runner import AttemptEnd, Handler, Runner
from tests.support.queue import expire, job, must_hold, must_take, put, sql, until, view


def is_in(db: Database, job_id: int, state: JobState) -> Callable[[], Awaitable[bool]]:
    async def check() -> bool:
        return (await view(db, job_id)).state is state

    return check


def runner_of(db: Database, handler: Handler, **options: Any) -> Runner:
    defaults: dict[str, Any] = {
        "worker_id": "w",
        "concurrency": 2,
        "lease_seconds": 30.0,
        "poll_seconds": 0.05,
    }
    return Runner(db, {JobKind.INGEST: handler}, **defaults | options)


@asynccontextmanager
async def running(
    db: Database, handler: Handler, *, stop_seconds: float = 5.0, **options: Any
) -> AsyncIterator[Runner]:
    runner = runner_of(db, handler, **options)
    task = asyncio.create_task(runner.run(stop_seconds=stop_seconds))
    try:
        yield runner
    finally:
        runner.stop()
        async with asyncio.timeout(20):
            await task


async def nothing(context: JobContext) -> None:
    await context.checkpoint()


# --- handlers ----------------------------------------------------------------------------------


async def test_jobs_are_run_with_bounded_concurrency(database: Database) -> None:
    ids = await put(database, *(job() for _ in range(20)))
    busy = max_busy = 0

    async def handler(context: JobContext) -> None:
        nonlocal busy, max_busy
        busy += 1
        max_busy = max(max_busy, busy)
        await until(lambda: max_busy == 3)
        busy -= 1

    async with running(database, handler, concurrency=3) as runner:
        await until(lambda: runner.stats.settled == 20)
    assert max_busy == 3
    assert {(await view(database, i)).state for i in ids} == {JobState.DONE}


async def test_of_a_kind_that_runs_one_at_a_time_the_next_job_waits_for_the_first(
    database: Database,
) -> None:
    ids = await put(database, *(job() for _ in range(3)))
    busy = max_busy = 0

    async def handler(context: JobContext) -> None:
        nonlocal busy, max_busy
        busy += 1
        max_busy = max(max_busy, busy)
        await context.checkpoint()
        busy -= 1

    async with running(database, handler, concurrency=3, one_at_a_time={JobKind.INGEST}) as runner:
        await until(lambda: runner.stats.settled == 3)
    assert max_busy == 1
    assert {(await view(database, i)).state for i in ids} == {JobState.DONE}


@pytest.mark.parametrize(
    ("error", "state", "code", "outcome"),
    [
        (IngestFailed("bad"), JobState.FAILED, IssueCode.INGEST_FAIL, "failed"),
        (Unavailable("away"), JobState.QUEUED, IssueCode.UNAVAILABLE, "retried"),
        (ServiceUnreachable("away"), JobState.QUEUED, IssueCode.UNAVAILABLE, "paused"),
        (LimitReached("no more"), JobState.QUEUED, IssueCode.RATE_LIMIT, "paused"),
        (KeyError("oops"), JobState.QUEUED, IssueCode.UNAVAILABLE, "retried"),
        (
            ExceptionGroup("", [IngestFailed("bad")]),
            JobState.FAILED,
            IssueCode.INGEST_FAIL,
            "failed",
        ),
    ],
)
async def test_what_a_handler_raises_decides_what_becomes_of_the_job(
    database: Database, error: Exception, state: JobState, code: IssueCode, outcome: str
) -> None:
    (job_id,) = await put(database)
    ends: list[AttemptEnd] = []

    async def handler(context: JobContext) -> None:
        raise error

    async with running(database, handler, on_end=ends.append):
        await until(lambda: bool(ends))
    shown = await view(database, job_id)
    assert shown.cause is not None
    assert (shown.state, shown.cause.code) == (state, code)
    assert "oops" not in shown.cause.message
    assert (ends[0].outcome, ends[0].code) == (outcome, code)


async def test_the_last_attempt_at_a_job_fails_and_one_before_it_is_tried_again(
    database: Database,
) -> None:
    await put(database, job(max_attempts=2))
    assert await retry_or_fail(database, await must_take(database), KeyError("x")) == "retried"
    await sql(database, "UPDATE jobs SET waits_for = NULL, run_at = now()")
    assert await retry_or_fail(database, await must_take(database), KeyError("x")) == "failed"


async def test_a_job_whose_cancellation_was_requested_is_cancelled_and_not_retried(
    database: Database,
) -> None:
    for error in (Unavailable("away"), ServiceUnreachable("away")):
        await put(database)
        held = await must_take(database)
        async with database.transaction() as conn:
            await admin.cancel(conn, held.id)
        assert await retry_or_fail(database, held, error) == "cancelled"


async def test_a_running_job_is_cancelled_at_a_checkpoint(database: Database) -> None:
    (job_id,) = await put(database)

    async def handler(context: JobContext) -> None:
        async with database.transaction() as conn:
            await admin.cancel(conn, job_id)
        while True:  # until the heartbeat has heard of it
            await context.checkpoint()

    async with running(database, handler, lease_seconds=0.4):
        await until(is_in(database, job_id, JobState.CANCELLED))


async def test_progress_learns_of_a_cancellation_before_the_heartbeat(database: Database) -> None:
    context = JobContext(database, await must_hold(database))
    async with database.transaction() as conn:
        await admin.cancel(conn, context.job.id)
    with pytest.raises(JobCancelled):
        await context.progress(1, 10)


async def test_progress_is_throttled_and_the_last_one_is_always_written(
    database: Database,
) -> None:
    context = JobContext(database, await must_hold(database))
    seen = []
    for done in (1, 2, 3, 4):
        await context.progress(done, 4, f"page {done}\0")
        seen.append((await view(database, context.job.id)).progress_done)
    shown = await view(database, context.job.id)
    assert seen[0] == 1
    assert seen[3] == 4
    assert len(set(seen)) < 4
    assert (shown.progress_note, shown.eta_seconds) == ("page 4\ufffd", 0)


async def test_the_last_progress_goes_with_the_fence_that_renews_the_lease(
    database: Database,
) -> None:
    held = await must_hold(database)
    await expire(database, held.job.id)
    await JobContext(database, held).fence(7)
    shown = await view(database, held.job.id)
    assert (shown.progress_done, shown.progress_total) == (7, 7)
    assert await reap(database) == []


async def test_a_fence_tells_nothing_of_a_claim_that_is_lost_or_cancelled(
    database: Database,
) -> None:
    cancelled, past = await must_hold(database), await must_hold(database)
    async with database.transaction() as conn:
        await admin.cancel(conn, cancelled.job.id)
    with pytest.raises(JobCancelled):
        await JobContext(database, cancelled).fence(7)
    await expire(database, past.job.id)
    assert await reap(database) == [past.job.id]
    with pytest.raises(LeaseLost):
        await JobContext(database, past).fence(7)
    assert past.lost
    assert (await view(database, past.job.id)).progress_done == 0


async def test_warnings_are_kept_up_to_a_bound_and_refused_without_the_lease(
    database: Database,
) -> None:
    context = JobContext(database, await must_hold(database))
    for n in range(103):
        await context.warn(Issue(code=IssueCode.INVALID, message=f"{n}"))
    shown = await view(database, context.job.id)
    assert [w.message for w in shown.warnings] == [f"{n}" for n in range(100)]
    await sql(database, "UPDATE jobs SET claim_id = 0")
    with pytest.raises(LeaseLost):
        await context.warn(Issue(code=IssueCode.INVALID, message="late"))
    with pytest.raises(LeaseLost):
        await context.checkpoint()


async def test_a_transaction_that_the_database_gave_up_is_tried_again(database: Database) -> None:
    context = JobContext(database, await must_hold(database))
    tries = 0

    async def write(conn: Connection) -> None:
        nonlocal tries
        tries += 1
        await finish(conn, context.job)
        if tries < 3:
            raise TimedOut("busy")

    await context.transact(write)
    assert tries == 3
    assert (await view(database, context.job.id)).state is JobState.DONE


# --- leases ------------------------------------------------------------------------------------


async def test_a_job_that_runs_for_many_leases_is_never_taken_f3(database: Database) -> None:
    (job_id,) = await put(database)

    async def handler(context: JobContext) -> None:
        started = clock.now()
        while clock.now() - started < 2.0:
            await context.checkpoint()
            assert await reap(database) == []

    async with running(database, handler, lease_seconds=0.8):
        await until(is_in(database, job_id, JobState.DONE))
    assert (await view(database, job_id)).attempts == 1


async def test_a_handler_that_blocks_the_event_loop_keeps_its_lease_f6(
    database: Database, dsn: str
) -> None:
    (job_id,) = await put(database)
    statement = "SELECT lease_expires FROM jobs"

    async def handler(context: JobContext) -> None:
        leases: set[Any] = set()
        with psycopg.connect(dsn, autocommit=True) as conn:
            while len(leases) < 6:  # more than one lease long
                leases.add(conn.execute(statement).fetchone())
        await context.checkpoint()

    async with running(database, handler, lease_seconds=0.8):
        await until(is_in(database, job_id, JobState.DONE))
    assert (await view(database, job_id)).attempts == 1


async def test_a_heartbeat_passes_over_a_job_that_publishes_and_renews_the_others_f6(
    database: Database,
) -> None:
    heartbeat = Heartbeat(database.dsn, lease_seconds=0.8)
    publishing = await must_hold(database, lease_seconds=0.8)
    other = await must_hold(database, lease_seconds=0.8)
    heartbeat.start()
    for held in (publishing, other):
        heartbeat.hold(held)
    async with database.transaction() as conn:
        await finish(conn, publishing.job)
        started = clock.now()
        while clock.now() - started < 1.6:
            assert await reap(database) == []
    heartbeat.close()
    await JobContext(database, other).fence()
    assert (await view(database, publishing.job.id)).state is JobState.DONE


async def test_a_claim_without_a_heartbeat_asks_before_it_goes_on(database: Database) -> None:
    context = JobContext(database, await must_hold(database, lease_seconds=0.0))
    await context.checkpoint()
    await sql(database, "UPDATE jobs SET state = 'queued'")
    with pytest.raises(LeaseLost):
        await context.checkpoint()


async def test_a_claim_of_the_past_is_neither_believed_nor_renewed_f1(database: Database) -> None:
    past = await must_hold(database)
    await expire(database, past.job.id)
    assert await reap(database) == [past.job.id]
    assert (await must_take(database)).id == past.job.id
    before = await sql(database, "SELECT lease_expires FROM jobs")
    with pytest.raises(LeaseLost):
        await JobContext(database, past).fence()
    assert await sql(database, "SELECT lease_expires FROM jobs") == before


async def test_who_was_frozen_looks_after_its_own_claims_before_it_reaps(
    database: Database,
) -> None:
    own = await must_hold(database, lease_seconds=0.0)
    await put(database)
    other = await must_take(database)
    await expire(database, other.id)
    runner = runner_of(database, nothing)
    runner._heartbeat.hold(own)
    await runner._reap()
    assert (await view(database, other.id)).state is JobState.RUNNING
    runner._heartbeat.drop(own)
    await runner._reap()
    assert (await view(database, other.id)).state is JobState.QUEUED


async def test_what_a_dead_worker_of_the_same_name_held_is_taken_back_at_the_start(
    database: Database,
) -> None:
    (job_id,) = await put(database)
    assert await claim(database, worker="w", lease_seconds=3600)

    async def handler(context: JobContext) -> None:
        assert context.job.attempts == 2

    async with running(database, handler, worker_id="w"):
        await until(is_in(database, job_id, JobState.DONE))


async def test_a_full_database_is_not_waited_out_with_the_job_in_hand(database: Database) -> None:
    held = await must_hold(database)
    tries: list[int] = []

    async def write(_: Connection) -> None:
        tries.append(1)
        raise StoreFull("Postgres has no space left on its disk: make room", service="postgres")

    with pytest.raises(StoreFull):
        await JobContext(database, held).transact(write)
    assert len(tries) == 1


# --- stopping ----------------------------------------------------------------------------------


async def test_stopping_lets_jobs_end_and_releases_the_rest_f8(database: Database) -> None:
    quick, slow, unclaimed = await put(database, *(job(doc_key=f"d{n}") for n in range(3)))
    started: set[int] = set()
    go_on = asyncio.Event()

    async def handler(context: JobContext) -> None:
        started.add(context.job.id)
        await go_on.wait()
        if context.job.id == slow:
            await asyncio.Event().wait()

    async with running(database, handler, stop_seconds=0.5) as runner:
        await until(lambda: started == {quick, slow})
        runner.stop()
        go_on.set()
    assert (await view(database, quick)).state is JobState.DONE
    for job_id in (slow, unclaimed):
        shown = await view(database, job_id)
        assert (shown.state, shown.attempts) == (JobState.QUEUED, 0)
    assert {(await must_take(database)).id for _ in range(2)} == {slow, unclaimed}


async def test_a_cancelled_worker_releases_what_it_holds(database: Database) -> None:
    (job_id,) = await put(database)
    started = asyncio.Event()

    async def handler(context: JobContext) -> None:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(runner_of(database, handler).run())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await view(database, job_id)).state is JobState.QUEUED
