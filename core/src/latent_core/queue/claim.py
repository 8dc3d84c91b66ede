"""Claim the next job."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from typing import Any, Final

from latent_core.db.connection import Database
from latent_core.domain.ids import JobId
from latent_core.domain.job import ClaimedJob, JobKind

PARKINGS_PER_CLAIM: Final = 100

_FIELDS: Final = tuple(field.name for field in fields(ClaimedJob))

# A LIMIT in a materialised CTE holds under every plan; in a subquery of UPDATE it does not (a nested loop
# reruns the subquery for each row). One job per statement: its key is the only advisory lock that we hold.
CLAIM: Final = """
WITH head AS MATERIALIZED (
    SELECT id, doc_key FROM jobs
    WHERE state = 'queued' AND waits_for IS NULL AND kind = ANY(%(kinds)s)
    ORDER BY priority DESC, rank, id
    LIMIT 1
    FOR NO KEY UPDATE SKIP LOCKED
), judged AS MATERIALIZED (
    SELECT id, doc_key, CASE WHEN doc_key IS NULL THEN true ELSE queue_key_is_free(doc_key) END AS free FROM head
), claimed AS (
    UPDATE jobs SET
        state = 'running',
        attempts = attempts + 1,
        claim_id = nextval('claim_ids'),
        lease_owner = %(worker)s,
        lease_expires = clock_timestamp() + make_interval(secs => %(lease_seconds)s),
        started_at = coalesce(started_at, clock_timestamp()),
        -- Time in line does not count as waiting for the service.
        paused_since = paused_since + greatest(clock_timestamp() - run_at, interval '0')
    FROM judged
    WHERE jobs.id = judged.id AND judged.free
    RETURNING jobs.id, claim_id, kind, container_id, doc_id, payload, attempts, max_attempts, principal,
              jobs.batch_id,
              coalesce(extract(epoch FROM clock_timestamp() - paused_since)::float, 0) AS paused_seconds
), noted AS (
    INSERT INTO job_events (job_id, event, details)
    SELECT id, 'claimed', jsonb_build_object('claim_id', claim_id, 'worker', %(worker)s::text, 'attempt', attempts)
    FROM claimed
)
SELECT judged.free, judged.doc_key, claimed.*,
       coalesce((SELECT run_at <= now() FROM jobs WHERE state = 'queued' AND waits_for = 'time'
                 ORDER BY run_at LIMIT 1), false)
       OR EXISTS (SELECT 1 FROM jobs WHERE state = 'queued' AND waits_for = 'key' AND doc_key IS NOT NULL) AS others
FROM (SELECT) AS always LEFT JOIN judged ON true LEFT JOIN claimed ON true
"""

# Moves due jobs to the end of their container's line, and the first job of each free key to just behind the head:
# it had reached the head before, and one job per key overtakes no other jobs.
# OFFSET 0 and the arrays force index probes, whatever the planner's statistics say.
PROMOTE: Final = """
WITH RECURSIVE keys (doc_key) AS (
    (SELECT doc_key FROM jobs WHERE state = 'queued' AND waits_for = 'key' AND doc_key IS NOT NULL
     ORDER BY doc_key LIMIT 1)
    UNION ALL
    SELECT (SELECT j.doc_key FROM jobs j WHERE j.state = 'queued' AND j.waits_for = 'key' AND j.doc_key > keys.doc_key
            ORDER BY j.doc_key LIMIT 1)
    FROM keys WHERE keys.doc_key IS NOT NULL
), free AS MATERIALIZED (
    SELECT doc_key FROM keys
    WHERE doc_key IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM jobs r WHERE r.state = 'running' AND r.doc_key = keys.doc_key)
), called AS MATERIALIZED (
    SELECT w.id, queue_head(w.priority) + 1 AS rank
    FROM free CROSS JOIN LATERAL (
        SELECT id, doc_key, priority FROM jobs
        WHERE state = 'queued' AND waits_for = 'key' AND doc_key = free.doc_key
        ORDER BY priority DESC, rank, id
        LIMIT 1
        FOR NO KEY UPDATE SKIP LOCKED) w
    WHERE NOT EXISTS (
        SELECT 1 FROM jobs r
        WHERE r.state = 'queued' AND r.waits_for IS NULL AND r.doc_key = w.doc_key
          AND (r.priority > w.priority OR r.priority = w.priority AND r.id < w.id)
        OFFSET 0)
), due AS MATERIALIZED (
    SELECT id, container_id, priority, run_at FROM jobs
    WHERE state = 'queued' AND waits_for = 'time' AND run_at <= now()
    ORDER BY run_at, id
    LIMIT 100
    FOR NO KEY UPDATE SKIP LOCKED
), placed AS (
    SELECT id, rank FROM called
    UNION ALL
    SELECT id, queue_end(priority, container_id)
               + row_number() OVER (PARTITION BY container_id, priority ORDER BY run_at, id) - 1
    FROM due
)
UPDATE jobs SET
    waits_for = NULL,
    rank = (SELECT rank FROM placed WHERE placed.id = jobs.id)
WHERE id = ANY (ARRAY(SELECT id FROM placed)) AND state = 'queued'
"""

PARK: Final = """
WITH blocked AS MATERIALIZED (
    SELECT id FROM jobs
    WHERE state = 'queued' AND waits_for IS NULL AND doc_key = %(doc_key)s
    LIMIT 1000
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE jobs SET waits_for = 'key' WHERE id = ANY (ARRAY(SELECT id FROM blocked)) AND state = 'queued'
"""


async def claim(
    db: Database,
    *,
    worker: str,
    lease_seconds: float,
    kinds: Collection[JobKind] | None = None,
) -> ClaimedJob | None:
    """Claim the first job in line whose ``doc_key`` is free, or None. The lease starts now, by the database's clock."""
    parameters = {
        "worker": worker,
        "lease_seconds": lease_seconds,
        "kinds": sorted(JobKind if kinds is None else kinds),
    }
    row = await _next(db, parameters)
    if row["others"] and await promote(db) and row["id"] is None:
        row = await _next(db, parameters)
    return _claimed(row)


async def promote(db: Database) -> int:
    """Put jobs that are due, or whose key is free, back in line; returns how many."""
    async with db.single() as conn:
        return (await conn.execute(PROMOTE)).rowcount


async def _next(db: Database, parameters: dict[str, Any]) -> dict[str, Any]:
    """Each try has its own transaction: holding two keys in one could deadlock with another worker.

    The row has no id when nothing was claimed; ``others`` says whether there may be jobs to promote.
    """
    for _ in range(PARKINGS_PER_CLAIM):
        async with db.single() as conn:
            row = await (await conn.execute(CLAIM, parameters)).fetchone()
        if row is None:
            raise RuntimeError("the claim query returned no row; it always returns exactly one")
        if row["free"] is not False:
            return row
        async with db.single() as conn:
            await conn.execute(PARK, {"doc_key": row["doc_key"]})
    return {"id": None, "others": True}


def _claimed(row: dict[str, Any]) -> ClaimedJob | None:
    if row["id"] is None:
        return None
    values = {name: row[name] for name in _FIELDS}
    return ClaimedJob(**values | {"id": JobId(row["id"]), "kind": JobKind(row["kind"])})
