"""What enqueueing and claiming promise. F-numbers name failures known from other queues."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest

from latent_core.db.connection import Database
from latent_core.domain.errors import (
    Unavailable,
)
from latent_core.domain.job import ClaimedJob, JobKind, NewJob
from latent_core.queue.claim import claim
from latent_core.queue.enqueue import enqueue, ensure_queued
from latent_core.queue.requeue import retry_or_fail
from tests.support.queue import (
    finished,
    history,
    job,
    let_delays_pass,
    must_take,
    put,
    sql,
    take,
    take_all,
)


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
        job_id,
        held.claim_id,
        JobKind.INGEST,
        "a",
        doc,
        "k",
        dict(new.payload),
        1,
        3,
        "local:you",
        batch_id=held.batch_id,
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


async def ensure(db: Database, new: NewJob) -> None:
    async with db.transaction() as conn:
        await ensure_queued(conn, new)


async def test_a_job_that_must_be_queued_is_so_once_and_is_not_touched_again(
    database: Database,
) -> None:
    for _ in range(3):
        await ensure(database, job(dedupe_key="k", delay_seconds=2.0))
    await let_delays_pass(database)
    (held,) = await take_all(database)
    assert await history(database, held.id) == ["enqueued", "claimed"]
    await ensure(database, job(dedupe_key="k"))  # the running one may have looked already
    assert len(await take_all(database)) == 1


@pytest.mark.parametrize(
    "other", [{"payload": {"v": 2}}, {"priority": 5}, {"delay_seconds": 0.0}, {"max_attempts": 9}]
)
async def test_a_queued_job_is_updated_to_the_new_request(
    database: Database, other: dict[str, Any]
) -> None:
    first: dict[str, Any] = {"dedupe_key": "k", "payload": {"v": 1}, "delay_seconds": 60.0}
    await ensure(database, job(**first))
    await ensure(database, job(**first | other))
    (event, *_, last) = await sql(database, "SELECT event FROM job_events ORDER BY id")
    assert (event["event"], last["event"]) == ("enqueued", "coalesced")


async def test_one_that_was_tried_before_begins_anew(database: Database) -> None:
    await ensure(database, job(dedupe_key="k"))
    await retry_or_fail(database, await must_take(database), Unavailable("away"))
    await ensure(database, job(dedupe_key="k"))
    assert (await must_take(database)).attempts == 1


async def test_a_required_job_is_not_claimed_before_its_request_is_visible(
    database: Database,
) -> None:
    await ensure(database, job(dedupe_key="k"))
    async with database.transaction() as conn:
        await ensure_queued(conn, job(dedupe_key="k"))
        assert await take(database) is None
    assert await take(database) is not None


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
    await let_delays_pass(database)
    assert await take(database) is not None  # the others are promoted by now
    (single,) = await put(database, job("small"))
    assert single in [(await must_take(database)).id for _ in range(2)]


async def test_a_retry_goes_to_the_end_of_its_containers_line(database: Database) -> None:
    ids = await put(database, *(job() for _ in range(4)))
    await retry_or_fail(database, await must_take(database), Unavailable("away"))
    await let_delays_pass(database)
    assert [t.id for t in await take_all(database)] == [*ids[1:], ids[0]]


async def test_a_job_whose_key_was_busy_lets_one_of_each_other_container_pass(
    database: Database,
) -> None:
    await put(database, *(job("big", doc_key="k") for _ in range(3)))
    busy = await must_take(database)
    await put(database, job("s0"), job("s1"), job("s2"))
    rounds = [(await must_take(database)).container_id]
    await finished(database, busy)
    rounds.append((await must_take(database)).container_id)
    await put(database, job("s0"))
    rounds += [taken.container_id for taken in await take_all(database)]
    assert rounds == ["s0", "s1", "s2", "s0", "big"]


async def test_a_job_waits_for_its_time(database: Database) -> None:
    (later,) = await put(database, job(delay_seconds=3600))
    assert await take(database) is None
    await let_delays_pass(database)
    assert (await must_take(database)).id == later


async def test_a_claim_takes_only_the_requested_kinds(database: Database) -> None:
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
    (row,) = await sql(database, "SELECT count(*) AS n FROM jobs WHERE waits_for = 'key'")
    assert row["n"] == 2999
