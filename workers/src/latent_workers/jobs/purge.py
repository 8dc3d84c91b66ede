"""Purge: remove what superseded generations and deleted documents left in the stores."""

from __future__ import annotations

from typing import Final

from latent_core.generations.delete import PurgePayload, delete_corpus_records
from latent_core.generations.purge import purge_blobs, purge_points, purge_rows
from latent_core.queue.context import JobContext
from latent_workers.deps import Deps

BLOBS_A_PURGE: Final = 1000


async def purge(ctx: JobContext, deps: Deps) -> None:
    """Points first, then rows; the last purge of a deletion sees to the blobs."""
    payload = PurgePayload.model_validate(ctx.job.payload)
    stack, container_id = deps.stack, ctx.job.container_id
    if payload.corpus is not None:
        await _records(ctx, deps, payload)
    await purge_points(stack.db, stack.vectors, container_id, payload, ctx.checkpoint)
    await ctx.checkpoint()
    async with stack.db.transaction() as conn:
        await purge_rows(conn, payload)
    if payload.last:
        # What nobody has touched for two leases is not about to be referred to by anybody who still runs.
        older = 2 * deps.settings.lease_seconds
        await purge_blobs(
            stack.db,
            stack.blobs,
            older_than_seconds=older,
            limit=BLOBS_A_PURGE,
            checkpoint=ctx.checkpoint,
        )


async def _records(ctx: JobContext, deps: Deps, payload: PurgePayload) -> None:
    """Tombstone what is left of a deleted corpus's records; each batch enqueues its own purge."""
    if payload.corpus is None:
        return
    left = 1
    while left:
        await ctx.checkpoint()
        async with deps.stack.db.transaction() as conn:
            left = await delete_corpus_records(
                conn,
                ctx.job.container_id,
                payload.corpus,
                principal=ctx.job.principal,
                lease_seconds=deps.settings.lease_seconds,
            )
