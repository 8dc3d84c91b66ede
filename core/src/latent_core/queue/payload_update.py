"""A running job's payload is amended: what it found out is kept for its next attempt, and seen by others."""

from __future__ import annotations

from typing import Any, Final

from psycopg.types.json import Jsonb

from latent_core.db.connection import Connection
from latent_core.domain.job import ClaimedJob
from latent_core.queue.finish import fenced, lease_lost

AMEND: Final = """
UPDATE jobs SET payload = %(payload)s WHERE id = %(id)s AND claim_id = %(claim_id)s AND state = 'running'
"""


PAYLOAD: Final = """
SELECT payload FROM jobs WHERE id = %(id)s AND claim_id = %(claim_id)s AND state = 'running'
"""


async def payload_of(conn: Connection, job: ClaimedJob) -> dict[str, Any]:
    """``job``'s payload as it stands now: a commit whose answer was lost may have amended it. ``LeaseLost``."""
    cursor = await conn.execute(PAYLOAD, {"id": job.id, "claim_id": job.claim_id})
    row = await cursor.fetchone()
    if row is None:
        raise lease_lost(job)
    found: dict[str, Any] = row["payload"]
    return found


async def amend(conn: Connection, job: ClaimedJob, payload: dict[str, Any]) -> None:
    """Replace ``job``'s payload while it runs. Doing it twice is harmless. ``LeaseLost``."""
    if not await fenced(conn, AMEND, job, payload=Jsonb(payload)):
        raise lease_lost(job)
