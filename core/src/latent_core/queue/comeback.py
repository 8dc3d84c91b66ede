"""A claimed job goes back into the queue: tried again, paused, continued, or released.

Always fenced. A job whose end was asked for meanwhile is cancelled instead; one whose work a newer
queued job does (same ``dedupe_key``) is superseded by it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, LiteralString

import psycopg
from psycopg.errors import UniqueViolation
from psycopg.types.json import Jsonb

from latent_core.domain.errors import Issue, LatentError, StoreFull
from latent_core.domain.job import ClaimedJob
from latent_core.domain.outage import Outage
from latent_core.queue.backoff import PAUSE_CAP_SECONDS, backoff_seconds
from latent_core.queue.claim import LOSSES_BEFORE_QUARANTINE
from latent_core.queue.finish import Fence, end_cancelled, fail, fenced
from latent_core.queue.issues import issue_of, stored
from latent_core.queue.outcome import Outcome
from latent_core.registry import full_stores
from latent_core.registry.connection import Connection, Database

RETRY: Final = """
WITH retried AS (
    UPDATE jobs SET
        state = 'queued',
        lane = 'delayed',
        run_at = clock_timestamp() + make_interval(secs => %(delay_seconds)s),
        cause = %(cause)s,
        lease_expires = NULL,
        started_at = NULL, progress_done = 0, progress_total = NULL, progress_note = NULL, warnings = '[]'
    WHERE id = %(id)s AND claim_id = %(claim_id)s AND state = 'running' AND NOT cancel_requested
      AND NOT EXISTS (SELECT 1 FROM jobs newer WHERE newer.state = 'queued' AND newer.dedupe_key = jobs.dedupe_key)
    RETURNING id, claim_id, attempts, cause
)
INSERT INTO job_events (job_id, event, details)
SELECT id, 'retried', jsonb_build_object('claim_id', claim_id, 'attempt', attempts, 'cause', cause,
                                         'delay_seconds', %(delay_seconds)s::float)
FROM retried
"""

# A service outside is away: the attempt is refunded, the claim is burnt. Of an outage that lasts the history keeps one
# line, with its beginning and how often it was tried: ten thousand jobs may wait for days.
PAUSE: Final = """
WITH paused AS (
    UPDATE jobs SET
        state = 'queued',
        lane = 'delayed',
        run_at = clock_timestamp() + make_interval(secs => %(delay_seconds)s),
        attempts = attempts - 1,
        cause = %(cause)s,
        lease_expires = NULL,
        started_at = NULL, progress_done = 0, progress_total = NULL, progress_note = NULL, warnings = '[]'
    WHERE id = %(id)s AND claim_id = %(claim_id)s AND state = 'running' AND NOT cancel_requested
      AND NOT EXISTS (SELECT 1 FROM jobs newer WHERE newer.state = 'queued' AND newer.dedupe_key = jobs.dedupe_key)
    RETURNING id, claim_id, cause
), folded AS (
    DELETE FROM job_events e USING paused
    WHERE e.job_id = paused.id AND e.event IN ('claimed', 'paused')
      AND e.details ->> 'claim_id' = %(folded_claim)s::text
)
INSERT INTO job_events (job_id, event, details)
SELECT id, 'paused', jsonb_build_object('claim_id', claim_id, 'cause', cause, 'delay_seconds', %(delay_seconds)s::float,
                                        'times', %(times)s::int,
                                        'since', coalesce(%(since)s::timestamptz, clock_timestamp()))
FROM paused
"""

LAST_EVENT: Final = """
SELECT event, details FROM job_events WHERE job_id = %(id)s AND event <> 'claimed' ORDER BY id DESC LIMIT 1
"""

# Others count that began after this one was first paused, and were done after it was last: what was nearly done when
# the outage came needed the store no more, and one that got through a gap says nothing of the time since. One that
# found nothing to do has asked no store for much: it says so in its result.
OTHERS: Final = """
SELECT extract(epoch FROM clock_timestamp() - %(since)s::timestamptz)::float AS seconds,
       EXISTS (SELECT 1 FROM jobs
               WHERE state = 'done' AND kind = %(kind)s AND started_at > %(since)s::timestamptz AND id <> %(id)s
                 AND finished_at > (SELECT max(at) FROM job_events WHERE job_id = %(id)s AND event = 'paused')
                 AND NOT coalesce((result ->> 'unchanged')::boolean, false)) AS served,
       EXISTS (SELECT 1 FROM jobs
               WHERE state = 'queued' AND lane = 'delayed' AND id <> %(id)s
                 AND cause ->> 'code' IN ('UNAVAILABLE', 'TIMEOUT')) AS wait
