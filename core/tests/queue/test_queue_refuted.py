"""Outages that are none: a service that fails for one job alone is not waited for without end."""

from __future__ import annotations

from typing import Final

import pytest

from latent_core.domain.errors import Away, Failing, LatentError, LimitReached, NoAnswer
from latent_core.domain.job import JobState
from latent_core.domain.outage import (
    ALONE_SECONDS,
    LONGEST_SECONDS,
    MOST_PAUSES,
    Outage,
)
from latent_core.queue.comeback import retry_or_fail
from latent_core.queue.finish import finish
from latent_core.registry.connection import Database
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

EARLIER: Final = """
UPDATE job_events SET details = jsonb_set(details, '{since}', to_jsonb(now() - make_interval(secs => %(seconds)s)))
WHERE event = 'paused'
"""


def outage(
    *, times: int = 1, seconds: float = 0.0, served: bool = False, wait: bool = False
) -> Outage:
    return Outage(times, seconds, served, wait)


@pytest.mark.parametrize(
    ("met", "own"),
    [
        (outage(times=MOST_PAUSES, served=True), True),
        (outage(times=MOST_PAUSES - 1, served=True), False),
        (outage(times=1000 * MOST_PAUSES), False),
        (outage(seconds=ALONE_SECONDS), True),
        (outage(seconds=ALONE_SECONDS, wait=True), False),
        (outage(seconds=LONGEST_SECONDS, wait=True), True),
    ],
)
def test_an_outage_is_believed_as_long_as_it_is_one_for_others_too(met: Outage, own: bool) -> None:
    assert met.is_of_this_job is own


def test_what_is_told_says_how_it_is_known() -> None:
    assert "other jobs like it were served" in outage(times=12, served=True).words()
    assert "within 24 hours" in outage(seconds=ALONE_SECONDS).words()


async def pause(db: Database, times: int, error: LatentError) -> None:
    for _ in range(times):
        await let_delays_pass(db)
        await retry_or_fail(db, await must_take(db), error)


async def another_is_served(db: Database) -> None:
    await put(db, job("b", priority=100))
    await finished(db, await must_take(db))


@pytest.mark.parametrize("error", [Failing("the S3 server failed (500)"), NoAnswer("late")])
async def test_a_job_that_alone_is_never_served_ends_with_its_cause(
    database: Database, error: LatentError
) -> None:
    (job_id,) = await put(database)
    await pause(database, MOST_PAUSES - 1, error)
    await another_is_served(database)
    assert (await view(database, job_id)).state is JobState.QUEUED
    await pause(database, 1, error)
    ended = await view(database, job_id)
    assert ended.state is JobState.FAILED
    assert ended.cause is not None
    assert ended.cause.message.startswith(error.message)
    assert "it is what this one asks that makes it fail" in ended.cause.message
    assert (await history(database, job_id))[-1] == "failed"


async def test_it_waits_as_long_as_nobody_is_served(database: Database) -> None:
    await another_is_served(database)  # before it began says nothing
    (job_id,) = await put(database)
    await pause(database, 3 * MOST_PAUSES, Failing("the S3 server failed (500)"))
    waiting = await view(database, job_id)
    assert (waiting.state, waiting.attempts) == (JobState.QUEUED, 0)


@pytest.mark.parametrize("error", [Away("cannot be reached"), LimitReached("429")])
async def test_what_is_away_for_all_by_itself_is_believed_whoever_was_served(
    database: Database, error: LatentError
) -> None:
    (job_id,) = await put(database)
    await pause(database, MOST_PAUSES, error)
    await another_is_served(database)
    await pause(database, MOST_PAUSES, error)
    assert (await view(database, job_id)).state is JobState.QUEUED


async def test_who_was_nearly_done_when_the_outage_came_refutes_nothing(
    database: Database,
) -> None:
    (job_id,) = await put(database)
    held = await must_take(database)
    await put(database, job("b", priority=100))
    nearly_done = await must_take(database)
    await retry_or_fail(database, held, Failing("500"))
    await finished(database, nearly_done)
    await pause(database, 2 * MOST_PAUSES, Failing("500"))
    assert (await view(database, job_id)).state is JobState.QUEUED


async def test_who_was_served_in_a_gap_of_the_outage_refutes_nothing_of_what_came_after(
    database: Database,
) -> None:
    (job_id,) = await put(database)
    await pause(database, 1, Failing("500"))
    await another_is_served(database)
    await pause(database, 2 * MOST_PAUSES, Failing("500"))
    assert (await view(database, job_id)).state is JobState.QUEUED


async def test_a_job_that_found_nothing_to_do_refutes_nothing(database: Database) -> None:
    (job_id,) = await put(database)
    await pause(database, MOST_PAUSES, Failing("500"))
    await put(database, job("b", priority=100))
    same = await must_take(database)
    async with database.transaction() as conn:
        await finish(conn, same, result={"unchanged": True})
    await pause(database, 1, Failing("500"))
    assert (await view(database, job_id)).state is JobState.QUEUED


async def test_a_job_alone_with_its_outage_is_given_up_after_a_day(database: Database) -> None:
    (job_id,) = await put(database)
    await pause(database, 1, Failing("500"))
    await sql(database, EARLIER, seconds=ALONE_SECONDS)
    await pause(database, 1, Failing("500"))
    assert (await view(database, job_id)).state is JobState.FAILED
