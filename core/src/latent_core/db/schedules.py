"""Rows of schedules, and expired documents."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

from latent_core.db.connection import Connection

# One process at a time runs the schedules; a second one has nothing to do.
TRY_LOCK: Final = "SELECT pg_try_advisory_xact_lock(7804) AS mine, now() AS now"

SELECT: Final = "SELECT container_id, task, cron, last_at FROM schedules WHERE task = %(task)s"

KEEP: Final = """
INSERT INTO schedules (container_id, task, cron, last_at)
VALUES (%(container_id)s, %(task)s, %(cron)s, %(last_at)s)
ON CONFLICT (container_id, task) DO UPDATE SET cron = excluded.cron, last_at = excluded.last_at
"""

DROP: Final = "DELETE FROM schedules WHERE container_id = %(container_id)s AND task = %(task)s"

# Records expire with their corpus; documents that were never fetched have no age. A document with an accepted newer
# version does not expire: its deletion would remove that version too.
EXPIRED: Final = """
SELECT id, uri FROM documents d
WHERE container_id = %(container_id)s AND parent_id IS NULL AND deleted_at IS NULL AND live_generation IS NOT NULL
  AND fetched_at < now() - make_interval(days => %(days)s)
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.doc_id = d.id AND j.kind IN ('ingest', 'corpus')
                  AND j.state IN ('queued', 'running'))
ORDER BY id
LIMIT %(limit)s
"""

STILL_EXPIRED: Final = """
SELECT id, uri FROM documents d
WHERE id = ANY(%(ids)s) AND deleted_at IS NULL AND fetched_at < now() - make_interval(days => %(days)s)
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.doc_id = d.id AND j.kind IN ('ingest', 'corpus')
                  AND j.state IN ('queued', 'running'))
"""


async def try_lock(conn: Connection) -> datetime | None:
    """The database's time, or None if another process runs the schedules; the lock ends with the transaction."""
    row = await (await conn.execute(TRY_LOCK)).fetchone()
    return row["now"] if row is not None and row["mine"] else None


async def kept(conn: Connection, task: str) -> dict[str, dict[str, Any]]:
    """By container: the cron expression, and the time up to which it was processed."""
    cursor = await conn.execute(SELECT, {"task": task})
    return {r["container_id"]: r for r in await cursor.fetchall()}


async def keep(
    conn: Connection, container_id: str, task: str, cron: str, last_at: datetime
) -> None:
    values = {"container_id": container_id, "task": task, "cron": cron, "last_at": last_at}
    await conn.execute(KEEP, values)


async def drop(conn: Connection, container_id: str, task: str) -> None:
    await conn.execute(DROP, {"container_id": container_id, "task": task})


async def expired(conn: Connection, container_id: str, days: int, limit: int) -> dict[UUID, str]:
    """Documents not fetched or confirmed unchanged for so many days; each with its uri."""
    values = {"container_id": container_id, "days": days, "limit": limit}
    return {r["id"]: r["uri"] for r in await (await conn.execute(EXPIRED, values)).fetchall()}


async def still_expired(conn: Connection, ids: list[UUID], days: int) -> dict[UUID, str]:
    """Those of ``ids`` that are still expired. Lock them first."""
    cursor = await conn.execute(STILL_EXPIRED, {"ids": ids, "days": days})
    return {r["id"]: r["uri"] for r in await cursor.fetchall()}
