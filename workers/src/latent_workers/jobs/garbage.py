"""Garbage: remove unreferenced blobs and late points of removed spaces; run again for blobs that are too young."""

from __future__ import annotations

from typing import Final

from latent_core.db.blobs import blobs as rows
from latent_core.db.connection import Connection
from latent_core.ingest.delete import LEASES_TO_WAIT, enqueue_collection
from latent_core.ingest.purge import purge_blobs, purge_former_tenants
from latent_core.queue.context import JobContext
from latent_core.queue.finish import finish
from latent_workers.deps import Deps

A_DAY: Final = 86_400.0
"""Seconds for which uploads and finished jobs keep bytes."""


async def garbage(ctx: JobContext, deps: Deps) -> None:
    """Removes blobs that were not touched for two leases: no running job can refer to them any more."""
    stack = deps.stack
    older = LEASES_TO_WAIT * deps.settings.lease_seconds
    removed = await purge_blobs(
        stack.db, stack.blobs, older_than_seconds=older, checkpoint=ctx.checkpoint
    )
    await purge_former_tenants(stack.db, stack.vectors, ctx.checkpoint)

    async def write(conn: Connection) -> None:
        await finish(conn, ctx.job, result={"blobs": removed})
        seconds = await _next(conn, older)
        if seconds is not None:
            await enqueue_collection(conn, principal=ctx.job.principal, delay_seconds=seconds)

    await ctx.transact(write)


async def _next(conn: Connection, older: float) -> float | None:
    """Seconds until there may be something to remove; None if nothing that is stored can become garbage by itself."""
    if await rows.unreferenced(conn, 0.0, 1):
        return older
    return A_DAY if await rows.kept_for_now(conn) else None
