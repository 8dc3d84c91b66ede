"""Delete a container: it is already invisible; remove it from every store."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from latent_core.bm25 import postings
from latent_core.db import containers
from latent_core.db.connection import Connection
from latent_core.db.doctor import deletion_proofs
from latent_core.db.transfer import archives
from latent_core.domain.errors import NotFound, Unavailable
from latent_core.ingest.containers import check_gone
from latent_core.ingest.delete import LEASES_TO_WAIT, enqueue_collection
from latent_core.ingest.purge import purge_container
from latent_core.queue import admin
from latent_core.queue.context import JobContext
from latent_core.queue.finish import finish, hold
from latent_core.queue.lease import amend
from latent_core.queue.reaper import forget_container
from latent_core.refresh.lifecycle import may_be_dropped, remove_space
from latent_core.runtime.failpoint import failpoint
from latent_workers.deps import Deps
from latent_workers.jobs.purge import kept_words

COUNTED: Final = "counted"
"""Key in the job's payload."""


async def delete_container(ctx: JobContext, deps: Deps) -> None:
    """Cancel the container's other jobs, wait until none runs, then remove collections, rows, postings and jobs."""
    stack, container_id = deps.stack, ctx.job.container_id
    async with stack.db.transaction() as conn:
        await hold(conn, ctx.job)
        await check_gone(conn, container_id)
        running = await admin.cancel_all(conn, container_id, but=ctx.job.id)
    if running:
        raise Unavailable(
            f"{running} jobs of container '{container_id}' are still running; it is removed when they have ended",
            retry_after=1.0,
        )
    proof = await _proof(ctx, deps)
    await purge_container(
        stack.db, stack.vectors, container_id, ctx.checkpoint, lambda conn: hold(conn, ctx.job)
    )
    await _forget_jobs(ctx, deps)

    async def write(conn: Connection) -> None:
        await finish(conn, ctx.job, warnings=kept_words(proof["archives_kept"]), result=proof)
        await postings.drop(conn, container_id)
        await containers.remove(conn, container_id)
        await enqueue_collection(
            conn,
            principal=ctx.job.principal,
            delay_seconds=LEASES_TO_WAIT * deps.settings.lease_seconds,
        )
        failpoint("drop.before_commit")

    await ctx.transact(write)
    failpoint("drop.after_commit")


async def _proof(ctx: JobContext, deps: Deps) -> dict[str, Any]:
    """The contents to be removed, and the archives that remain. The first attempt counts them and keeps the counts:
    an attempt after a crash finds only the rest."""
    container_id, points = ctx.job.container_id, 0
    if counted := ctx.job.payload.get(COUNTED):
        return {**counted, "attempt": ctx.job.attempts}
    async with deps.stack.db.transaction() as conn:
        spaces = await containers.spaces(conn, container_id)
        found = await deletion_proofs.of_container(conn, container_id)
        kept = await archives.containing(conn, container_id)
    for collection in dict.fromkeys(space.collection() for space in spaces):
        with suppress(NotFound):  # an attempt before this one dropped it
            points += await deps.stack.vectors.count(collection)
    proof = {"points": points, **found, "attempt": ctx.job.attempts, "archives_kept": kept}

    async def write(conn: Connection) -> None:
        await hold(conn, ctx.job)
        await amend(conn, ctx.job, {**ctx.job.payload, COUNTED: proof})

    await ctx.transact(write)
    return proof


async def _forget_jobs(ctx: JobContext, deps: Deps) -> None:
    gone = 1
    while gone:
        await ctx.checkpoint()
        async with deps.stack.db.transaction() as conn:
            await hold(conn, ctx.job)
            gone = await forget_container(conn, ctx.job.container_id)


async def drop_space(ctx: JobContext, deps: Deps) -> None:
    """Does nothing to a space that is in use again or has a longer retention: another job removes it."""
    stack = deps.stack
    space_id = int(ctx.job.payload["space_id"])
    async with stack.db.transaction() as conn:
        space = await may_be_dropped(conn, ctx.job.container_id, space_id)
    if space is not None:
        failpoint("space.before_drop")
        await remove_space(stack.db, stack.vectors, space, ctx.checkpoint)
        failpoint("space.after_drop")
