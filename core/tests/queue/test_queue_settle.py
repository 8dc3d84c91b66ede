"""How a claim ends, by its worker or without it. F-numbers name failures known from other queues."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given, settings, strategies as st

from latent_core.db.connection import Database
from latent_core.domain.errors import (
    IngestFailed,
    Issue,
    IssueCode,
    LatentError,
    LimitReached,
    RateLimited,
    ServiceUnreachable,
    Unavailable,
    UpstreamTimeout,
)
from latent_core.domain.job import ClaimedJob, JobState
from latent_core.queue import admin, reaper
from latent_core.queue.backoff import CAP_SECONDS, backoff_seconds
from latent_core.queue.enqueue import enqueue
from latent_core.queue.errors import LeaseLost
from latent_core.queue.finish import clean, end_cancelled, finish, finish_all, hold
from latent_core.queue.reaper import disown, reap, reap_one, release_all
from latent_core.queue.requeue import release, requeue_with, retry_or_fail
from tests.support.queue import (
    expire,
    finished,
    history,
    job,
    let_delays_pass,
    lose,
    must_take,
    put,
    sql,
    take,
    take_all,
    view,
)


async def test_a_finish_makes_its_transaction_visible_and_is_final(database: Database) -> None:
    (job_id,) = await put(database)
    held = await must_take(database)
    async with database.transaction() as conn:
        await finish(conn, held, warnings=[Issue(code=IssueCode.INVALID, message="odd")])
    shown = await view(database, job_id)
    assert (shown.state, shown.warnings[0].message) == (JobState.DONE, "odd")
    for _ in range(2):
        with pytest.raises(LeaseLost):
            await finished(database, held)
    assert await history(database, job_id) == ["enqueued", "claimed", "done"]


async def test_jobs_that_are_finished_together_are_finished_all_or_none(database: Database) -> None:
    await put(database, job("a"), job("b"), job("c"))
    held = await take_all(database)
    await sql(database, "UPDATE jobs SET cancel_requested = true WHERE id = %(id)s", id=held[2].id)
    for several in (held, [held[0], replace(held[1], claim_id=0)]):
        with pytest.raises(LeaseLost):
            async with database.transaction() as conn:
                await finish_all(conn, [(one, 7) for one in several])
    assert (await view(database, held[0].id)).state is JobState.RUNNING
    async with database.transaction() as conn:
        await finish_all(conn, [(held[1], 7), (held[0], 3)])
    shown = [await view(database, one.id) for one in held]
    assert [one.state for one in shown] == [JobState.DONE, JobState.DONE, JobState.RUNNING]
    assert [one.progress_done for one in shown[:2]] == [3, 7]
    assert await history(database, held[0].id) == ["enqueued", "claimed", "done"]


async def test_who_lost_the_lease_cannot_finish_nor_change_anything_f1(database: Database) -> None:
    (job_id,) = await put(database)
    frozen = await lose(database)
    other = await must_take(database, worker="other")
    for attempt in (
        finish_with_effect(database, frozen),
        retry_or_fail(database, frozen, Unavailable("away")),
        retry_or_fail(database, frozen, IngestFailed("bad")),
        release(database, frozen),
    ):
        with pytest.raises(LeaseLost):
            await attempt
    assert (await view(database, job_id)).state is JobState.RUNNING
    await finished(database, other)
    assert await take(database) is None


async def finish_with_effect(db: Database, held: ClaimedJob) -> None:
    async with db.transaction() as conn:
        await enqueue(conn, job("effect"))
        await finish(conn, held)


async def test_a_transient_error_is_tried_again_and_then_given_up(database: Database) -> None:
    (job_id,) = await put(database, job(max_attempts=2))
    await retry_or_fail(database, await must_take(database), KeyError("oops"))
    assert (await view(database, job_id)).state is JobState.QUEUED
    await let_delays_pass(database)
    held = await must_take(database)
    assert held.attempts == 2
    await retry_or_fail(database, held, Unavailable("still away"))
    shown = await view(database, job_id)
    assert (shown.state, shown.cause and shown.cause.message) == (JobState.FAILED, "still away")
    assert await history(database, job_id) == [
        "enqueued", "claimed", "retried", "claimed", "failed",
    ]  # fmt: skip


async def test_a_job_that_waits_for_a_service_outside_spends_no_attempt_however_long(
    database: Database,
) -> None:
    (job_id,) = await put(database, job(max_attempts=2))
    await retry_or_fail(database, await must_take(database), KeyError("of its own"))
    error: LatentError
    for error in [
        ServiceUnreachable("refused"),
        LimitReached("used up"),
        UpstreamTimeout("it hangs", counts_as_attempt=False),
        *[ServiceUnreachable("refused")] * 7,
    ]:
        await let_delays_pass(database)
        held = await must_take(database)
        assert held.attempts == 2
        await retry_or_fail(database, held, error)
    shown = await view(database, job_id)
    assert (shown.state, shown.attempts) == (JobState.QUEUED, 1)
    assert (shown.cause and shown.cause.message) == "refused"
    # Its history does not grow with the outage.
    assert await history(database, job_id) == [
        "enqueued", "claimed", "retried", "claimed", "paused",
    ]  # fmt: skip
    (event_row,) = await sql(
        database,
        "SELECT details, (SELECT run_at - now() < interval '125s' FROM jobs) AS soon FROM job_events WHERE event = 'paused'",
    )
    assert event_row["details"]["times"] == 10
    assert event_row["soon"]
    await let_delays_pass(database)
    await finished(database, await must_take(database))
    assert (await view(database, job_id)).state is JobState.DONE


async def test_an_outage_after_another_error_counts_anew(database: Database) -> None:
    (job_id,) = await put(database)
    for error in (
        ServiceUnreachable("refused"),
        Unavailable("of its own"),
        ServiceUnreachable("refused"),
    ):
        await let_delays_pass(database)
        await retry_or_fail(database, await must_take(database), error)
    events = await sql(
        database, "SELECT details FROM job_events WHERE event = 'paused' ORDER BY id"
    )
    assert [event["details"]["times"] for event in events] == [1, 1]
    assert (await view(database, job_id)).attempts == 1


async def test_a_permanent_error_fails_at_once_with_its_cause(database: Database) -> None:
    (job_id,) = await put(database)
    error = IngestFailed("cannot read \0 \ud800", tail="\0", pages=3)
    await retry_or_fail(database, await must_take(database), error)
    shown = await view(database, job_id)
    assert shown.state is JobState.FAILED
    assert shown.cause == Issue(
        code=IssueCode.INGEST_FAIL,
        message="cannot read \ufffd ?",
        details={"tail": "\ufffd", "pages": 3},
    )


async def test_a_service_that_names_a_pause_is_given_it(database: Database) -> None:
    (job_id,) = await put(database)
    await retry_or_fail(
        database, await must_take(database), RateLimited("slow down", retry_after=900)
    )
    (row,) = await sql(
        database,
        "SELECT run_at - now() > interval '890s' AS late FROM jobs WHERE id = %(i)s",
        i=job_id,
    )
    assert row["late"]


@settings(max_examples=30)
@given(attempts=st.integers(0, 10**6), draw=st.floats(0, 1), min_seconds=st.floats(0, 3600))
def test_backoff_is_bounded_on_both_sides(attempts: int, draw: float, min_seconds: float) -> None:
    seconds = backoff_seconds(attempts, draw=draw, min_seconds=min_seconds)
    assert min_seconds <= seconds <= max(min_seconds, CAP_SECONDS)


@settings(max_examples=30)
@given(st.recursive(st.none() | st.text() | st.floats() | st.binary(), st.lists, max_leaves=5))
def test_whatever_an_error_quotes_can_be_stored(value: Any) -> None:
    assert "\\u0000" not in json.dumps(clean(value))


async def test_a_cursor_goes_to_the_end_of_its_containers_line(database: Database) -> None:
    ids = await put(database, job(payload={"offset": 0}), job(), job("b"))
    held = await must_take(database)
    async with database.transaction() as conn:
        assert await requeue_with(conn, held, {"offset": 7})
    taken = await take_all(database)
    assert [t.id for t in taken] == [ids[2], ids[1], ids[0]]
    assert (taken[2].payload, taken[2].attempts) == ({"offset": 7}, 1)
    assert taken[2].claim_id > held.claim_id


@pytest.mark.parametrize("way_back", ["cursor", "retry", "release", "lost"])
async def test_a_job_that_comes_back_gives_way_to_the_newer_one_f5(
    database: Database, way_back: str
) -> None:
    (old,) = await put(database, job(dedupe_key="k"))
    held = await must_take(database)
    (new,) = await put(database, job(dedupe_key="k"))
    await go_back(database, held, way_back)
    shown = await view(database, old)
    assert (shown.state, shown.cause and shown.cause.code) == (
        JobState.CANCELLED,
        IssueCode.CONFLICT,
    )
    assert [t.id for t in await take_all(database)] == [new]


@pytest.mark.parametrize("way_back", ["cursor", "retry", "release", "lost"])
async def test_a_newer_job_that_commits_at_the_same_moment_wins_too_f5(
    database: Database, way_back: str
) -> None:
    (old,) = await put(database, job(dedupe_key="k"))
    held = await must_take(database)
    async with database.transaction() as conn:
        new = await enqueue(conn, job(dedupe_key="k"))
        coming_back = asyncio.create_task(go_back(database, held, way_back))
        await until_somebody_waits_for_a_lock(database)
    await coming_back
    assert (await view(database, old)).state is JobState.CANCELLED
    assert [t.id for t in await take_all(database)] == [new]


async def go_back(db: Database, held: ClaimedJob, way: str) -> None:
    match way:
        case "cursor":
            async with db.transaction() as conn:
                assert not await requeue_with(conn, held, {"offset": 7})
        case "retry":
            await retry_or_fail(db, held, Unavailable("away"))
        case "release":
            await release(db, held)
        case _:
            await expire(db, held.id)
            await reap(db)


async def until_somebody_waits_for_a_lock(db: Database) -> None:
    deadline = asyncio.get_running_loop().time() + 10
    while not (await sql(db, "SELECT count(*) AS n FROM pg_locks WHERE NOT granted"))[0]["n"]:
        assert asyncio.get_running_loop().time() < deadline


async def test_a_released_job_is_next_and_its_attempt_is_refunded_f8(database: Database) -> None:
    ids = await put(database, *(job(doc_key=f"d{n}") for n in range(3)))
    held = await must_take(database)
    await release(database, held)
    again = [await must_take(database) for _ in range(2)][1]
    assert (again.id, again.attempts) == (ids[0], 1)
    assert again.claim_id > held.claim_id


async def test_an_expired_claim_goes_back_and_counts_as_an_attempt(database: Database) -> None:
    (job_id,) = await put(database)
    held = await lose(database)
    again = await must_take(database)
    assert (again.id, again.attempts) == (job_id, 2)
    assert again.claim_id > held.claim_id
    assert await history(database, job_id) == ["enqueued", "claimed", "lost", "claimed"]


async def test_the_reaper_leaves_a_job_alone_that_was_finished_or_beaten_meanwhile_f2(
    database: Database,
) -> None:
    done, beaten, reclaimed = await put(database, job(), job(), job())
    first, second, third = [await must_take(database) for _ in range(3)]
    await expire(database, done, reclaimed)
    await finished(database, first)
    await release(database, third)
    assert (await must_take(database)).id == reclaimed
    before = await sql(database, "SELECT json_agg(jobs ORDER BY id) AS rows FROM jobs")
    for stale in (done, beaten, reclaimed):  # what a round that looked too early would still try
        assert await reap_one(database, stale) is False
    assert before == await sql(database, "SELECT json_agg(jobs ORDER BY id) AS rows FROM jobs")
    await finished(database, second)


async def test_the_reaper_finds_every_lost_job_among_thousands_of_living_ones_f4(
    database: Database,
) -> None:
    await put(database, *(job() for _ in range(2000)))
    await sql(
        database,
        "UPDATE jobs SET state = 'running', attempts = 1, claim_id = nextval('claim_ids'), "
        "lease_expires = now() + CASE WHEN id %% 8 = 0 THEN '-1s' ELSE '1h' END::interval",
        unused=None,
    )
    assert len(await reap(database)) == 250
    assert await reap(database) == []
    (row,) = await sql(database, "SELECT count(*) AS n FROM jobs WHERE state = 'running'")
    assert row["n"] == 1750


async def test_one_job_that_cannot_be_rescued_now_does_not_keep_the_others_f5_f17(
    database: Database,
) -> None:
    stuck, free, poison = await put(database, job(dedupe_key="k"), job(), job(payload={"x": []}))
    for _ in range(3):
        await must_take(database)
    await sql(database, "UPDATE jobs SET kind = 'from the future' WHERE id = %(i)s", i=poison)
    await expire(database, stuck, free, poison)
    async with database.transaction() as conn:
        await enqueue(conn, job(dedupe_key="k"))  # not committed: the rescue of `stuck` must wait
        assert set(await reap(database)) == {free, poison}
    assert await reap(database) == [stuck]
    assert (await view(database, stuck)).state is JobState.CANCELLED


async def test_a_job_that_kills_its_worker_each_time_fails_after_max_attempts(
    database: Database,
) -> None:
    (job_id,) = await put(database, job(max_attempts=3))
    await lose(database)
    for _ in range(2):
        await let_delays_pass(database)
        await lose(database)
    shown = await view(database, job_id)
    assert (shown.state, shown.attempts) == (JobState.FAILED, 3)
    assert shown.cause is not None
    assert "vanished" in shown.cause.message
    assert "attempt 3 of 3" in shown.cause.message


async def test_jobs_that_were_lost_twice_with_their_worker_do_not_come_back_together(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays = iter([100.0, 200.0])
    monkeypatch.setattr(reaper, "backoff_seconds", lambda _: next(delays))
    ids = await put(database, job(), job())
    for _ in range(2):
        held = [await must_take(database) for _ in ids]
        await expire(database, *(one.id for one in held))
        await reap(database)
    assert await take(database) is None
    rows = await sql(database, "SELECT round(extract(epoch FROM run_at - now())) AS s FROM jobs")
    assert {int(row["s"]) // 100 for row in rows} <= {0, 1, 2}
    assert len({int(row["s"]) // 99 for row in rows}) == 2


async def test_a_lost_lease_in_the_last_attempt_fails_the_job(database: Database) -> None:
    (job_id,) = await put(database, job(max_attempts=1))
    await lose(database)
    assert (await view(database, job_id)).state is JobState.FAILED


async def test_only_the_claims_of_a_dead_worker_are_taken_back(database: Database) -> None:
    await put(database, job(), job())
    dead = await must_take(database, worker="dead")
    await must_take(database, worker="alive")
    await disown(database, "dead")
    assert await reap(database) == [dead.id]


async def test_when_all_workers_are_gone_every_claim_is_taken_back_and_counts(
    database: Database,
) -> None:
    ids = await put(database, job(), job())
    held = {(await must_take(database, worker=f"w{n}")).id for n in range(2)}
    assert held == set(ids)
    assert await release_all(database) == 2
    assert {(await must_take(database)).attempts for _ in ids} == {2}


async def test_a_transaction_that_holds_its_claim_first_may_end_it_last(database: Database) -> None:
    await put(database, job(payload={"offset": 0}))
    held = await must_take(database)
    async with database.transaction() as conn:
        await hold(conn, held)
        await conn.execute("UPDATE jobs SET lease_expires = '-infinity'")
        assert await reap(database) == []  # its row is locked
        assert await requeue_with(conn, held, {"offset": 1})
    async with database.transaction() as conn:
        with pytest.raises(LeaseLost):
            await hold(conn, held)


SEALED: Final = {"sealed_password": "gAAAAA", "uri": "file:///a.pdf"}


async def sealed_job(db: Database) -> None:
    await put(db, job(payload=SEALED, max_attempts=1))


async def payload(db: Database) -> Any:
    (row,) = await sql(db, "SELECT payload FROM jobs")
    return row["payload"]


async def _finished_together(db: Database) -> None:
    held = await must_take(db)
    async with db.transaction() as conn:
        await finish_all(conn, [(held, 1)])


async def _ended_cancelled(db: Database) -> None:
    held = await must_take(db)
    async with db.transaction() as conn:
        await end_cancelled(conn, held)


async def _cancelled_in_line(db: Database) -> None:
    (row,) = await sql(db, "SELECT id FROM jobs")
    async with db.transaction() as conn:
        await admin.cancel(conn, row["id"])


async def _all_cancelled_in_line(db: Database) -> None:
    async with db.transaction() as conn:
        await admin.cancel_all(conn, "a", but=0)


ENDS: Final[dict[str, Callable[[Database], Awaitable[object]]]] = {
    "done": lambda db: _finished(db),
    "done together": _finished_together,
    "failed": lambda db: _failed(db),
    "lost in its last attempt": lose,
    "cancelled while it ran": _ended_cancelled,
    "cancelled in line": _cancelled_in_line,
    "cancelled with its container": _all_cancelled_in_line,
}


async def _finished(db: Database) -> None:
    await finished(db, await must_take(db))


async def _failed(db: Database) -> None:
    await retry_or_fail(db, await must_take(db), IngestFailed("bad"))


@pytest.mark.parametrize("end", ENDS)
async def test_the_end_of_a_job_erases_the_password_of_its_file(
    database: Database, end: str
) -> None:
    await sealed_job(database)
    assert await payload(database) == SEALED
    await ENDS[end](database)
    assert await payload(database) == {"uri": "file:///a.pdf"}


async def test_a_job_that_is_tried_again_keeps_the_password_of_its_file(database: Database) -> None:
    await put(database, job(payload=SEALED, max_attempts=9))
    await lose(database)
    assert await payload(database) == SEALED
    await retry_or_fail(database, await must_take(database), Unavailable("away"))
    await let_delays_pass(database)
    assert (await must_take(database)).payload == SEALED
