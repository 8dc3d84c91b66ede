"""List, cancel and requeue jobs. The caller checks which containers the user may see."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from psycopg.errors import UniqueViolation

from latent_core.db.connection import Connection
from latent_core.domain.errors import Conflict, Invalid, NotFound
from latent_core.domain.job import JobEvent, JobKind, JobState, JobView

MAX_EVENTS: Final = 1000

# A claim may happen between our read and our write, so the row's state at the moment of the lock decides.
CANCEL: Final = """
WITH cancelled AS (
    UPDATE jobs SET
        cancel_requested = true,
        state = CASE WHEN state = 'queued' THEN 'cancelled' ELSE state END,
        payload = CASE WHEN state = 'queued' THEN payload - 'sealed_password' ELSE payload END,
        finished_at = CASE WHEN state = 'queued' THEN clock_timestamp() END
    WHERE id = %(job_id)s AND state IN ('queued', 'running')
    RETURNING id, state
)
INSERT INTO job_events (job_id, event)
SELECT id, CASE WHEN state = 'cancelled' THEN 'cancelled' ELSE 'cancel_requested' END FROM cancelled
"""

CANCEL_ALL: Final = """
WITH requested AS (
    SELECT id FROM jobs
    WHERE container_id = %(container_id)s AND state IN ('queued', 'running') AND id <> %(but)s
    ORDER BY id
    FOR NO KEY UPDATE
), cancelled AS (
    UPDATE jobs SET
        cancel_requested = true,
        state = CASE WHEN state = 'queued' THEN 'cancelled' ELSE state END,
        payload = CASE WHEN state = 'queued' THEN payload - 'sealed_password' ELSE payload END,
        finished_at = CASE WHEN state = 'queued' THEN clock_timestamp() END
    WHERE id IN (SELECT id FROM requested)
    RETURNING id, state
), noted AS (
    INSERT INTO job_events (job_id, event)
    SELECT id, CASE WHEN state = 'cancelled' THEN 'cancelled' ELSE 'cancel_requested' END FROM cancelled
)
SELECT count(*) FILTER (WHERE state = 'running') AS running FROM cancelled
"""

# Without jobs that gradually replace mapped vectors: no user and no job waits for those.
OPEN_REFRESH: Final = """
SELECT id FROM jobs
WHERE container_id = %(container_id)s AND kind = 'refresh' AND state IN ('queued', 'running')
  AND NOT coalesce((payload ->> 'mapped_only')::boolean, false)
