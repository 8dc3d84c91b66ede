"""Enqueue the search for near-duplicates, in the transaction that changes what is visible."""

from __future__ import annotations

from typing import Final

from latent_core.db.connection import Connection
from latent_core.db.documents import duplicates
from latent_core.domain.job import PRIORITY_LATER, JobKind, NewJob
from latent_core.queue.enqueue import ensure_queued

DELAY_SECONDS: Final = 2.0
"""Changes within this time are handled by one job."""


async def enqueue_dedup_pending(conn: Connection, container_id: str, *, principal: str) -> None:
    """Enqueue the container's job that checks all pending chunks for duplicates, unless one is queued."""
    await ensure_queued(
        conn,
        NewJob(
            kind=JobKind.DEDUP,
            container_id=container_id,
            doc_key=f"dedup:{container_id}",
            dedupe_key=f"dedup:{container_id}",
            priority=PRIORITY_LATER,
            delay_seconds=DELAY_SECONDS,
            max_attempts=20,
            principal=principal,
        ),
    )


async def enqueue_dedup(conn: Connection, container_id: str, *, principal: str) -> None:
    """Check all chunks of a container again, after its threshold or its vectors changed."""
    await duplicates.leave_all(conn, container_id)
    await enqueue_dedup_pending(conn, container_id, principal=principal)
