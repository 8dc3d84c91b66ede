"""The queue's rules, one at a time. F-numbers name failures known from other queues."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings, strategies as st
from psycopg.errors import UniqueViolation

from latent_core.domain.errors import (
    Conflict,
    IngestFailed,
    Invalid,
    Issue,
    IssueCode,
    NotFound,
    RateLimited,
    Unavailable,
)
from latent_core.domain.ids import JobId
from latent_core.domain.job import ClaimedJob, JobKind, JobState, JobView, NewJob
from latent_core.queue import admin
from latent_core.queue.backoff import CAP_SECONDS, backoff_seconds
from latent_core.queue.claim import Lane, claim
from latent_core.queue.comeback import release, requeue_with, retry_or_fail
from latent_core.queue.enqueue import enqueue, enqueue_many
from latent_core.queue.errors import LeaseLost
from latent_core.queue.finish import finish, hold
from latent_core.queue.issues import clean
from latent_core.queue.reaper import LOSSES_BEFORE_FAILURE, disown, reap, reap_one, release_all
from latent_core.queue.retention import forget
from latent_core.registry.connection import Connection, Database


def job(container_id: str = "a", **fields: Any) -> NewJob:
    return NewJob(**{"kind": JobKind.INGEST, "container_id": container_id} | fields)


async def put(db: Database, *jobs: NewJob) -> list[JobId]:
    async with db.transaction() as conn:
        return await enqueue_many(conn, jobs or [job()])


async def take(db: Database, *, lane: Lane = Lane.READY, worker: str = "w") -> ClaimedJob | None:
    return await claim(db, worker=worker, lease_seconds=60, lane=lane)


async def must_take(db: Database, *, lane: Lane = Lane.READY, worker: str = "w") -> ClaimedJob:
    taken = await take(db, lane=lane, worker=worker)
    assert taken is not None
    return taken


async def take_all(db: Database) -> list[ClaimedJob]:
    taken = []
    while (next_job := await take(db)) is not None:
        taken.append(next_job)
    return taken


async def finished(db: Database, held: ClaimedJob) -> None:
    async with db.transaction() as conn:
        await finish(conn, held)


async def view(db: Database, job_id: int) -> JobView:
    async with db.transaction() as conn:
        return await admin.get(conn, job_id)


async def history(db: Database, job_id: int) -> list[str]:
    async with db.transaction() as conn:
        return [event.event for event in await admin.events(conn, job_id)]


async def run_sql(db: Database, statement: str, **parameters: Any) -> Any:
    async with db.transaction() as conn:
        row = await conn.execute(statement, parameters)
        return await row.fetchone() if row.description else None


async def expire(db: Database, *ids: int) -> None:
    await run_sql(
        db, "UPDATE jobs SET lease_expires = now() - interval '1s' WHERE id = ANY(%(i)s)", i=[*ids]
    )


async def due(db: Database) -> None:
    await run_sql(db, "UPDATE jobs SET run_at = now() - interval '1s' WHERE lane = 'delayed'")


async def lose(db: Database, lane: Lane = Lane.READY) -> ClaimedJob:
    held = await must_take(db, lane=lane)
    await expire(db, held.id)
    await reap(db)
    return held


# --- enqueue -----------------------------------------------------------------------------------


async def test_a_job_exists_only_when_its_transaction_commits(database: Database) -> None:
    with suppress(ZeroDivisionError):
        async with database.transaction() as conn:
            await enqueue(conn, job())
            assert await take(database) is None
            raise ZeroDivisionError
    assert await take(database) is None


async def test_a_claimed_job_carries_what_was_enqueued(database: Database) -> None:
    doc = uuid4()
    new = job(doc_id=doc, doc_key="k", payload={"uri": "x\u00e4", "n": 1}, max_attempts=3)
    (job_id,) = await put(database, new)
    held = await must_take(database)
    assert held == ClaimedJob(
        job_id, held.claim_id, JobKind.INGEST, "a", doc, "k", dict(new.payload), 1, 3, "local:you"
    )


async def test_ids_come_back_in_the_order_of_the_jobs(database: Database) -> None:
    jobs = [job(payload={"n": n}, dedupe_key=f"{9 - n}" if n % 2 else None) for n in range(10)]
    ids = await put(database, *jobs)
    taken = await take_all(database)
    assert [t.payload["n"] for t in taken] == list(range(10))
    assert [t.id for t in taken] == ids


async def test_a_queued_job_with_the_same_key_takes_the_newer_payload(database: Database) -> None:
    (first,) = await put(database, job(dedupe_key="k", payload={"v": 1}))
    (second,) = await put(database, job(dedupe_key="k", payload={"v": 2}, priority=5))
    assert first == second
    assert [t.payload for t in await take_all(database)] == [{"v": 2}]
    assert await history(database, first) == ["enqueued", "coalesced", "claimed"]


async def test_jobs_of_one_batch_with_the_same_key_are_one_job_with_the_last_payload(
    database: Database,
) -> None:
    ids = await put(database, *(job(dedupe_key="k", payload={"v": v}) for v in range(3)))
    assert len(set(ids)) == 1
    assert [t.payload for t in await take_all(database)] == [{"v": 2}]


async def test_a_running_job_does_not_coalesce_and_its_successor_waits_for_it(
    database: Database,
) -> None:
    new = job(dedupe_key="k", doc_key="d")
    (first,) = await put(database, new)
    held = await must_take(database)
    (second,) = await put(database, new)
    assert second != first
    assert await take(database) is None
    await finished(database, held)
    assert (await must_take(database)).id == second


async def test_a_delayed_retry_does_not_hold_back_the_newer_version_f12(database: Database) -> None:
    (first,) = await put(database, job(dedupe_key="k", payload={"v": 1}))
    await retry_or_fail(database, await must_take(database), Unavailable("away", retry_after=3600))
    assert await take(database) is None
    await put(database, job(dedupe_key="k", payload={"v": 2}))
    held = await must_take(database)
    assert (held.id, held.payload, held.attempts) == (first, {"v": 2}, 1)


async def test_enqueueing_the_same_keys_at_once_in_any_order_does_not_deadlock(
    database: Database,
) -> None:
    keys = [f"k{n}" for n in range(200)]
    batches = [[job(dedupe_key=k) for k in order] for order in (keys, keys[::-1], keys[100:])]
    await asyncio.gather(*(put(database, *batch) for batch in batches * 3))
    assert len(await take_all(database)) == len(keys)


async def test_enqueueing_notifies_nobody_f15(database: Database) -> None:
    async with database.dedicated(name="ear") as ear:
        await ear.execute("LISTEN latent_jobs")
        await put(database, job(), job())
        await ear.execute("SELECT pg_notify('latent_jobs', 'end')")
        heard = [note.payload async for note in ear.notifies(timeout=5, stop_after=1)]
    assert heard == ["end"]


# --- order -------------------------------------------------------------------------------------


async def test_priority_goes_first_then_the_order_of_arrival(database: Database) -> None:
    ids = await put(database, job(priority=-10), job(), job(priority=100), job())
    assert [t.id for t in await take_all(database)] == [ids[2], ids[1], ids[3], ids[0]]


async def test_many_jobs_of_one_container_do_not_delay_the_single_one_of_another(
    database: Database,
) -> None:
    await put(database, *(job("big") for _ in range(100)))
    for _ in range(40):
        await must_take(database)
    (single,) = await put(database, job("small"))
    assert single in [(await must_take(database)).id for _ in range(2)]


async def test_due_retries_of_one_container_do_not_delay_another(database: Database) -> None:
    await put(database, *(job("big") for _ in range(30)))
    for held in await take_all(database):
        await retry_or_fail(database, held, Unavailable("away"))
    await due(database)
    assert await take(database) is not None  # the others are promoted by now
    (single,) = await put(database, job("small"))
    assert single in [(await must_take(database)).id for _ in range(2)]


async def test_a_key_with_many_jobs_passes_no_other_container(database: Database) -> None:
    await put(database, *(job("big", doc_key="k") for _ in range(50)))
    held = await must_take(database)
    await put(database, *(job("small") for _ in range(20)))
    assert (await must_take(database)).container_id == "small"  # parks the others on its way
    seen = []
    for _ in range(20):
        await finished(database, held) if held.container_id == "big" else None
        held = await must_take(database)
        seen.append(held.container_id)
    assert 8 <= Counter(seen)["small"] <= 16


async def test_a_job_waits_for_its_time(database: Database) -> None:
    (later,) = await put(database, job(delay_seconds=3600))
    assert await take(database) is None
    await due(database)
    assert (await must_take(database)).id == later


async def test_a_claim_takes_only_the_kinds_it_is_asked_for(database: Database) -> None:
    await put(database, job(kind=JobKind.PURGE))
    assert await claim(database, worker="w", lease_seconds=1, kinds=[JobKind.INGEST]) is None
    assert await claim(database, worker="w", lease_seconds=1, kinds=[JobKind.PURGE]) is not None


async def test_jobs_of_one_key_never_run_together_and_no_claim_ever_fails_f11(
    database: Database,
) -> None:
    await put(database, *(job(doc_key=f"k{n % 3}") for n in range(90)))
    running: Counter[str] = Counter()
    done = 0

    async def work(worker: int) -> None:
        nonlocal done
        while done < 90:
            held = await take(database, worker=f"w{worker}")
            if held is None:
                await asyncio.sleep(0)
                continue
            assert held.doc_key is not None
            running[held.doc_key] += 1
            assert running[held.doc_key] == 1
            await asyncio.sleep(0)
            running[held.doc_key] -= 1
            await finished(database, held)
            done += 1

    await asyncio.gather(*(work(n) for n in range(8)))
    assert done == 90


async def test_thousands_of_jobs_of_a_busy_key_are_looked_at_once(database: Database) -> None:
    await put(database, *(job(doc_key="busy", priority=1) for _ in range(3000)), job())
    await must_take(database)
    other = await must_take(database)
    assert other.doc_key is None
    row = await run_sql(database, "SELECT count(*) AS n FROM jobs WHERE lane = 'waiting'")
    assert row["n"] == 2999


# --- the end of a claim ------------------------------------------------------------------------


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
    await due(database)
    held = await must_take(database)
    assert held.attempts == 2
    await retry_or_fail(database, held, Unavailable("still away"))
    shown = await view(database, job_id)
    assert (shown.state, shown.cause and shown.cause.message) == (JobState.FAILED, "still away")
    assert await history(database, job_id) == [
        "enqueued", "claimed", "retried", "claimed", "failed",
    ]  # fmt: skip


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
    row = await run_sql(
        database,
        "SELECT run_at - now() > interval '890s' AS late FROM jobs WHERE id = %(i)s",
        i=job_id,
    )
    assert row["late"]


@settings(max_examples=30)
@given(attempts=st.integers(0, 10**6), draw=st.floats(0, 1), at_least=st.floats(0, 3600))
def test_backoff_is_bounded_on_both_sides(attempts: int, draw: float, at_least: float) -> None:
    seconds = backoff_seconds(attempts, draw=draw, at_least=at_least)
    assert at_least <= seconds <= max(at_least, CAP_SECONDS)


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
    while not (await run_sql(db, "SELECT count(*) AS n FROM pg_locks WHERE NOT granted"))["n"]:
        assert asyncio.get_running_loop().time() < deadline


async def test_a_released_job_is_next_and_its_attempt_is_refunded_f8(database: Database) -> None:
    ids = await put(database, *(job(doc_key=f"d{n}") for n in range(3)))
    held = await must_take(database)
    await release(database, held)
    again = [await must_take(database) for _ in range(2)][1]
    assert (again.id, again.attempts) == (ids[0], 1)
    assert again.claim_id > held.claim_id


# --- lost leases -------------------------------------------------------------------------------


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
    before = await run_sql(database, "SELECT json_agg(jobs ORDER BY id) AS rows FROM jobs")
    for stale in (done, beaten, reclaimed):  # what a round that looked too early would still try
        assert await reap_one(database, stale) is False
    assert before == await run_sql(database, "SELECT json_agg(jobs ORDER BY id) AS rows FROM jobs")
    await finished(database, second)


async def test_the_reaper_finds_every_lost_job_among_thousands_of_living_ones_f4(
    database: Database,
) -> None:
    await put(database, *(job() for _ in range(2000)))
    await run_sql(
        database,
        "UPDATE jobs SET state = 'running', attempts = 1, claim_id = nextval('claim_ids'), "
        "lease_expires = now() + CASE WHEN id %% 8 = 0 THEN '-1s' ELSE '1h' END::interval",
        unused=None,
    )
    assert len(await reap(database)) == 250
    assert await reap(database) == []
    row = await run_sql(database, "SELECT count(*) AS n FROM jobs WHERE state = 'running'")
    assert row["n"] == 1750


async def test_one_job_that_cannot_be_rescued_now_does_not_keep_the_others_f5_f17(
    database: Database,
) -> None:
    stuck, free, poison = await put(database, job(dedupe_key="k"), job(), job(payload={"x": []}))
    for _ in range(3):
        await must_take(database)
    await run_sql(database, "UPDATE jobs SET kind = 'from the future' WHERE id = %(i)s", i=poison)
    await expire(database, stuck, free, poison)
    async with database.transaction() as conn:
        await enqueue(conn, job(dedupe_key="k"))  # not committed: the rescue of `stuck` must wait
        assert set(await reap(database)) == {free, poison}
    assert await reap(database) == [stuck]
    assert (await view(database, stuck)).state is JobState.CANCELLED


async def test_a_job_that_lost_two_workers_runs_alone_and_fails_after_two_more(
    database: Database,
) -> None:
    (job_id,) = await put(database, job(max_attempts=9))
    await lose(database)
    await lose(database)
    assert await take(database) is None
    await lose(database, Lane.QUARANTINE)
    assert await take(database) is None
    await lose(database, Lane.QUARANTINE)
    shown = await view(database, job_id)
    assert (shown.state, shown.attempts) == (JobState.FAILED, 4)
    assert shown.cause is not None
    assert "vanished 4 times" in shown.cause.message


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


async def test_when_all_workers_are_gone_every_claim_is_taken_back_and_none_is_to_blame(
    database: Database,
) -> None:
    ids = await put(database, job(max_attempts=1), job(max_attempts=1))
    for _ in range(LOSSES_BEFORE_FAILURE + 1):
        held = [await must_take(database, worker=f"w{n}") for n in range(2)]
        assert [h.attempts for h in held] == [1, 1]
        assert await release_all(database) == 2
    assert {h.id for h in held} == set(ids)


async def test_a_transaction_that_holds_its_claim_first_may_end_it_last(database: Database) -> None:
    await put(database, job(payload={"offset": 0}))
    held = await must_take(database)
    async with database.transaction() as conn:
        await hold(conn, held)
        await expire_in(conn, held.id)
        assert await reap(database) == []  # its row is locked
        assert await requeue_with(conn, held, {"offset": 1})
    async with database.transaction() as conn:
        with pytest.raises(LeaseLost):
            await hold(conn, held)


async def expire_in(conn: Connection, job_id: JobId) -> None:
    await conn.execute(
        "UPDATE jobs SET lease_expires = now() - interval '1s' WHERE id = %(i)s", {"i": job_id}
    )


# --- what people do ----------------------------------------------------------------------------


async def test_cancelling_ends_a_queued_job_and_asks_a_running_one(database: Database) -> None:
    running, queued = await put(database, job(), job())
    held = await must_take(database)
    async with database.transaction() as conn:
        assert (await admin.cancel(conn, queued)).state is JobState.CANCELLED
        assert (await admin.cancel(conn, running)).cancel_requested
    assert await take(database) is None
    await retry_or_fail(database, held, Unavailable("away"))
    assert (await view(database, running)).state is JobState.CANCELLED


async def test_all_jobs_of_a_container_are_cancelled_but_one(database: Database) -> None:
    running, queued, kept, other = await put(database, job(), job(), job(), job("b"))
    await must_take(database)
    async with database.transaction() as conn:
        assert await admin.cancel_all(conn, "a", but=kept) == 1
    assert (await view(database, running)).cancel_requested
    assert (await view(database, queued)).state is JobState.CANCELLED
    assert {t.id for t in await take_all(database)} == {kept, other}


async def test_a_done_job_can_neither_be_cancelled_nor_requeued(database: Database) -> None:
    (job_id,) = await put(database)
    await finished(database, await must_take(database))
    async with database.transaction() as conn:
        for action in (admin.cancel, admin.requeue):
            with pytest.raises(Conflict, match="is done"):
                await action(conn, job_id)
            with pytest.raises(NotFound):
                await action(conn, 10**9)


async def test_a_failed_job_is_requeued_with_fresh_attempts(database: Database) -> None:
    (job_id,) = await put(database, job(max_attempts=1))
    await retry_or_fail(database, await must_take(database), IngestFailed("bad"))
    async with database.transaction() as conn:
        shown = await admin.requeue(conn, job_id)
    assert (shown.state, shown.attempts, shown.cause) == (JobState.QUEUED, 0, None)
    assert (await must_take(database)).attempts == 1


async def test_requeueing_beside_a_newer_job_of_the_same_work_is_refused(
    database: Database,
) -> None:
    (old,) = await put(database, job(dedupe_key="k"))
    await retry_or_fail(database, await must_take(database), IngestFailed("bad"))
    await put(database, job(dedupe_key="k"))
    async with database.transaction() as conn:
        with pytest.raises(Conflict, match="newer job"):
            await admin.requeue(conn, old)


async def test_jobs_are_listed_by_container_and_state_page_by_page(database: Database) -> None:
    ids = await put(database, *(job("ab"[n % 2]) for n in range(10)), job("hidden"))
    await finished(database, await must_take(database))
    seen: list[int] = []
    cursor = None
    async with database.transaction() as conn:
        while True:
            page = await admin.list_jobs(conn, container_ids=["a", "b"], limit=3, cursor=cursor)
            seen += [shown.job_id for shown in page.jobs]
            if (cursor := page.next_cursor) is None:
                break
        done = await admin.list_jobs(conn, container_ids=["a", "b"], states=[JobState.DONE])
        with pytest.raises(Invalid):
            await admin.list_jobs(conn, container_ids=["a"], cursor="1; DROP")
    assert seen == sorted(ids[:10], reverse=True)
    assert [shown.job_id for shown in done.jobs] == [ids[0]]


async def test_depth_counts_jobs_and_tells_how_late_the_oldest_is(database: Database) -> None:
    await put(database, job(), job(), job(delay_seconds=3600))
    await must_take(database)
    await run_sql(
        database, "UPDATE jobs SET created_at = now() - interval '90s', run_at = created_at"
        " WHERE lane = 'ready'",
    )  # fmt: skip
    async with database.transaction() as conn:
        depth = await admin.depth(conn)
    assert depth.jobs[JobState.QUEUED] == 2
    assert depth.jobs[JobState.RUNNING] == 1
    assert depth.jobs[JobState.FAILED] == 0
    assert depth.oldest_queued_seconds < 3600


async def test_old_finished_jobs_are_forgotten_with_their_events(database: Database) -> None:
    old, recent, failed, running = await put(database, job(), job(), job(), job())
    held = [await must_take(database) for _ in range(4)]
    await finished(database, held[0])
    await finished(database, held[1])
    await retry_or_fail(database, held[2], IngestFailed("bad"))
    await run_sql(
        database,
        "UPDATE jobs SET finished_at = now() - interval '25h' WHERE id IN (%(a)s, %(b)s)",
        a=old,
        b=failed,
    )
    assert await forget(database) == 1
    left = await run_sql(database, "SELECT array_agg(id ORDER BY id) AS ids FROM jobs")
    assert left["ids"] == [recent, failed, running]
    assert await history(database, old) == []


async def test_the_database_itself_refuses_two_running_jobs_of_one_key(database: Database) -> None:
    await put(database, job(doc_key="k"), job(doc_key="k"))
    with pytest.raises(UniqueViolation):
        await run_sql(database, "UPDATE jobs SET state = 'running'")