ORDER BY id LIMIT 1
"""

REQUEUE: Final = """
WITH requeued AS (
    UPDATE jobs SET
        state = 'queued',
        waits_for = NULL,
        rank = queue_end(priority, container_id),
        run_at = clock_timestamp(),
        attempts = 0,
        paused_since = NULL,
        cancel_requested = false,
        cause = NULL,
        progress_done = 0, progress_total = NULL, progress_note = NULL, warnings = '[]', result = NULL,
        started_at = NULL,
        finished_at = NULL
    WHERE id = %(job_id)s AND state IN ('failed', 'cancelled')
    RETURNING id
)
INSERT INTO job_events (job_id, event) SELECT id, 'requeued' FROM requeued
"""

# Oldest first: reads the index ``jobs_listed`` backwards.
DEAD: Final = """
SELECT id FROM jobs
WHERE container_id = %(container_id)s AND state = 'failed' AND id > %(after)s AND kind <> ALL (%(but)s::text[])
ORDER BY id
LIMIT %(limit)s
"""

COUNT_DEAD: Final = """
SELECT count(*) AS jobs FROM jobs
WHERE container_id = %(container_id)s AND state = 'failed' AND id > %(after)s AND kind <> ALL (%(but)s::text[])
"""

# One index probe per container and state, so millions of finished jobs do not slow it down.
PAGE: Final = """
SELECT found.id
FROM unnest(%(container_ids)s::text[]) AS c (container_id)
CROSS JOIN unnest(%(states)s::text[]) AS s (state)
CROSS JOIN LATERAL (
    SELECT id FROM jobs
    WHERE container_id = c.container_id AND state = s.state AND id < %(before)s
    ORDER BY id DESC
    LIMIT %(limit)s
) found
ORDER BY found.id DESC
LIMIT %(limit)s
"""

CHOSEN: Final = """
SELECT id FROM jobs WHERE id = ANY (%(ids)s) AND container_id = ANY (%(container_ids)s) AND state = ANY (%(states)s)
"""

# Estimates the remaining time from the rate since the start.
VIEWS: Final = """
SELECT j.id AS job_id, j.kind, j.container_id, j.doc_id, d.uri AS source_uri, j.state, j.progress_done,
       j.progress_total, j.progress_note, j.attempts, j.max_attempts, j.cause, j.warnings, j.result, j.cancel_requested,
       j.created_at, j.started_at, j.finished_at,
       CASE WHEN j.state = 'running' AND j.progress_done > 0 AND j.progress_total >= j.progress_done
            THEN extract(epoch FROM now() - j.started_at)::float
                 * (j.progress_total - j.progress_done) / j.progress_done END AS eta_seconds,
       (SELECT jsonb_build_object('texts', sum(u.texts), 'tokens', sum(u.tokens), 'cost', sum(u.cost))
        FROM embed_usage u WHERE u.job_id = j.id HAVING count(*) > 0) AS embedding,
       (SELECT jsonb_build_object('calls', sum(u.calls), 'input_tokens', sum(u.input_tokens),
                                  'output_tokens', sum(u.output_tokens), 'cost', round(sum(u.cost)::numeric, 6))
        FROM model_usage u WHERE u.container_id = j.container_id AND u.job_id = j.id HAVING count(*) > 0) AS language_models
FROM jobs j LEFT JOIN documents d ON d.id = j.doc_id
WHERE j.id = ANY (%(ids)s)
ORDER BY j.id DESC
"""

# An import that creates a container has no container_id; it is about the container that it creates.
REQUESTED_BY: Final = """
SELECT principal, CASE WHEN kind = 'import' THEN payload ->> 'target' ELSE container_id END AS about
FROM jobs WHERE id = %(job_id)s
"""

OPEN_OF_KIND: Final = """
SELECT id FROM jobs
WHERE container_id = %(container_id)s AND state IN ('queued', 'running') AND kind = %(kind)s
ORDER BY id DESC
LIMIT 1
"""

EVENTS: Final = """
SELECT id, job_id, at, event, details FROM job_events
WHERE job_id = %(job_id)s AND id > %(after_id)s
ORDER BY id
LIMIT %(limit)s
"""

OUTCOMES: Final = """
SELECT id AS job_id, state, cause ->> 'message' AS cause FROM jobs
WHERE id = ANY(%(ids)s::bigint[]) AND container_id = ANY(%(containers)s::text[])
"""

COUNTS: Final = "SELECT state, count(*) AS jobs FROM jobs GROUP BY state"

# Only jobs that could run: a delayed job is not late.
OLDEST: Final = """
SELECT extract(epoch FROM now() - min(greatest(created_at, run_at)))::float AS seconds
FROM jobs WHERE state = 'queued' AND run_at <= now()
"""


QUEUED: Final = """
SELECT count(*) AS jobs FROM (SELECT FROM jobs WHERE state = 'queued' LIMIT %(max_count)s) AS waiting
"""

# Matches the partial index, which excludes the owner's jobs.
QUEUED_BY: Final = """
SELECT count(*) AS jobs FROM (
    SELECT FROM jobs
    WHERE state = 'queued' AND principal = %(principal)s AND principal <> 'local:you'
    LIMIT %(max_count)s) AS waiting