"""

# The job made progress: it starts with fresh attempts, and what it told so far stays.
CONTINUE: Final = """
WITH continued AS (
    UPDATE jobs SET
        state = 'queued',
        payload = %(payload)s,
        lane = CASE WHEN %(delay_seconds)s::float > 0 THEN 'delayed' ELSE 'ready' END,
        rank = queue_end(priority, container_id),
        run_at = clock_timestamp() + make_interval(secs => %(delay_seconds)s),
        attempts = 0,
        lost_leases = 0,
        cause = NULL,
        lease_expires = NULL
    WHERE id = %(id)s AND claim_id = %(claim_id)s AND state = 'running' AND NOT cancel_requested
      AND NOT EXISTS (SELECT 1 FROM jobs newer WHERE newer.state = 'queued' AND newer.dedupe_key = jobs.dedupe_key)
    RETURNING id, claim_id
)
INSERT INTO job_events (job_id, event, details)
SELECT id, 'continued', jsonb_build_object('claim_id', claim_id) FROM continued
"""

# Next turn: the job was in the middle of its own. The attempt is refunded, the claim is burnt.
RELEASE: Final = """
WITH released AS (
    UPDATE jobs SET
        state = 'queued',
        lane = CASE WHEN lost_leases >= %(losses)s THEN 'quarantine' ELSE 'ready' END,
        rank = queue_head(priority) + 1,
        run_at = clock_timestamp(),
        attempts = attempts - 1,
        lease_expires = NULL,
        started_at = NULL, progress_done = 0, progress_total = NULL, progress_note = NULL, warnings = '[]'
    WHERE id = %(id)s AND claim_id = %(claim_id)s AND state = 'running' AND NOT cancel_requested
      AND NOT EXISTS (SELECT 1 FROM jobs newer WHERE newer.state = 'queued' AND newer.dedupe_key = jobs.dedupe_key)
    RETURNING id, claim_id
)
INSERT INTO job_events (job_id, event, details)
SELECT id, 'released', jsonb_build_object('claim_id', claim_id) FROM released
"""


async def requeue_with(
    conn: Connection, job: ClaimedJob, payload: dict[str, Any], *, delay_seconds: float = 0.0
) -> bool:
    """Put ``job`` at the end of its container's line with a new payload (a cursor), in the caller's transaction.

    False when it was not put back: cancelled, or superseded by a newer job. ``LeaseLost`` rolls all back.
    """
    return await come_back(conn, CONTINUE, job, payload=Jsonb(payload), delay_seconds=delay_seconds)


async def retry_or_fail(db: Database, job: ClaimedJob, error: Exception) -> Outcome:
    """Try ``job`` again later if that may help and an attempt is left, else fail it with its cause. ``LeaseLost``.

    Errors that the job is not to blame for spend no attempt: it waits for as long as they last, unless what becomes
    of others shows that they are of this job.
    """
    transient = error.transient if isinstance(error, LatentError) else True
    cause = issue_of(error)
    async with db.transaction() as conn:
        if isinstance(error, StoreFull):
            # A full Postgres may have no page for the note, and room for the end of this attempt.
            with suppress(psycopg.Error):
                async with conn.transaction():
                    await full_stores.note(conn, error.service)
        if isinstance(error, LatentError) and error.blameless:
            outage = await refuted(conn, job, error)
            if outage is None:
                queued = await _pause(conn, job, cause, at_least=_retry_after(error))
                return "paused" if queued else "cancelled"
            cause = _told(cause, outage)
        elif transient and job.attempts < job.max_attempts:
            delay = backoff_seconds(job.attempts, at_least=_retry_after(error))
            queued = await come_back(conn, RETRY, job, cause=stored(cause), delay_seconds=delay)
            return "retried" if queued else "cancelled"
        await fail(conn, job, cause)
    return "failed"


async def refuted(conn: Connection, job: ClaimedJob, error: LatentError) -> Outage | None:
    """The outage that ``error`` is by its looks, when it is none and the job is to be given up."""
    before = await _paused_before(conn, job)
    if not error.doubtful or "since" not in before:
        return None
    parameters = {"id": job.id, "kind": job.kind, "since": before["since"]}
    row = await (await conn.execute(OTHERS, parameters)).fetchone()
    if row is None:
        return None
    outage = Outage(int(before["times"]) + 1, row["seconds"], row["served"], row["wait"])
    return outage if outage.is_of_this_job else None


async def _paused_before(conn: Connection, job: ClaimedJob) -> dict[str, Any]:
    """What is noted of the pause just before this attempt; nothing when it was another end."""
    last = await (await conn.execute(LAST_EVENT, {"id": job.id})).fetchone()
    return dict(last["details"]) if last is not None and last["event"] == "paused" else {}


def _told(cause: Issue, outage: Outage) -> Issue:
    return cause.model_copy(update={"message": f"{cause.message}; {outage.words()}"})


async def _pause(conn: Connection, job: ClaimedJob, cause: Issue, *, at_least: float) -> bool:
    before = await _paused_before(conn, job)
    times = int(before.get("times", 0)) + 1
    return await come_back(
        conn,
        PAUSE,
        job,
        cause=stored(cause),
        delay_seconds=backoff_seconds(times, at_least=at_least, cap=PAUSE_CAP_SECONDS),
        times=times,
        since=before.get("since"),
        folded_claim=before.get("claim_id"),
    )


async def release(db: Database, job: ClaimedJob) -> None:
    """Give ``job`` back unharmed, since its worker stops. ``LeaseLost``."""
    async with db.transaction() as conn:
        await come_back(conn, RELEASE, job, losses=LOSSES_BEFORE_QUARANTINE)


async def come_back(
    conn: Connection, statement: LiteralString, job: Fence, **parameters: Any
) -> bool:
    """Run a fenced statement that queues ``job`` again; False when it was cancelled or superseded instead."""
    try:
        async with conn.transaction():
            if await fenced(conn, statement, job, **parameters):
                return True
    except UniqueViolation:
        pass  # a newer job for the same work was committed between our look and our write
    await end_cancelled(conn, job)
    return False


def _retry_after(error: Exception) -> float:
    """Seconds a service asked us to wait; 0 when it did not."""
    seconds = error.details.get("retry_after") if isinstance(error, LatentError) else None
    return float(seconds) if isinstance(seconds, int | float) and seconds > 0 else 0.0
