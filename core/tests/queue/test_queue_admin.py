"""What people see of jobs, and do to them."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from psycopg.errors import UniqueViolation

from latent_core.db.connection import Database
from latent_core.domain.errors import (
    Conflict,
    IngestFailed,
    Invalid,
    NotFound,
    Unavailable,
)
from latent_core.domain.ids import JobId
from latent_core.domain.job import JobKind, JobState, NewJob
from latent_core.queue import admin, reaper
from latent_core.queue.origin import from_job, from_request
from latent_core.queue.reaper import forget
from latent_core.queue.requeue import retry_or_fail
from tests.support.queue import (
    finished,
    history,
    job,
    must_take,
    put,
    sql,
    take,
    take_all,
    view,
)


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


async def test_dead_letters_of_a_container_are_read_oldest_first_in_pages(
    database: Database,
) -> None:
    ids = await put(database, *(job() for _ in range(4)))
    for _ in ids[:3]:
        await retry_or_fail(database, await must_take(database), IngestFailed("no"))
    async with database.transaction() as conn:
        first = await admin.dead_letters(conn, "a", limit=2)
        rest = await admin.dead_letters(conn, "a", limit=2, cursor=str(first[-1]))
        assert [*first, *rest] == ids[:3]
        assert await admin.dead_letters(conn, "a", limit=2, but={JobKind.INGEST}) == []
        assert await admin.dead_letters(conn, "another", limit=2) == []


async def test_a_failed_job_is_requeued_with_fresh_attempts(database: Database) -> None:
    (job_id,) = await put(database, job(max_attempts=1))
    await retry_or_fail(database, await must_take(database), IngestFailed("bad"))
    async with database.transaction() as conn:
        shown = await admin.requeue(conn, job_id)
    assert (shown.state, shown.attempts, shown.cause) == (JobState.QUEUED, 0, None)
    assert (await must_take(database)).attempts == 1


async def test_requeueing_is_refused_while_a_newer_job_of_the_same_work_is_open(
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
    await sql(
        database, "UPDATE jobs SET created_at = now() - interval '90s', run_at = created_at"
        " WHERE waits_for IS NULL",
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
    await sql(
        database,
        "UPDATE jobs SET finished_at = now() - interval '25h' WHERE id IN (%(a)s, %(b)s)",
        a=old,
        b=failed,
    )
    assert await forget(database) == 1
    (left,) = await sql(database, "SELECT array_agg(id ORDER BY id) AS ids FROM jobs")
    assert left["ids"] == [recent, failed, running]
    assert await history(database, old) == []


async def test_of_many_finished_jobs_the_newest_and_those_of_an_hour_are_kept(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(reaper.KEPT, JobState.DONE, reaper.KeptJobs(timedelta(hours=24), 2))
    ids = await put(database, *(job() for _ in range(5)))
    for _ in ids:
        await finished(database, await must_take(database))
    for hours, one in zip((5, 4, 3, 2), ids, strict=False):
        await sql(
            database,
            "UPDATE jobs SET finished_at = now() - make_interval(hours => %(hours)s) WHERE id = %(id)s",
            hours=hours,
            id=one,
        )
    await forget(database)
    (left,) = await sql(database, "SELECT array_agg(id ORDER BY id) AS ids FROM jobs")
    assert left["ids"] == ids[2:]
    await sql(database, "UPDATE jobs SET finished_at = now() - interval '1 minute'")
    assert await forget(database) == 0


async def ended_follow_ups(database: Database, *followers: NewJob) -> list[JobId]:
    """A request whose job is done, and jobs that follow from it, done eleven minutes ago; their ids."""
    with from_request(f"r{uuid4()}"):
        await put(database, job())
    held = await must_take(database)
    with from_job(held):
        ids = await put(database, *followers)
    await finished(database, held)
    for _ in ids:
        await finished(database, await must_take(database))
    await sql(database, "UPDATE jobs SET finished_at = now() - interval '11 minutes'")
    return ids


async def left(database: Database, ids: list[JobId]) -> list[JobId]:
    rows = await sql(
        database, "SELECT id FROM jobs WHERE id = ANY(%(ids)s::bigint[]) ORDER BY id", ids=ids
    )
    return [row["id"] for row in rows]


async def test_what_follows_from_a_write_is_forgotten_minutes_after_its_end(
    database: Database,
) -> None:
    kinds = (JobKind.RENDER, JobKind.PAGE_WORDS, JobKind.DEDUP)
    ids = await ended_follow_ups(database, *(job(kind=kind) for kind in kinds))
    await sql(database, "UPDATE jobs SET finished_at = now() - interval '9 minutes'")
    assert await forget(database) == 0
    await sql(database, "UPDATE jobs SET finished_at = now() - interval '11 minutes'")
    assert await forget(database) == 3
    assert await left(database, ids) == []


async def test_jobs_that_prove_a_deletion_or_are_named_in_a_proof_are_kept_as_long_as_requested_ones(
    database: Database,
) -> None:
    kinds = (JobKind.PURGE, JobKind.COMPACT, JobKind.GARBAGE, JobKind.READ_IMAGE)
    ids = await ended_follow_ups(database, *(job(kind=kind) for kind in kinds))
    assert await forget(database) == 0
    assert await left(database, ids) == ids


async def test_a_drawing_that_a_person_requested_or_that_has_a_warning_is_kept(
    database: Database,
) -> None:
    ids = await ended_follow_ups(database, job(kind=JobKind.RENDER), job(kind=JobKind.RENDER))
    await sql(
        database,
        """UPDATE jobs SET warnings = '["page 2 could not be drawn"]' WHERE id = %(id)s""",
        id=ids[0],
    )
    (requested,) = await put(database, job(kind=JobKind.RENDER))
    await finished(database, await must_take(database))
    await sql(database, "UPDATE jobs SET finished_at = now() - interval '11 minutes'")
    assert await forget(database) == 1
    assert await left(database, [*ids, requested]) == [ids[0], requested]


async def test_what_follows_is_kept_while_its_group_has_open_jobs(database: Database) -> None:
    with from_request("r1"):
        await put(database, job(), job())
    held = await must_take(database)
    with from_job(held):
        await put(database, job(kind=JobKind.RENDER, priority=100))
    await finished(database, held)
    await finished(database, await must_take(database))
    await sql(
        database,
        "UPDATE jobs SET finished_at = now() - interval '30 minutes' WHERE kind = 'render'",
    )
    assert await forget(database) == 0
    await finished(database, await must_take(database))
    assert await forget(database) == 1


async def test_the_database_itself_refuses_two_running_jobs_of_one_key(database: Database) -> None:
    await put(database, job(doc_key="k"), job(doc_key="k"))
    with pytest.raises(UniqueViolation):
        await sql(database, "UPDATE jobs SET state = 'running'")
