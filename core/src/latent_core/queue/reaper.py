"""Requeue or fail jobs whose lease expired (their worker died), and delete old finished jobs.

One transaction per job, so that a job that cannot be taken now (a lock, a conflict) does not block the others.
State and expiry are checked again under the row's lock, since the job may have finished or renewed its lease.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, LiteralString

from latent_core.db.connection import Connection, Database, only_row
from latent_core.domain.errors import Issue, IssueCode, TimedOut
from latent_core.domain.ids import JobId
from latent_core.domain.job import JobState
from latent_core.queue.backoff import backoff_seconds
from latent_core.queue.finish import fail, stored
from latent_core.queue.requeue import requeue_later

logger = logging.getLogger(__name__)

JOBS_PER_ROUND: Final = 100

EXPIRED: Final = """
SELECT id FROM jobs
WHERE state = 'running' AND lease_expires < now() AND id > %(after)s
ORDER BY id
LIMIT %(limit)s
"""

# One reaper at a time is enough; several would only contend for the same rows.
LEAD: Final = """
SELECT set_config('lock_timeout', '1s', true),
       pg_try_advisory_xact_lock(hashtextextended('queue reaper', 7801)) AS leads
"""

HOLD: Final = """
SELECT id, claim_id, attempts, max_attempts
FROM jobs
WHERE id = %(id)s AND state = 'running' AND lease_expires < now()
FOR NO KEY UPDATE SKIP LOCKED
"""

# Without a delay it is the next job. A job that kills its worker also interrupts the worker's other jobs. From the
# second loss on they are delayed, so that they do not run together with it each time.
RESCUE: Final = """
WITH rescued AS (
    UPDATE jobs SET
        state = 'queued',
        waits_for = CASE WHEN %(delay_seconds)s::float > 0 THEN 'time' END,
        rank = queue_head(priority) + 1,
        run_at = clock_timestamp() + make_interval(secs => %(delay_seconds)s),
        cause = %(cause)s,
        lease_expires = NULL,
        started_at = NULL, progress_done = 0, progress_total = NULL, progress_note = NULL, warnings = '[]'
    WHERE id = %(id)s AND claim_id = %(claim_id)s AND state = 'running' AND lease_expires < now()
      AND NOT cancel_requested
      AND NOT EXISTS (SELECT 1 FROM jobs newer WHERE newer.state = 'queued' AND newer.dedupe_key = jobs.dedupe_key)
    RETURNING id, claim_id, lease_owner, attempts
)
INSERT INTO job_events (job_id, event, details)
SELECT id, 'lost', jsonb_build_object('claim_id', claim_id, 'worker', lease_owner, 'attempt', attempts) FROM rescued
"""

DISOWN: Final = "UPDATE jobs SET lease_expires = '-infinity' WHERE state = 'running' AND lease_owner = %(worker)s"

DISOWN_ALL: Final = "UPDATE jobs SET lease_expires = '-infinity' WHERE state = 'running'"

VANISHED: Final = Issue(
    code=IssueCode.UNAVAILABLE, message="the worker that ran this job vanished; it will be retried"
)


@dataclass(frozen=True, slots=True)
class ExpiredClaim:
    """A claim whose lease expired; its row is locked."""

    id: JobId
    claim_id: int
    attempts: int
    max_attempts: int

    @property
    def is_last_attempt(self) -> bool:
        return self.attempts >= self.max_attempts

    def cause(self) -> Issue:
        return Issue(
            code=IssueCode.UNAVAILABLE,
            message=f"the worker vanished while it ran this job, in attempt {self.attempts} of "
            f"{self.max_attempts}: see the worker's log, then requeue the job",
        )


async def reap(db: Database) -> list[JobId]:
    """Take every expired claim from its worker; returns the job ids, none while another process reaps."""
    reaped: list[JobId] = []
    after = 0
    while batch := await _expired(db, after):
        for job_id in batch:
            try:
                taken = await reap_one(db, job_id)
            except TimedOut as exc:
                logger.warning("job_rescue_failed", extra={"job_id": job_id, "cause": str(exc)})
                continue
            if taken is None:
                return reaped
            if taken:
                reaped.append(job_id)
        after = batch[-1]
    return reaped


async def reap_one(db: Database, job_id: JobId) -> bool | None:
    """Take a job from its worker if its lease expired; returns whether it had, None while another process reaps."""
    async with db.transaction() as conn:
        leader = await (await conn.execute(LEAD)).fetchone()
        if leader is None or not leader["leads"]:
            return None
        row = await (await conn.execute(HOLD, {"id": job_id})).fetchone()
        if row is None:
            return False
        await _take(conn, ExpiredClaim(**row))
        return True


async def disown(db: Database, worker: str) -> None:
    """Expire the leases of ``worker``, which is known to be dead, for ``reap``."""
    async with db.transaction() as conn:
        await conn.execute(DISOWN, {"worker": worker})


async def release_all(db: Database) -> int:
    """Take back every claim, since no worker is running; returns how many.

    The owner of an embedded data directory calls it at start-up.
    """
    async with db.transaction() as conn:
        await conn.execute(DISOWN_ALL)
    return len(await reap(db))


async def _expired(db: Database, after: int) -> list[JobId]:
    async with db.transaction() as conn:
        cursor = await conn.execute(EXPIRED, {"after": after, "limit": JOBS_PER_ROUND})
        return [JobId(row["id"]) for row in await cursor.fetchall()]


async def _take(conn: Connection, job: ExpiredClaim) -> None:
    if job.is_last_attempt:
        await fail(conn, job, job.cause())
        return
    delay = backoff_seconds(job.attempts) if job.attempts > 1 else 0.0
    await requeue_later(conn, RESCUE, job, delay_seconds=delay, cause=stored(VANISHED))


@dataclass(frozen=True, slots=True)
class KeptJobs:
    """How long ended jobs are kept, and how many of those that ended more than ``SHORTEST_KEPT`` ago."""

    age: timedelta
    count: int = 1 << 62


SHORTEST_KEPT: Final = timedelta(hours=1)
KEPT: Final = {
    # Many small writes make several jobs each: with those of a whole day they would outgrow the texts.
    JobState.DONE: KeptJobs(timedelta(hours=24), 10_000),
    JobState.CANCELLED: KeptJobs(timedelta(hours=24), 10_000),
    JobState.FAILED: KeptJobs(timedelta(days=30)),
}
FOLLOW_UPS_KEPT: Final = timedelta(minutes=10)
FOLLOW_UPS_PER_ROUND: Final = 10_000
"""By a single statement, since each one begins with the oldest again, those of open groups included."""
JOBS_PER_BATCH: Final = 1000

# Without so many jobs the inner query has no row, and ``greatest`` ignores NULL.
KEPT_SINCE: Final = """
SELECT greatest(
    now() - %(age)s::interval,
    (SELECT least(finished_at, now() - %(shortest)s::interval)
     FROM jobs
     WHERE state = %(state)s AND state IN ('done', 'failed', 'cancelled')
     ORDER BY finished_at DESC
     OFFSET %(count)s LIMIT 1)
) AS moment
"""

FORGET: Final = """
WITH old AS MATERIALIZED (
    SELECT id FROM jobs
    WHERE state = %(state)s AND state IN ('done', 'failed', 'cancelled') AND finished_at < %(moment)s
    ORDER BY finished_at
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
)
DELETE FROM jobs WHERE id = ANY (ARRAY(SELECT id FROM old))
"""

# What follows from each write. A warning of such a job is the cause why a page has no image, so it is kept. The
# conditions on one row are those of the partial index. Those of a group stay as long as it has open jobs: it shows how
# many follow-ups are done.
FORGET_FOLLOW_UPS: Final = """
WITH old AS MATERIALIZED (
    SELECT id FROM jobs j
    WHERE state = 'done' AND kind IN ('render', 'page_words', 'dedup') AND parent_id IS NOT NULL AND warnings = '[]'
      AND finished_at < now() - %(age)s::interval
      AND NOT EXISTS (SELECT FROM jobs o WHERE o.batch_id = j.batch_id AND (o.parent_id IS NULL) IN (true, false)
                                         AND o.state IN ('queued', 'running'))
    ORDER BY finished_at
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
)
DELETE FROM jobs WHERE id = ANY (ARRAY(SELECT id FROM old))
"""

FORGET_CONTAINER: Final = """
WITH old AS MATERIALIZED (
    SELECT id FROM jobs
    WHERE container_id = %(container_id)s AND state IN ('done', 'failed', 'cancelled')
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
)
DELETE FROM jobs WHERE id = ANY (ARRAY(SELECT id FROM old))
"""


# A batch is inserted before its jobs, in their transaction or in one that waits for it.
FORGET_BATCHES: Final = """
DELETE FROM job_batches WHERE id = ANY (ARRAY(
    SELECT id FROM job_batches b
    WHERE created_at < now() - interval '1 hour' AND NOT EXISTS (SELECT FROM jobs WHERE batch_id = b.id)
    ORDER BY id
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED))
"""


async def forget(db: Database) -> int:
    """Delete jobs that finished long ago, one short transaction per batch, and then their batches; returns how many
    jobs."""
    values = {"age": FOLLOW_UPS_KEPT, "limit": FOLLOW_UPS_PER_ROUND}
    async with db.transaction() as conn:
        total = (await conn.execute(FORGET_FOLLOW_UPS, values)).rowcount
    for state, kept in KEPT.items():
        moment = await _kept_since(db, state, kept)
        total += await _forget_all(db, FORGET, state=state, moment=moment)
    await _forget_all(db, FORGET_BATCHES)
    return total


async def _kept_since(db: Database, state: JobState, kept: KeptJobs) -> datetime:
    values = {"state": state, "age": kept.age, "count": kept.count, "shortest": SHORTEST_KEPT}
    async with db.reading() as conn:
        moment: datetime = (await only_row(await conn.execute(KEPT_SINCE, values)))["moment"]
    return moment


async def _forget_all(db: Database, statement: LiteralString, **values: Any) -> int:
    total = 0
    while True:
        async with db.transaction() as conn:
            gone = (await conn.execute(statement, {**values, "limit": JOBS_PER_BATCH})).rowcount
        total += gone
        if gone < JOBS_PER_BATCH:
            return total


async def forget_container(conn: Connection, container_id: str) -> int:
    """Delete a batch of ended jobs of a container that is being deleted; returns how many.

    They cannot be seen or requeued any more, and they would keep its blobs.
    """
    parameters = {"container_id": container_id, "limit": JOBS_PER_BATCH}
    return (await conn.execute(FORGET_CONTAINER, parameters)).rowcount
