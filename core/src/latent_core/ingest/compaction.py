"""Enqueue the compaction that merges small posting rows."""

from __future__ import annotations

from latent_core.bm25.compaction import needed
from latent_core.db.connection import Connection
from latent_core.domain.job import PRIORITY_LATER, JobKind, NewJob
from latent_core.queue.enqueue import ensure_queued


async def enqueue_if_needed(conn: Connection, container_id: str) -> None:
    """Enqueue a compaction if there are enough small rows and none is queued yet."""
    if await needed(conn, container_id):
        await ensure_queued(
            conn,
            NewJob(
                kind=JobKind.COMPACT,
                container_id=container_id,
                doc_key=f"compact:{container_id}",
                dedupe_key=f"compact:{container_id}",
                priority=PRIORITY_LATER,
            ),
        )
