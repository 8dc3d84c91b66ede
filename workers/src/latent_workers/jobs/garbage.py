"""Garbage: remove unreferenced blobs and late points of removed spaces; run again for blobs that are too young."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from latent_core.blobs.port import BlobStore
from latent_core.db.blobs import blobs as rows
from latent_core.db.connection import Connection
from latent_core.domain.errors import TimedOut, Unavailable
from latent_core.ingest.delete import LEASES_TO_WAIT, enqueue_collection
from latent_core.ingest.purge import purge_blobs, purge_former_tenants
from latent_core.queue.context import JobContext
from latent_core.queue.finish import finish
from latent_workers.deps import Deps

logger = logging.getLogger(__name__)

A_DAY: Final = 86_400.0
"""Seconds for which uploads and finished jobs keep bytes."""


async def garbage(ctx: JobContext, deps: Deps) -> None:
    """Removes blobs that were not touched for two leases: no running job can refer to them any more."""
    stack = deps.stack
    older = LEASES_TO_WAIT * deps.settings.lease_seconds
    async with stack.db.transaction() as conn:
        await rows.drop_spent_uploads(conn, older)
        named = await rows.buckets(conn)
    removed = await _purge(ctx, deps, stack.blobs.own, older)
    skipped: list[str] = []
    for bucket in named:
        if await _is_usable(ctx, deps, bucket):
            removed += await _purge(ctx, deps, stack.blobs.of(bucket), older)
        else:
            skipped.append(bucket)
    await purge_former_tenants(stack.db, stack.vectors, ctx.checkpoint)

    async def write(conn: Connection) -> None:
        await finish(conn, ctx.job, result={"blobs": removed})
        seconds = await _next(conn, older, skipped)
        if seconds is not None:
            await enqueue_collection(conn, principal=ctx.job.principal, delay_seconds=seconds)

    await ctx.transact(write)


async def _purge(ctx: JobContext, deps: Deps, store: BlobStore, older: float) -> int:
    return await purge_blobs(
        deps.stack.db, store, older_than_seconds=older, checkpoint=ctx.checkpoint
    )


async def _is_usable(ctx: JobContext, deps: Deps, bucket: str) -> bool:
    """A named bucket that is lost, foreign or refused does not stop the collection in the others."""
    try:
        await deps.stack.blobs.of(bucket).verify()
    except (Unavailable, TimedOut) as error:
        logger.warning("bucket_not_collected", extra={"bucket": bucket, "cause": error.message})
        await ctx.warn(error.issue())
        return False
    return True


async def _next(conn: Connection, older: float, skipped: Collection[str]) -> float | None:
    """Seconds until there may be something to remove, in a day at the latest in ``skipped`` buckets; None if nothing that is stored can become garbage by itself."""
    for bucket in ("", *await rows.buckets(conn)):
        if bucket not in skipped and await rows.unreferenced(conn, bucket, 0.0, 1):
            return older
    return A_DAY if await rows.kept_for_now(conn) else None
