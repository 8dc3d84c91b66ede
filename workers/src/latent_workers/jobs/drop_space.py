"""Drop a space: what is not searched any more goes when it has been kept long enough, or was given up."""

from __future__ import annotations

from latent_core.queue.context import JobContext
from latent_core.refresh.lifecycle import may_be_dropped, remove_space
from latent_core.runtime.failpoint import failpoint
from latent_workers.deps import Deps


async def drop_space(ctx: JobContext, deps: Deps) -> None:
    """Nothing is done to a space that is in use again, or that is kept longer by now: another job comes for it."""
    stack = deps.stack
    space_id = int(ctx.job.payload["space_id"])
    async with stack.db.transaction() as conn:
        space = await may_be_dropped(conn, ctx.job.container_id, space_id)
    if space is not None:
        failpoint("space.before_drop")
        await remove_space(stack.db, stack.vectors, space, ctx.checkpoint)
        failpoint("space.after_drop")
