"""Compact: merge the small posting rows that publications wrote (FACTS §1)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pydantic import BaseModel, ConfigDict

from latent_core.bm25.compaction import RULES, compact as merge
from latent_core.bm25.packing import MAX_CHUNK_NO
from latent_core.db.connection import Connection
from latent_core.domain.errors import Unavailable
from latent_core.domain.ids import JobId
from latent_core.domain.job import PRIORITY_LATER, JobKind, NewJob
from latent_core.queue.context import JobContext
from latent_core.queue.enqueue import enqueue
from latent_core.queue.finish import finish
from latent_workers.deps import Deps

ALL_THAT_IS_DEAD: Final = replace(RULES, dead_chunks=1, dead_share=MAX_CHUNK_NO)
"""However few they are."""


class CompactPayload(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    forget: bool = False
    """Also drop postings of dead chunks that are too few otherwise."""


async def compact(ctx: JobContext, deps: Deps) -> None:
    """One compaction of the job's container."""
    payload = CompactPayload.model_validate(ctx.job.payload)
    rules = ALL_THAT_IS_DEAD if payload.forget else RULES
    report = await merge(deps.stack.db, ctx.job.container_id, ctx.checkpoint, rules)
    if report.skipped and payload.forget:
        raise Unavailable("another compaction is running; deleted postings are removed after it")
    result = {"dropped_chunks": report.dropped_chunks, "rows": report.rows_after}
    await ctx.transact(lambda conn: finish(conn, ctx.job, result=result))


async def enqueue_forgetting(
    conn: Connection, container_id: str, *, principal: str, delay_seconds: float
) -> JobId:
    """Drop the postings of deleted documents soon; one run covers all deletions until then."""
    return await enqueue(
        conn,
        NewJob(
            kind=JobKind.COMPACT,
            container_id=container_id,
            doc_key=f"compact:{container_id}",
            dedupe_key=f"forget:{container_id}",
            payload={"forget": True},
            priority=PRIORITY_LATER,
            delay_seconds=delay_seconds,
            max_attempts=20,
            principal=principal,
        ),
    )
