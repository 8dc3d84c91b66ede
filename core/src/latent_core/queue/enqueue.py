"""Put jobs into the queue, in the caller's transaction."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from psycopg.types.json import Jsonb

from latent_core.db.connection import Connection
from latent_core.domain.ids import JobId
from latent_core.domain.job import NewJob
from latent_core.queue.origin import batches_of

logger = logging.getLogger(__name__)

IDS_LOGGED: Final = 20

# Ranks come from the queue's two ends instead of counters, so no row is contended. Transactions that enqueue
# concurrently for one container may share ranks; this delays others by at most the number of those jobs.
# A coalesced job keeps its place, unless its priority rises: then it counts as delayed and due, and gets a new rank.
ENQUEUE: Final = """
WITH given AS MATERIALIZED (
    SELECT nextval(pg_get_serial_sequence('jobs', 'id')) AS id, j.*
    FROM jsonb_to_recordset(%(jobs)s) AS j(
        n integer, kind text, container_id text, doc_id uuid, doc_key text, dedupe_key text, payload jsonb,
        priority integer, delay_seconds double precision, max_attempts integer, principal text, batch_id bigint,
        parent_id bigint)
), line AS MATERIALIZED (
    SELECT container_id, priority, queue_end(priority, container_id) AS next_rank
    FROM (SELECT DISTINCT container_id, priority FROM given) g
), placed AS (
    SELECT given.*, next_rank + row_number() OVER (PARTITION BY container_id, priority ORDER BY n) - 1 AS rank
    FROM given JOIN line USING (container_id, priority)
), stored AS (
    INSERT INTO jobs (id, kind, container_id, doc_id, doc_key, dedupe_key, payload, priority, waits_for, rank, run_at,
                      max_attempts, principal, batch_id, parent_id)
    OVERRIDING SYSTEM VALUE
    SELECT id, kind, container_id, doc_id, doc_key, dedupe_key, payload, priority,
           CASE WHEN delay_seconds > 0 THEN 'time' END, rank,
           clock_timestamp() + make_interval(secs => delay_seconds), max_attempts, principal, batch_id, parent_id
    FROM placed
    ORDER BY dedupe_key, n
    ON CONFLICT (dedupe_key) WHERE state = 'queued' AND dedupe_key IS NOT NULL DO UPDATE SET
        payload = EXCLUDED.payload,
        principal = EXCLUDED.principal,
        batch_id = CASE WHEN EXCLUDED.parent_id IS NULL THEN EXCLUDED.batch_id ELSE jobs.batch_id END,
        parent_id = CASE WHEN EXCLUDED.parent_id IS NOT NULL THEN jobs.parent_id END,
        priority = greatest(jobs.priority, EXCLUDED.priority),
        run_at = least(jobs.run_at, EXCLUDED.run_at),
        waits_for = CASE WHEN jobs.waits_for IS NULL AND EXCLUDED.priority > jobs.priority
                         THEN 'time' ELSE jobs.waits_for END,
        max_attempts = EXCLUDED.max_attempts,
        attempts = 0,
        paused_since = NULL,
        cause = NULL
    RETURNING id, dedupe_key, principal, xmax = 0 AS created
), noted AS (
    INSERT INTO job_events (job_id, event, details)
    SELECT id, CASE WHEN created THEN 'enqueued' ELSE 'coalesced' END, jsonb_build_object('principal', principal)
    FROM stored
)
SELECT given.n, coalesce(stored.id, given.id) AS id FROM given LEFT JOIN stored USING (dedupe_key)
"""

# Finds a queued job that enqueueing again would not change. Its row stays locked and claims skip locked rows, so
# that job will see what the caller's transaction writes.
ALIKE: Final = """
SELECT 1 FROM jobs
WHERE dedupe_key = %(dedupe_key)s AND state = 'queued' AND attempts = 0
  AND payload = %(payload)s AND priority >= %(priority)s AND max_attempts = %(max_attempts)s
  AND run_at <= clock_timestamp() + make_interval(secs => %(delay_seconds)s)
FOR SHARE
"""


async def ensure_queued(conn: Connection, job: NewJob) -> None:
    """Enqueue ``job`` unless an equal one is queued (a running one does not count).

    For jobs that many transactions request: otherwise they would all wait to write the same row.
    """
    values = {**asdict(job), "payload": Jsonb(job.payload)}
    if await (await conn.execute(ALIKE, values)).fetchone() is None:
        await enqueue(conn, job)


WITHDRAW: Final = "DELETE FROM jobs WHERE id = %(id)s AND state = 'queued'"


async def withdraw(conn: Connection, job_id: JobId) -> None:
    """Delete a job that has become needless, unless it is running. Lock order: as ``enqueue``."""
    await conn.execute(WITHDRAW, {"id": job_id})


async def enqueue(conn: Connection, job: NewJob) -> JobId:
    """Enqueue ``job``; it exists when the caller's transaction commits.

    A queued job with the same ``dedupe_key`` takes the newer payload, and its id is returned. A running one does not
    change: the new job waits for it if they share a ``doc_key``. Lock order: enqueue last, and several jobs with
    ``enqueue_many``, which takes their keys in order.
    """
    (job_id,) = await enqueue_many(conn, [job])
    return job_id


async def enqueue_many(conn: Connection, jobs: Sequence[NewJob]) -> list[JobId]:
    """Enqueue ``jobs`` in one statement; returns their ids in order. The last one with a ``dedupe_key`` wins."""
    last = {job.dedupe_key: n for n, job in enumerate(jobs) if job.dedupe_key is not None}
    place = [n if job.dedupe_key is None else last[job.dedupe_key] for n, job in enumerate(jobs)]
    kept = sorted(set(place))
    batches = await batches_of(conn, [jobs[n] for n in kept])
    records = [_record(n, jobs[n]) | batch for n, batch in zip(kept, batches, strict=True)]
    cursor = await conn.execute(ENQUEUE, {"jobs": Jsonb(records)})
    ids = {row["n"]: JobId(row["id"]) for row in await cursor.fetchall()}
    if ids:  # the log line carries the id of the request or job that enqueues them
        named = sorted(set(ids.values()))
        logger.info("jobs_enqueued", extra={"jobs": len(named), "job_ids": named[:IDS_LOGGED]})
    return [ids[n] for n in place]


def _record(n: int, job: NewJob) -> dict[str, Any]:
    return {"n": n, **asdict(job)}
