"""Jobs by batch: what a person requested, with the jobs that follow from it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from latent_core.db.connection import Connection
from latent_core.domain.errors import Issue
from latent_core.domain.job import JobCounts, JobGroup, JobKind, JobState, JobView
from latent_core.queue import admin

MAX_COUNTED: Final = 1001
"""Jobs of one state that are counted per batch."""

# One probe per container, then one per batch for the states: batches without such jobs are passed over.
PAGE: Final = """
SELECT found.*
FROM unnest(%(container_ids)s::text[]) AS c (container_id)
CROSS JOIN LATERAL (
    SELECT b.id, b.container_id, b.principal, b.kind, b.created_at
    FROM job_batches b
    WHERE b.container_id = c.container_id AND NOT b.internal AND b.id < %(before)s
      AND EXISTS (SELECT FROM jobs j WHERE j.batch_id = b.id AND j.state = ANY (%(states)s::text[]))
    ORDER BY b.id DESC
    LIMIT %(limit)s
) found
ORDER BY found.id DESC
LIMIT %(limit)s
"""

ONE: Final = """
SELECT id, container_id, principal, kind, created_at FROM job_batches WHERE id = %(group_id)s
"""

# Index probes only: neither the size of a batch nor the number of jobs slows it down.
COUNTS: Final = """
SELECT b.id AS group_id, r.requested, s.state, n.jobs, n.first
FROM unnest(%(ids)s::bigint[]) AS b (id)
CROSS JOIN (VALUES (true), (false)) AS r (requested)
CROSS JOIN unnest(%(states)s::text[]) AS s (state)
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs, min(id) AS first FROM (
        SELECT id FROM jobs
        WHERE batch_id = b.id AND (parent_id IS NULL) = r.requested AND state = s.state
        ORDER BY id LIMIT %(max_counted)s) AS probed) n
WHERE n.jobs > 0
"""

JOBS: Final = """
SELECT found.id
FROM (VALUES (true), (false)) AS r (requested)
CROSS JOIN unnest(%(states)s::text[]) AS s (state)
CROSS JOIN LATERAL (
    SELECT id FROM jobs
    WHERE batch_id = %(group_id)s AND (parent_id IS NULL) = r.requested AND state = s.state AND id < %(before)s
      AND container_id = ANY (%(container_ids)s::text[])
    ORDER BY id DESC
    LIMIT %(limit)s
) found
WHERE %(requested)s::boolean IS NULL OR r.requested = %(requested)s
ORDER BY found.id DESC
LIMIT %(limit)s
"""

DEAD: Final = """
SELECT id FROM jobs
WHERE batch_id = %(group_id)s AND (parent_id IS NULL) IN (true, false) AND state = 'failed' AND id > %(after)s
  AND container_id = %(container_id)s AND kind <> ALL (%(but)s::text[])
