"""The last run of each principal's long checks, so that any gateway can show how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from psycopg.types.json import Jsonb

from latent_core.db.connection import Connection

# A run that has not ended within its time belongs to a gateway that has stopped, and is replaced.
BEGIN: Final = """
INSERT INTO admin_runs AS r (principal, kind, run_id, request)
VALUES (%(principal)s, %(kind)s, %(run_id)s, %(request)s)
ON CONFLICT (principal, kind) DO UPDATE SET
    run_id = EXCLUDED.run_id, request = EXCLUDED.request, started_at = clock_timestamp(), finished_at = NULL,
    result = NULL, issue = NULL
WHERE r.finished_at IS NOT NULL OR r.started_at < clock_timestamp() - make_interval(secs => %(longest_seconds)s)
"""

END: Final = """
UPDATE admin_runs SET finished_at = clock_timestamp(), result = %(result)s, issue = %(issue)s
WHERE principal = %(principal)s AND kind = %(kind)s AND run_id = %(run_id)s
"""

SELECT: Final = """
SELECT run_id, request, started_at, finished_at, result, issue,
       finished_at IS NULL AND started_at < clock_timestamp() - make_interval(secs => %(longest_seconds)s) AS lost
FROM admin_runs WHERE principal = %(principal)s AND kind = %(kind)s
"""


@dataclass(frozen=True, slots=True)
class AdminRun:
    """One run; ``result`` or ``issue`` once it has ended."""

    run_id: UUID
    request: dict[str, Any]
    started_at: datetime
    finished_at: datetime | None
    result: dict[str, Any] | None
    issue: dict[str, Any] | None
    lost: bool
    """Its gateway stopped before the end."""

    @property
    def is_open(self) -> bool:
        return self.finished_at is None and not self.lost


async def begin(
    conn: Connection,
    *,
    principal: str,
    kind: str,
    run_id: UUID,
    request: dict[str, Any],
    longest_seconds: float,
) -> bool:
    """Whether it may begin: False while the principal's last run of this kind goes on."""
    values = {
        "principal": principal,
        "kind": kind,
        "run_id": run_id,
        "request": Jsonb(request),
        "longest_seconds": longest_seconds,
    }
    return (await conn.execute(BEGIN, values)).rowcount == 1


async def end(
    conn: Connection,
    *,
    principal: str,
    kind: str,
    run_id: UUID,
    result: dict[str, Any] | None,
    issue: dict[str, Any] | None,
) -> None:
    """Record the end of a run, unless a later one has replaced it."""
    values = {
        "principal": principal,
        "kind": kind,
        "run_id": run_id,
        "result": None if result is None else Jsonb(result),
        "issue": None if issue is None else Jsonb(issue),
    }
    await conn.execute(END, values)


async def last(
    conn: Connection, principal: str, kind: str, *, longest_seconds: float
) -> AdminRun | None:
    """The principal's last run of this kind."""
    values = {"principal": principal, "kind": kind, "longest_seconds": longest_seconds}
    row = await (await conn.execute(SELECT, values)).fetchone()
    return None if row is None else AdminRun(**row)
