"""Which ends of an attempt count, and how long a job waits for a service."""

from __future__ import annotations

from typing import Final

import pytest

from latent_core.db.connection import Database
from latent_core.domain.errors import (
    LatentError,
    LimitReached,
    MarkerMismatch,
    ModelMissing,
    ServiceUnreachable,
    StoreFull,
    UpstreamError,
    UpstreamOverload,
    UpstreamTimeout,
)
from latent_core.domain.job import JobState
from latent_core.queue.requeue import MAX_PAUSED_SECONDS, is_final, retry_or_fail
from tests.support.queue import (
    finished,
    history,
    job,
    let_delays_pass,
    must_take,
    put,
    sql,
    view,
)

TIME_PASSES: Final = """
UPDATE jobs SET run_at = run_at - make_interval(secs => %(seconds)s),
                paused_since = paused_since - make_interval(secs => %(seconds)s)
"""
IN_LINE: Final = "UPDATE jobs SET run_at = now() - interval '30 hours', waits_for = NULL"
OUTAGE_SECONDS: Final = 30 * 60
PAUSE_SECONDS: Final = 120
LATE = UpstreamTimeout("Qdrant did not answer within 10 s", counts_as_attempt=False)
LATE_ALONE = UpstreamTimeout("Qdrant did not answer within 10 s", counts_as_attempt=True)
UNCOUNTED: Final = [
    ModelMissing("the model is not installed"),
    ServiceUnreachable("Qdrant is not available; the log says why"),
    UpstreamOverload("Qdrant accepts no more requests now"),
    LimitReached("the embedder accepts no more now (429)"),
    StoreFull("Qdrant has no space left on its disk", service="qdrant"),
    MarkerMismatch("the bucket has no marker"),
    LATE,
]


async def meet(db: Database, error: Exception, times: int = 1) -> None:
    for _ in range(times):
        await let_delays_pass(db)
        await retry_or_fail(db, await must_take(db), error)


async def test_a_refused_connection_costs_no_attempt_for_30_minutes(database: Database) -> None:
    (job_id,) = await put(database)
    for _ in range(OUTAGE_SECONDS // PAUSE_SECONDS):
        held = await must_take(database)
        assert held.attempts == 1
        await retry_or_fail(database, held, ServiceUnreachable("the embedder cannot be reached"))
        await sql(database, TIME_PASSES, seconds=PAUSE_SECONDS)
    waiting = await view(database, job_id)
    assert (waiting.state, waiting.attempts) == (JobState.QUEUED, 0)
    assert await history(database, job_id) == ["enqueued", "claimed", "paused"]
    await finished(database, await must_take(database))
    done = await view(database, job_id)
    assert (done.state, done.attempts) == (JobState.DONE, 1)


@pytest.mark.parametrize("error", UNCOUNTED, ids=lambda error: type(error).__name__)
async def test_an_error_that_says_nothing_of_the_request_costs_no_attempt(
    database: Database, error: LatentError
) -> None:
    (job_id,) = await put(database, job(max_attempts=1))
    await meet(database, error, times=7)
    waiting = await view(database, job_id)
    assert (waiting.state, waiting.attempts) == (JobState.QUEUED, 0)


@pytest.mark.parametrize("error", [UpstreamError("Qdrant failed (500)"), LATE_ALONE, KeyError("x")])
async def test_an_answer_to_this_request_is_final_after_max_attempts(
    database: Database, error: Exception
) -> None:
    (job_id,) = await put(database, job(max_attempts=3))
    await meet(database, error, times=2)
    assert (await view(database, job_id)).state is JobState.QUEUED
    await meet(database, error)
    dead = await view(database, job_id)
    assert (dead.state, dead.attempts) == (JobState.FAILED, 3)


@pytest.mark.parametrize("error", UNCOUNTED, ids=lambda error: type(error).__name__)
async def test_a_job_that_waited_for_a_service_for_24_hours_is_a_dead_letter(
    database: Database, error: LatentError
) -> None:
    (job_id,) = await put(database)
    await meet(database, error)
    await sql(database, TIME_PASSES, seconds=MAX_PAUSED_SECONDS - 100)
    await meet(database, error)
    assert (await view(database, job_id)).state is JobState.QUEUED
    await sql(database, TIME_PASSES, seconds=200)
    await meet(database, error)
    dead = await view(database, job_id)
    assert dead.state is JobState.FAILED
    assert dead.cause is not None
    assert dead.cause.message.startswith(error.message)
    assert "waited for this service for 24 hours" in dead.cause.message
    assert f"latent jobs requeue {job_id}" in dead.cause.message


async def test_the_time_that_a_job_stands_in_line_is_not_time_it_waits_for_a_service(
    database: Database,
) -> None:
    await put(database)
    await meet(database, UNCOUNTED[2])
    await sql(database, TIME_PASSES, seconds=30 * 3600)
    await sql(database, IN_LINE)
    held = await must_take(database)
    assert held.paused_seconds < 60
    assert not is_final(held, UNCOUNTED[2])


async def test_a_service_that_asks_for_days_is_tried_again_after_an_hour(
    database: Database,
) -> None:
    await put(database)
    await meet(database, LimitReached("429", retry_after=7 * 24 * 3600.0))
    (row,) = await sql(database, "SELECT run_at - now() < interval '61 minutes' AS soon FROM jobs")
    assert row["soon"]


async def test_a_job_that_is_enqueued_again_waits_from_then_on(database: Database) -> None:
    await put(database, job(dedupe_key="k"))
    await meet(database, UNCOUNTED[0])
    await sql(database, TIME_PASSES, seconds=2 * MAX_PAUSED_SECONDS)
    await put(database, job(dedupe_key="k"))
    await let_delays_pass(database)
    assert (await must_take(database)).paused_seconds == 0
