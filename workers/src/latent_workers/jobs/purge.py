"""Purge: remove what superseded generations and deleted documents left in the stores, and say what that was."""

from __future__ import annotations

from dataclasses import asdict

from latent_core.generations.delete import (
    LEASES_TO_WAIT,
    PurgePayload,
    delete_records,
    enqueue_collection,
)
from latent_core.generations.purge import purge_points, purge_rows
from latent_core.processes.crash import crash_point
from latent_core.queue.context import JobContext
from latent_core.queue.finish import finish, hold
from latent_core.registry.connection import Connection
from latent_workers.deps import Deps
from latent_workers.jobs.compact import enqueue_forgetting


async def purge(ctx: JobContext, deps: Deps) -> None:
    """Records that vanished, then points, then rows; blobs that rows referred to are looked at later."""
    payload = PurgePayload.model_validate(ctx.job.payload)
    stack, container_id, lease = deps.stack, ctx.job.container_id, deps.settings.lease_seconds
    await delete_records(
        stack.db,
        container_id,
        payload.records,
        principal=ctx.job.principal,
        lease_seconds=lease,
        checkpoint=ctx.checkpoint,
    )
    crash_point("purge.before_points")
    points = await purge_points(stack.db, stack.vectors, container_id, payload, ctx.checkpoint)
    crash_point("purge.after_points")

    async def write(conn: Connection) -> None:
        await hold(conn, ctx.job)
        purged = await purge_rows(conn, payload)
        proof = {"points": points, **asdict(purged), "attempt": ctx.job.attempts}
        if (
            purged.blob_refs or payload.only
        ):  # what never became live has references of its own nowhere
            proof["collection_job"] = await enqueue_collection(
                conn, principal=ctx.job.principal, delay_seconds=LEASES_TO_WAIT * lease
            )
        if payload.forget:
            proof["compaction_job"] = await enqueue_forgetting(
                conn,
                container_id,
                principal=ctx.job.principal,
                delay_seconds=LEASES_TO_WAIT * lease,
            )
        await finish(conn, ctx.job, result=proof)
        crash_point("purge.before_commit")

    await ctx.transact(write)
    crash_point("purge.after_commit")
