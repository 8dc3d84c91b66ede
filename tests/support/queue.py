"""Short words for tests about jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from latent_core.db.connection import Database
from latent_core.domain.ids import JobId
from latent_core.domain.job import ClaimedJob, JobKind, JobView, NewJob
from latent_core.queue import admin, clock
from latent_core.queue.claim import claim
from latent_core.queue.enqueue import enqueue_many
from latent_core.queue.finish import finish
from latent_core.queue.lease import HeldClaim
from latent_core.queue.reaper import reap

WAIT_SECONDS = 20.0


def job(container_id: str = "a", **fields: Any) -> NewJob:
    return NewJob(**{"kind": JobKind.INGEST, "container_id": container_id} | fields)


async def put(db: Database, *jobs: NewJob) -> list[JobId]:
    """Enqueue ``jobs``, a plain one if none is given."""
    async with db.transaction() as conn:
        return await enqueue_many(conn, jobs or [job()])


async def take(db: Database, *, worker: str = "w") -> ClaimedJob | None:
    return await claim(db, worker=worker, lease_seconds=60)


async def must_take(db: Database, *, worker: str = "w") -> ClaimedJob:
    taken = await take(db, worker=worker)
    assert taken is not None
    return taken


async def take_all(db: Database) -> list[ClaimedJob]:
    taken = []
    while (next_job := await take(db)) is not None:
        taken.append(next_job)
    return taken


async def must_hold(db: Database, *, lease_seconds: float = 30.0) -> HeldClaim:
    """Enqueue a job and claim it, without a heartbeat."""
    await put(db)
    since = clock.now()
    held = await claim(db, worker="w", lease_seconds=lease_seconds)
    assert held is not None
    return HeldClaim(held, lease_seconds=lease_seconds, since=since)


async def finished(db: Database, held: ClaimedJob) -> None:
    async with db.transaction() as conn:
        await finish(conn, held)


async def view(db: Database, job_id: int) -> JobView:
    async with db.transaction() as conn:
        return await admin.get(conn, job_id)


async def history(db: Database, job_id: int) -> list[str]:
    async with db.transaction() as conn:
        return [event.event for event in await admin.events(conn, job_id)]


async def sql(db: Database, statement: str, **parameters: Any) -> list[dict[str, Any]]:
    async with db.transaction() as conn:
        cursor = await conn.execute(statement, parameters)
        return await cursor.fetchall() if cursor.description else []


async def expire(db: Database, *ids: int) -> None:
    """Let the leases of these jobs run out."""
    statement = "UPDATE jobs SET lease_expires = now() - interval '1s' WHERE id = ANY(%(ids)s)"
    await sql(db, statement, ids=[*ids])


async def let_delays_pass(db: Database) -> None:
    await sql(db, "UPDATE jobs SET run_at = now() WHERE waits_for = 'time'")


async def lose(db: Database) -> ClaimedJob:
    """Claim a job, let the lease run out and the reaper take it back."""
    held = await must_take(db)
    await expire(db, held.id)
    await reap(db)
    return held


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait for ``condition``, at most twenty seconds."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            answer = condition()
            if answer if isinstance(answer, bool) else await answer:
                return
            await asyncio.sleep(0.01)
