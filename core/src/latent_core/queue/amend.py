"""A running job's payload is amended: what it found out is kept for its next attempt, and seen by others."""

from __future__ import annotations

from typing import Any, Final

from psycopg.types.json import Jsonb

from latent_core.domain.job import ClaimedJob
from latent_core.queue.finish import fenced, lease_lost
from latent_core.registry.connection import Connection

AMEND: Final = """
UPDATE jobs SET payload = %(payload)s WHERE id = %(id)s AND claim_id = %(claim_id)s AND state = 'running'
"""


async def amend(conn: Connection, job: ClaimedJob, payload: dict[str, Any]) -> None:
    """Replace ``job``'s payload while it runs. Doing it twice is harmless. ``LeaseLost``."""
    if not await fenced(conn, AMEND, job, payload=Jsonb(payload)):
        raise lease_lost(job)
