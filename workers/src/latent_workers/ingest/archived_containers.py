"""Documents of an archived container wait until it is active again."""

from __future__ import annotations

from typing import Final

from latent_core.db import containers
from latent_core.db.connection import Connection
from latent_core.db.containers import Container
from latent_core.domain.container import ContainerState
from latent_core.domain.errors import NotFound
from latent_core.queue.context import JobContext
from latent_core.queue.requeue import requeue_with
from latent_workers.deps import Deps

SECONDS_BETWEEN_LOOKS: Final = 300.0


async def unless_archived(ctx: JobContext, deps: Deps) -> Container | None:
    """The job's container, or None when the job was put back, for a while and with all its attempts: nothing is
    published by it now. ``NotFound`` without the container."""
    async with deps.stack.db.reading() as conn:
        container = await containers.get(conn, ctx.job.container_id)
    if container is None:
        raise NotFound(f"container '{ctx.job.container_id}' does not exist any more")
    if container.state is not ContainerState.ARCHIVED:
        return container

    async def write(conn: Connection) -> None:
        await requeue_with(conn, ctx.job, ctx.job.payload, delay_seconds=SECONDS_BETWEEN_LOOKS)

    await ctx.transact(write)
    return None
