"""Rows of schedules, and expired documents."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from psycopg.rows import DictRow

from latent_core.db.connection import Connection
from latent_core.domain.manifest.model import first_due

# One process at a time runs the schedules; a second one has nothing to do.
TRY_LOCK: Final = "SELECT pg_try_advisory_xact_lock(7804) AS mine, now() AS now"

SELECT: Final = "SELECT container_id, task, cron, last_at FROM schedules WHERE task = %(task)s"

KEEP: Final = """
INSERT INTO schedules (container_id, task, cron, last_at)
VALUES (%(container_id)s, %(task)s, %(cron)s, %(last_at)s)
ON CONFLICT (container_id, task) DO UPDATE SET cron = excluded.cron, last_at = excluded.last_at
"""

DROP: Final = "DELETE FROM schedules WHERE container_id = %(container_id)s AND task = %(task)s"

# A backup is an export job that keeps its archive; one that verifies a backup makes none. Jobs that failed are kept for
# a month.
BACKUPS: Final = """
SELECT s.cron, s.last_at, now() AS now,
       (SELECT max(a.created_at) FROM archives a WHERE a.kind = 'backup' AND a.container_id = s.container_id) AS made_at,
       j.waits_since, j.failed_at
FROM schedules s
CROSS JOIN LATERAL (
    SELECT min(created_at) FILTER (WHERE state IN ('queued', 'running')) AS waits_since,
           max(finished_at) FILTER (WHERE state = 'failed') AS failed_at
    FROM jobs
    WHERE container_id = s.container_id AND state IN ('queued', 'running', 'failed') AND kind = 'export'
      AND payload @> '{"kept": true, "verify": null}'
) j
WHERE s.task = 'backup'
"""

# Records expire with their corpus; documents that were never fetched have no age. A document with an accepted newer
# version does not expire: its deletion would remove that version too.
EXPIRED: Final = """
SELECT id, uri FROM documents d
WHERE container_id = %(container_id)s AND parent_id IS NULL AND deleted_at IS NULL AND live_generation IS NOT NULL
  AND CASE WHEN %(days)s::integer IS NULL THEN expires_at < now()
           ELSE fetched_at < now() - make_interval(days => %(days)s) END
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.doc_id = d.id AND j.kind IN ('ingest', 'corpus')
                  AND j.state IN ('queued', 'running'))
ORDER BY id
LIMIT %(limit)s
"""

PAST_EXPIRY: Final = """
SELECT DISTINCT d.container_id FROM documents d JOIN containers c ON c.id = d.container_id
WHERE d.expires_at < now() AND d.deleted_at IS NULL AND d.live_generation IS NOT NULL AND c.state = 'active'
ORDER BY d.container_id
"""

STILL_EXPIRED: Final = """
SELECT id, uri FROM documents d
WHERE id = ANY(%(ids)s) AND deleted_at IS NULL
  AND CASE WHEN %(days)s::integer IS NULL THEN expires_at < now()
           ELSE fetched_at < now() - make_interval(days => %(days)s) END
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.doc_id = d.id AND j.kind IN ('ingest', 'corpus')
                  AND j.state IN ('queued', 'running'))
"""


@dataclass(frozen=True, slots=True)
class BackupSummary:
    """The scheduled backups of all containers."""

    scheduled: int
    failed: int
    """Containers whose last backup failed."""
    overdue_seconds: float
    """Age of the oldest one that is due and not made: it waits, runs, or was never enqueued."""
    oldest_success: float
    """Unix time of the last backup, of the container where that is longest ago; 0 without any."""


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


async def backups(conn: Connection) -> BackupSummary:
    """For metrics."""
    rows = await (await conn.execute(BACKUPS)).fetchall()
    made = [row["made_at"] for row in rows if row["made_at"] is not None]
    return BackupSummary(
        scheduled=len(rows),
        failed=sum(_last_failed(row["failed_at"], row["made_at"]) for row in rows),
        overdue_seconds=max((_overdue_seconds(row) for row in rows), default=0.0),
        oldest_success=min(made).timestamp() if made else 0.0,
    )


def _last_failed(failed_at: datetime | None, made_at: datetime | None) -> bool:
    return failed_at is not None and (made_at is None or failed_at > made_at)


def _overdue_seconds(row: DictRow) -> float:
    """A schedule's ``last_at`` is the time up to which due backups were enqueued."""
    since = (row["waits_since"], first_due(row["cron"], row["last_at"]))
    return max(0.0, *(float((row["now"] - at).total_seconds()) for at in since if at is not None))


async def containers_past_expiry(conn: Connection) -> list[str]:
    """Active containers with documents past their own expiry."""
    cursor = await conn.execute(PAST_EXPIRY)
    return [row["container_id"] for row in await cursor.fetchall()]


async def expired(
    conn: Connection, container_id: str, days: int | None, limit: int
) -> dict[UUID, str]:
    """Documents not fetched or confirmed unchanged for so many days, or with None past their own expiry; each with its
    uri."""
    values = {"container_id": container_id, "days": days, "limit": limit}
    return {r["id"]: r["uri"] for r in await (await conn.execute(EXPIRED, values)).fetchall()}


async def still_expired(conn: Connection, ids: list[UUID], days: int | None) -> dict[UUID, str]:
    """Those of ``ids`` that are still expired. Lock them first."""
    cursor = await conn.execute(STILL_EXPIRED, {"ids": ids, "days": days})
    return {r["id"]: r["uri"] for r in await cursor.fetchall()}