ORDER BY id
LIMIT %(limit)s
"""

BATCH_OF_JOB: Final = "SELECT batch_id FROM jobs WHERE id = %(job_id)s"


@dataclass(frozen=True, slots=True)
class GroupPage:
    """Groups, newest first, and the cursor of the next page, if any."""

    groups: list[JobGroup]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Batch:
    """A row of ``job_batches``."""

    id: int
    container_id: str
    principal: str
    kind: str
    created_at: datetime


async def listed(
    conn: Connection,
    *,
    container_ids: Collection[str],
    states: Collection[JobState] | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> GroupPage:
    """Batches of these containers that have a job in one of these states, newest first, without those that no person
    requested. Raises ``Invalid`` for an unknown cursor."""
    values = {
        "container_ids": sorted(set(container_ids)),
        "states": sorted(set(JobState if states is None else states)),
        "before": admin.before(cursor),
        "limit": limit,
    }
    rows = await (await conn.execute(PAGE, values)).fetchall()
    groups = await _groups(conn, [Batch(**row) for row in rows])
    return GroupPage(groups, str(rows[-1]["id"]) if len(rows) == limit else None)


async def batch_of(conn: Connection, group_id: int) -> Batch | None:
    """The row of a batch, without its jobs."""
    row = await (await conn.execute(ONE, {"group_id": group_id})).fetchone()
    return Batch(**row) if row else None


async def group_of(conn: Connection, batch: Batch) -> JobGroup | None:
    """The batch with its jobs; None if all of them are deleted."""
    found = await _groups(conn, [batch])
    return found[0] if found else None


async def jobs_of(
    conn: Connection,
    group_id: int,
    *,
    container_ids: Collection[str],
    states: Collection[JobState] | None = None,
    requested: bool | None = None,
    limit: int,
    cursor: str | None = None,
) -> admin.JobPage:
    """The jobs of a batch in these containers, newest first; with ``requested`` only those of the request itself, or
    only those that follow from others."""
    values = {
        "requested": requested,
        "group_id": group_id,
        "container_ids": sorted(set(container_ids)),
        "states": sorted(set(JobState if states is None else states)),
        "before": admin.before(cursor),
        "limit": limit,
    }
    rows = await (await conn.execute(JOBS, values)).fetchall()
    jobs = await admin.views(conn, [row["id"] for row in rows])
    return admin.JobPage(jobs, str(jobs[-1].job_id) if len(rows) == limit else None)


async def dead_letters(
    conn: Connection,
    group_id: int,
    container_id: str,
    *,
    limit: int,
    cursor: str | None = None,
    but: Collection[JobKind] = (),
) -> list[int]:
    """Failed jobs of a batch in its container except the kinds ``but``, oldest first."""
    values = {
        "group_id": group_id,
        "container_id": container_id,
        "after": admin.after(cursor),
        "but": sorted(but),
        "limit": limit,
    }
    return [int(row["id"]) for row in await (await conn.execute(DEAD, values)).fetchall()]


async def of_job(conn: Connection, job_id: int) -> int | None:
    """The batch of a job; None for a job from before batches."""
    row = await (await conn.execute(BATCH_OF_JOB, {"job_id": job_id})).fetchone()
    return None if row is None else row["batch_id"]


async def _groups(conn: Connection, batches: Sequence[Batch]) -> list[JobGroup]:
    """In the order of ``batches``, without those that have no jobs."""
    values = {
        "ids": [batch.id for batch in batches],
        "states": [state.value for state in JobState],
        "max_counted": MAX_COUNTED,
    }
    counts: dict[int, list[dict[str, Any]]] = {}
    for row in await (await conn.execute(COUNTS, values)).fetchall():
        counts.setdefault(row["group_id"], []).append(row)
    shown = {group_id: (_lead(rows), _failed(rows)) for group_id, rows in counts.items()}
    ids = {job_id for pair in shown.values() for job_id in pair if job_id is not None}
    views = {view.job_id: view for view in await admin.views(conn, sorted(ids))}
    return [
        _group(
            batch, counts[batch.id], *(views.get(one) if one else None for one in shown[batch.id])
        )
        for batch in batches
        if batch.id in counts
    ]


def _lead(rows: Sequence[dict[str, Any]]) -> int:
    """The job that stands for its batch: the running one of those that were requested, else the first."""
    requested = [row for row in rows if row["requested"]] or list(rows)
    running = [row["first"] for row in requested if row["state"] == JobState.RUNNING]
    return int(min(running or [row["first"] for row in requested]))


def _failed(rows: Sequence[dict[str, Any]]) -> int | None:
    failed = [row for row in rows if row["state"] == JobState.FAILED]
    return min((row["first"] for row in failed), default=None)


def _group(
    batch: Batch, rows: Sequence[dict[str, Any]], lead: JobView | None, failed: JobView | None
) -> JobGroup:
    cause: Issue | None = failed.cause if failed is not None else lead.cause if lead else None
    return JobGroup(
        group_id=batch.id,
        kind=JobKind(batch.kind),
        container_id=batch.container_id,
        principal=batch.principal,
        created_at=batch.created_at,
        jobs=_counts(rows, requested=True),
        followers=_counts(rows, requested=False),
        lead=lead,
        cause=cause,
    )


def _counts(rows: Sequence[dict[str, Any]], *, requested: bool) -> JobCounts:
    counts = {row["state"]: int(row["jobs"]) for row in rows if row["requested"] is requested}
    return JobCounts(**counts)
