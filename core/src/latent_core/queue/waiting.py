"""The queue of all containers: how many jobs wait, for what, and why; and the workers that hold jobs."""

from __future__ import annotations

from typing import Final

from latent_core.db.connection import Connection
from latent_core.domain.job import JobCounts
from latent_core.queue import admin
from latent_core.wire.operations import QueueState, WaitingCause, WorkerView

MAX_EXAMINED: Final = 10_000
MAX_CAUSES: Final = 10

WAITING: Final = """
SELECT count(*) FILTER (WHERE waits_for IS NULL) AS in_line, count(*) FILTER (WHERE waits_for = 'time') AS for_time,
       count(*) FILTER (WHERE waits_for = 'key') AS for_key
FROM jobs WHERE state = 'queued'
"""

# The id of a job is in no cause, so that equal causes of many jobs are one.
CAUSES: Final = """
SELECT cause ->> 'code' AS code, cause ->> 'message' AS message, count(*) AS jobs, bool_or(paused_since IS NOT NULL) AS outage,
       min(paused_since) AS since, min(run_at) AS next_at
FROM (SELECT cause, paused_since, run_at FROM jobs
      WHERE state = 'queued' AND waits_for = 'time' ORDER BY run_at, id LIMIT %(max_examined)s) AS waiting
WHERE cause IS NOT NULL
GROUP BY 1, 2
ORDER BY jobs DESC, message
LIMIT %(max_causes)s
"""

WORKERS: Final = """
SELECT lease_owner AS worker, count(*) AS running, min(lease_expires) AS lease_expires
FROM jobs WHERE state = 'running' AND lease_owner IS NOT NULL AND lease_expires IS NOT NULL
GROUP BY lease_owner ORDER BY lease_owner
LIMIT 100
"""

# Each worker has one session that listens for new jobs, busy or not.
CONNECTED: Final = """
SELECT count(*) AS workers FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'latent listener'
"""


async def queue_state(conn: Connection) -> QueueState:
    """Counts and causes over all containers."""
    depth = await admin.depth(conn)
    waiting = await (await conn.execute(WAITING)).fetchone()
    values = {"max_examined": MAX_EXAMINED, "max_causes": MAX_CAUSES}
    causes = await (await conn.execute(CAUSES, values)).fetchall()
    return QueueState(
        jobs=JobCounts(**{state.value: count for state, count in depth.jobs.items()}),
        oldest_queued_seconds=depth.oldest_queued_seconds,
        causes=[WaitingCause.model_validate(row) for row in causes],
        **(waiting or {"in_line": 0, "for_time": 0, "for_key": 0}),
    )


async def workers(conn: Connection) -> list[WorkerView]:
    """Workers with running jobs; idle ones hold none and are not among them."""
    rows = await (await conn.execute(WORKERS)).fetchall()
    return [WorkerView.model_validate(row) for row in rows]


async def connected_workers(conn: Connection) -> int:
    """Workers that listen for jobs of this database."""
    row = await (await conn.execute(CONNECTED)).fetchone()
    return int(row["workers"]) if row else 0
