"""Finished jobs are forgotten after a while, with their events."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from latent_core.db.connection import Connection, Database
from latent_core.domain.job import JobState

KEPT: Final = {
    JobState.DONE: timedelta(hours=24),
    JobState.CANCELLED: timedelta(hours=24),
    JobState.FAILED: timedelta(days=30),
}
JOBS_PER_BATCH: Final = 1000

FORGET: Final = """
WITH old AS MATERIALIZED (
    SELECT id FROM jobs
    WHERE state = %(state)s AND state IN ('done', 'failed', 'cancelled')
      AND finished_at < now() - %(kept)s::interval
    ORDER BY finished_at
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
)
DELETE FROM jobs WHERE id = ANY (ARRAY(SELECT id FROM old))
"""

FORGET_CONTAINER: Final = """
WITH old AS MATERIALIZED (
    SELECT id FROM jobs
    WHERE container_id = %(container_id)s AND state IN ('done', 'failed', 'cancelled')
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
)
DELETE FROM jobs WHERE id = ANY (ARRAY(SELECT id FROM old))
"""


async def forget(db: Database) -> int:
    """Delete jobs that finished long ago, a short transaction a batch; how many."""
    total = 0
    for state, kept in KEPT.items():
        while gone := await _forget_batch(db, state, kept):
            total += gone
            if gone < JOBS_PER_BATCH:
                break
    return total


async def _forget_batch(db: Database, state: JobState, kept: timedelta) -> int:
    async with db.transaction() as conn:
        cursor = await conn.execute(FORGET, {"state": state, "kept": kept, "limit": JOBS_PER_BATCH})
        return cursor.rowcount


async def forget_container(conn: Connection, container_id: str) -> int:
    """Delete ended jobs of a container that is being deleted, a batch of them: nobody can see or requeue them,
    and they would keep its bytes. How many."""
    parameters = {"container_id": container_id, "limit": JOBS_PER_BATCH}
    return (await conn.execute(FORGET_CONTAINER, parameters)).rowcount
