"""Purge: remove what superseded generations and deleted documents left in the stores."""

from __future__ import annotations

from latent_core.generations.delete import (
    LEASES_TO_WAIT,
    PurgePayload,
    delete_records,
    enqueue_collection,
)
from latent_core.generations.purge import purge_points, purge_rows
from latent_core.queue.context import JobContext
from latent_workers.deps import Deps


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
    await purge_points(stack.db, stack.vectors, container_id, payload, ctx.checkpoint)
    await ctx.checkpoint()
    async with stack.db.transaction() as conn:
        purged = await purge_rows(conn, payload)
        if (
            purged.blob_refs or payload.only
        ):  # what never became live has references of its own nowhere
            await enqueue_collection(
                conn, principal=ctx.job.principal, delay_seconds=LEASES_TO_WAIT * lease
            )
