"""Have near-duplicates judged: word is left in the transaction that changes what is visible, a job follows."""

from __future__ import annotations

from typing import Final

from latent_core.db.connection import Connection
from latent_core.db.documents import duplicates
from latent_core.domain.job import PRIORITY_LATER, JobKind, NewJob
from latent_core.queue.enqueue import ensure_queued

DELAY_SECONDS: Final = 2.0
"""What changes within it is judged together."""


async def enqueue_dedup_pending(conn: Connection, container_id: str, *, principal: str) -> None:
    """Enqueue the one job of the container that judges what is left to be judged, whoever left it."""
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
    """Have all verdicts of a container given again: the threshold has changed, or the vectors have."""
    await duplicates.leave_all(conn, container_id)
    await enqueue_dedup_pending(conn, container_id, principal=principal)