"""


@dataclass(frozen=True, slots=True)
class JobPage:
    """Jobs, newest first, and the cursor of the next page, if any."""

    jobs: list[JobView]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """How far a job is, without its progress."""

    job_id: int
    state: JobState
    cause: str | None
    """With the remedy."""


@dataclass(frozen=True, slots=True)
class Depth:
    jobs: dict[JobState, int]
    oldest_queued_seconds: float
    """How long the oldest runnable job has waited; 0 without one."""


async def get(conn: Connection, job_id: int) -> JobView:
    """Raises ``NotFound``."""
    found = await views(conn, [job_id])
    if not found:
        raise NotFound(
            f"there is no job {job_id}; finished jobs are kept for up to a day, failed ones for a month"
        )
    return found[0]


async def outcomes(
    conn: Connection, container_ids: Sequence[str], job_ids: Sequence[int]
) -> list[JobOutcome]:
    """Those jobs of the containers that still exist: finished ones are removed after a while."""
    values = {"containers": list(container_ids), "ids": list(job_ids)}
    rows = await (await conn.execute(OUTCOMES, values)).fetchall()
    return [JobOutcome(row["job_id"], JobState(row["state"]), row["cause"]) for row in rows]


async def requested_by(conn: Connection, job_id: int) -> tuple[str, str] | None:
    """The principal that enqueued a job, and the container that it is about."""
    row = await (await conn.execute(REQUESTED_BY, {"job_id": job_id})).fetchone()
    return (row["principal"], row["about"]) if row else None


async def list_jobs(
    conn: Connection,
    *,
    container_ids: Collection[str],
    states: Collection[JobState] | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> JobPage:
    """Jobs of these containers, newest first; all states by default. Raises ``Invalid`` for an unknown cursor."""
    parameters = {
        "container_ids": sorted(set(container_ids)),
        "states": sorted(set(JobState if states is None else states)),
        "before": before(cursor),
        "limit": limit,
    }
    rows = await (await conn.execute(PAGE, parameters)).fetchall()
    jobs = await views(conn, [row["id"] for row in rows])
    return JobPage(jobs, str(jobs[-1].job_id) if len(rows) == limit else None)


async def open_job(conn: Connection, container_id: str, kind: JobKind) -> JobView | None:
    """The newest queued or running job of a kind."""
    values = {"container_id": container_id, "kind": kind.value}
    row = await (await conn.execute(OPEN_OF_KIND, values)).fetchone()
    if row is None:
        return None
    return next(iter(await views(conn, [row["id"]])), None)


async def chosen(
    conn: Connection,
    ids: Collection[int],
    *,
    container_ids: Collection[str],
    states: Collection[JobState] | None = None,
) -> list[JobView]:
    """The jobs among ``ids`` that belong to these containers and are in these states, newest first."""
    parameters = {
        "ids": sorted(set(ids)),
        "container_ids": sorted(set(container_ids)),
        "states": sorted(set(JobState if states is None else states)),
    }
    rows = await (await conn.execute(CHOSEN, parameters)).fetchall()
    return await views(conn, [row["id"] for row in rows])


async def events(conn: Connection, job_id: int, *, after_id: int = 0) -> list[JobEvent]:
    """Events of a job after ``after_id``, oldest first, at most a thousand."""
    parameters = {"job_id": job_id, "after_id": after_id, "limit": MAX_EVENTS}
    rows = await (await conn.execute(EVENTS, parameters)).fetchall()
    return [JobEvent.model_validate(row) for row in rows]


async def cancel(conn: Connection, job_id: int) -> JobView:
    """Cancel a queued job at once; request the end of a running one. ``NotFound``; ``Conflict`` if done or failed."""
    cursor = await conn.execute(CANCEL, {"job_id": job_id})
    view = await get(conn, job_id)
    if cursor.rowcount == 0 and view.state is not JobState.CANCELLED:
        raise Conflict(f"job {job_id} is {view.state.value}: there is nothing to cancel")
    return view


async def cancel_all(conn: Connection, container_id: str, *, but: int) -> int:
    """Cancel every job of a container except ``but``; returns how many are still running."""
    cursor = await conn.execute(CANCEL_ALL, {"container_id": container_id, "but": but})
    row = await cursor.fetchone()
    return int(row["running"]) if row else 0


async def open_refresh(conn: Connection, container_id: str) -> int | None:
    """The queued or running job that changes a container's embedding space."""
    cursor = await conn.execute(OPEN_REFRESH, {"container_id": container_id})
    row = await cursor.fetchone()
    return int(row["id"]) if row else None


