"""Jobs by what a person requested, and the causes of jobs that wait."""

from __future__ import annotations

from latent_core.db.connection import Database
from latent_core.domain.errors import ServiceUnreachable, Unavailable
from latent_core.domain.job import ClaimedJob, JobKind, JobState
from latent_core.queue import groups, waiting
from latent_core.queue.finish import fail
from latent_core.queue.origin import from_job, from_request
from latent_core.queue.reaper import forget
from latent_core.queue.requeue import retry_or_fail
from tests.support.queue import finished, job, must_take, put, sql


async def listed(
    database: Database,
    *containers: str,
    states: list[JobState] | None = None,
    cursor: str | None = None,
) -> groups.GroupPage:
    async with database.transaction() as conn:
        return await groups.listed(
            conn, container_ids=containers or ("a",), states=states, limit=2, cursor=cursor
        )


async def failed(database: Database, held: ClaimedJob, message: str) -> None:
    async with database.transaction() as conn:
        await fail(conn, held, Unavailable(message).issue())


async def test_jobs_of_one_request_are_one_group_with_what_follows_from_them(
    database: Database,
) -> None:
    with from_request("r1"):
        await put(database, job(), job())
        await put(database, job())
    held = await must_take(database)
    with from_job(held):
        await put(database, job(kind=JobKind.RENDER), job(kind=JobKind.COMPACT))
    await finished(database, held)
    (group,) = (await listed(database)).groups
    assert (group.jobs.queued, group.jobs.done, group.followers.queued) == (2, 1, 2)
    assert group.state is JobState.QUEUED
    assert group.lead is not None
    assert group.lead.kind is JobKind.INGEST


async def test_what_follows_from_a_follower_belongs_to_the_first_request(
    database: Database,
) -> None:
    with from_request("r1"):
        await put(database)
    first = await must_take(database)
    with from_job(first):
        await put(database, job(kind=JobKind.EXTRACT))
    await finished(database, first)
    second = await must_take(database)
    with from_job(second):
        await put(database, job(kind=JobKind.COMPACT))
    (group,) = (await listed(database)).groups
    assert (group.jobs.done, group.followers.running, group.followers.queued) == (1, 1, 1)


async def test_one_request_id_of_two_principals_makes_two_groups(database: Database) -> None:
    with from_request("batch x"):
        await put(database, job(principal="agent:a"), job(principal="agent:b"))
    found = await listed(database)
    assert sorted(group.principal for group in found.groups) == ["agent:a", "agent:b"]


async def test_groups_that_no_person_requested_are_not_listed(database: Database) -> None:
    await put(database, job(kind=JobKind.COMPACT))
    await put(database, job(kind=JobKind.EXPORT))
    (group,) = (await listed(database)).groups
    assert group.kind is JobKind.EXPORT


async def test_a_queued_job_that_is_requested_again_moves_to_the_newer_group(
    database: Database,
) -> None:
    again = job(dedupe_key="k")
    with from_request("old"):
        await put(database, again)
    (old,) = (await listed(database)).groups
    with from_request("new"):
        await put(database, again)
    (new,) = (await listed(database)).groups
    assert new.group_id > old.group_id
    assert new.jobs.queued == 1


async def test_the_first_failure_is_the_cause_of_its_group_and_only_its_jobs_are_requeued(
    database: Database,
) -> None:
    with from_request("r1"):
        ids = await put(database, job(max_attempts=1), job())
    with from_request("r2"):
        await put(database, job())
    await failed(database, await must_take(database), "the lamp is broken")
    page = await listed(database, states=[JobState.FAILED])
    (group,) = page.groups
    assert group.cause is not None
    assert group.cause.message == "the lamp is broken"
    assert group.state is JobState.QUEUED, "one of its jobs is still open"
    async with database.transaction() as conn:
        dead = await groups.dead_letters(conn, int(group.group_id), "a", limit=10)
        other = await groups.dead_letters(conn, int(group.group_id) + 1, "a", limit=10)
        members = await groups.jobs_of(conn, int(group.group_id), container_ids=["a"], limit=10)
        hidden = await groups.jobs_of(conn, int(group.group_id), container_ids=["b"], limit=10)
    assert (dead, other) == ([ids[0]], [])
    assert [one.job_id for one in members.jobs] == sorted(ids, reverse=True)
    assert hidden.jobs == []


async def test_pages_of_groups_follow_each_other_without_gaps(database: Database) -> None:
    for request in range(5):
        with from_request(f"r{request}"):
            await put(database, job("a" if request % 2 else "b"))
    seen: list[int] = []
    cursor: str | None = None
    for _ in range(3):
        page = await listed(database, "a", "b", cursor=cursor)
        seen += [int(group.group_id) for group in page.groups]
        cursor = page.next_cursor
    assert cursor is None
    assert seen == sorted(seen, reverse=True)
    assert len(seen) == 5


async def test_batches_are_deleted_after_their_jobs(database: Database) -> None:
    await put(database, job())
    await put(database, job())
    await finished(database, await must_take(database))
    await sql(
        database, "UPDATE jobs SET finished_at = now() - interval '2 days' WHERE state = 'done'"
    )
    await sql(database, "UPDATE job_batches SET created_at = now() - interval '2 days'")
    await forget(database)
    assert len(await sql(database, "SELECT id FROM job_batches")) == 1


async def test_waiting_jobs_say_what_they_wait_for_and_why(database: Database) -> None:
    await put(database, *[job() for _ in range(4)])
    for error in (ServiceUnreachable("the model rests"), ServiceUnreachable("the model rests")):
        await retry_or_fail(database, await must_take(database), error)
    await retry_or_fail(database, await must_take(database), Unavailable("once more"))
    async with database.transaction() as conn:
        state = await waiting.queue_state(conn)
        workers = await waiting.workers(conn)
    assert (state.in_line, state.for_time, state.for_key) == (1, 3, 0)
    outage, retry = state.causes
    assert (outage.message, outage.jobs, outage.outage) == ("the model rests", 2, True)
    assert outage.since is not None
    assert (retry.message, retry.jobs, retry.outage) == ("once more", 1, False)
    assert workers == []
