"""Compact: merge the small posting rows that publications wrote (FACTS §1)."""

from __future__ import annotations

from latent_core.domain.job import PRIORITY_LATER, JobKind, NewJob
from latent_core.keywords.compaction import compact as merge, needed
from latent_core.queue.context import JobContext
from latent_core.queue.enqueue import enqueue
from latent_core.registry.connection import Connection
from latent_workers.deps import Deps


async def compact(ctx: JobContext, deps: Deps) -> None:
    """One compaction of the job's container."""
    await merge(deps.stack.db, ctx.job.container_id, ctx.checkpoint)


async def enqueue_if_needed(conn: Connection, container_id: str) -> None:
    """Enqueue a compaction when enough small rows have gathered; one that is queued already is enough."""
    if await needed(conn, container_id):
        await enqueue(
            conn,
            NewJob(
                kind=JobKind.COMPACT,
                container_id=container_id,
                doc_key=f"compact:{container_id}",
                dedupe_key=f"compact:{container_id}",
                priority=PRIORITY_LATER,
            ),
        )