async def requeue(conn: Connection, job_id: int) -> JobView:
    """Queue a failed or cancelled job again with all its attempts.

    ``NotFound``; ``Conflict`` in another state, or when a newer job for the same work is queued.
    """
    try:
        async with conn.transaction():
            cursor = await conn.execute(REQUEUE, {"job_id": job_id})
    except UniqueViolation as exc:
        raise Conflict(
            f"job {job_id} need not be requeued: a newer job for the same work is queued"
        ) from exc
    view = await get(conn, job_id)
    if cursor.rowcount == 0:
        raise Conflict(
            f"job {job_id} is {view.state.value}: only failed and cancelled jobs can be requeued"
        )
    return view


async def dead_letters(
    conn: Connection,
    container_id: str,
    *,
    limit: int,
    cursor: str | None = None,
    but: Collection[JobKind] = (),
) -> list[int]:
    """Failed jobs of a container except the kinds ``but``, oldest first. The last id is the next cursor."""
    values = _dead(container_id, cursor, but)
    rows = await (await conn.execute(DEAD, values | {"limit": limit})).fetchall()
    return [int(row["id"]) for row in rows]


async def count_dead_letters(
    conn: Connection, container_id: str, *, cursor: str | None = None, but: Collection[JobKind] = ()
) -> int:
    """Number of dead letters after ``cursor``."""
    row = await (await conn.execute(COUNT_DEAD, _dead(container_id, cursor, but))).fetchone()
    return int(row["jobs"]) if row else 0


def _dead(container_id: str, cursor: str | None, but: Collection[JobKind]) -> dict[str, Any]:
    return {"container_id": container_id, "after": after(cursor), "but": sorted(but)}


async def depth(conn: Connection) -> Depth:
    """Counts by state and the age of the oldest queued job, for metrics."""
    rows = await (await conn.execute(COUNTS)).fetchall()
    counted = {JobState(row["state"]): int(row["jobs"]) for row in rows}
    oldest = await (await conn.execute(OLDEST)).fetchone()
    seconds = oldest["seconds"] if oldest is not None else None
    return Depth({state: counted.get(state, 0) for state in JobState}, seconds or 0.0)


async def queued(conn: Connection, *, max_count: int) -> int:
    """Number of queued jobs, counted up to ``max_count``."""
    row = await (await conn.execute(QUEUED, {"max_count": max_count})).fetchone()
    return int(row["jobs"]) if row else 0


async def queued_by(conn: Connection, principal: str, *, max_count: int) -> int:
    """Number of queued jobs of a principal other than the owner, counted up to ``max_count``."""
    row = await (
        await conn.execute(QUEUED_BY, {"principal": principal, "max_count": max_count})
    ).fetchone()
    return int(row["jobs"]) if row else 0


async def views(conn: Connection, ids: Sequence[int]) -> list[JobView]:
    """Newest first, without ids that do not exist."""
    rows = await (await conn.execute(VIEWS, {"ids": list(ids)})).fetchall()
    return [JobView.model_validate(row) for row in rows]


def after(cursor: str | None) -> int:
    """The id after which a list goes on, oldest first."""
    return 0 if cursor is None else _number(cursor)


def before(cursor: str | None) -> int:
    """The id before which a list goes on, newest first."""
    return 2**63 - 1 if cursor is None else _number(cursor)


def _number(cursor: str) -> int:
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 18:
        raise Invalid(
            f"'{cursor[:40]}' is not a cursor of this list: use next_cursor of the page before"
        )
    return int(cursor)
