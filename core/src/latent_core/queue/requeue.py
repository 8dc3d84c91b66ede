"""Put a claimed job back into the queue: retried, paused, continued or released.

Always fenced. If its cancellation was requested, the job is cancelled instead. If a newer job with the same
``dedupe_key`` is queued, that job supersedes it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, LiteralString

import psycopg
from psycopg.errors import UniqueViolation
from psycopg.types.json import Jsonb

from latent_core.db import capacity
from latent_core.db.connection import Connection, Database
from latent_core.domain.errors import Issue, LatentError, ModelMissing, StoreFull
from latent_core.domain.job import ClaimedJob, Outcome
from latent_core.queue.backoff import PAUSE_CAP_SECONDS, backoff_seconds
from latent_core.queue.finish import Fence, end_cancelled, fail, fenced, issue_of, stored

MAX_PAUSED_SECONDS: Final = 24 * 3600.0
"""A job that has waited longer for a service fails."""
MAX_RETRY_AFTER_SECONDS: Final = 3600.0
"""Caps the pause that a service asks for."""
GOES_ON: Final = f"The job waits for the model, and goes on by itself within {PAUSE_CAP_SECONDS / 60:.0f} minutes after that"

RETRY: Final = """
WITH retried AS (
    UPDATE jobs SET
        state = 'queued',
        waits_for = 'time',
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

# An external service is unreachable: the attempt is not counted, the claim id is used up. Ten thousand jobs may wait
# for a day, so the history keeps one event per outage, with its start and the number of tries.
PAUSE: Final = """
WITH paused AS (
    UPDATE jobs SET
        state = 'queued',
        waits_for = 'time',
        run_at = clock_timestamp() + make_interval(secs => %(delay_seconds)s),
        attempts = attempts - 1,
        paused_since = coalesce(paused_since, clock_timestamp()),
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

# The job made progress: its attempts start at 0 again, and its warnings and progress stay.
CONTINUE: Final = """
WITH continued AS (
    UPDATE jobs SET
        state = 'queued',
        payload = %(payload)s,
        waits_for = CASE WHEN %(delay_seconds)s::float > 0 THEN 'time' END,
        rank = queue_end(priority, container_id),
        run_at = clock_timestamp() + make_interval(secs => %(delay_seconds)s),
        attempts = 0,
        paused_since = NULL,
        cause = NULL,
        lease_expires = NULL
    WHERE id = %(id)s AND claim_id = %(claim_id)s AND state = 'running' AND NOT cancel_requested
      AND NOT EXISTS (SELECT 1 FROM jobs newer WHERE newer.state = 'queued' AND newer.dedupe_key = jobs.dedupe_key)
    RETURNING id, claim_id
)
INSERT INTO job_events (job_id, event, details)
SELECT id, 'continued', jsonb_build_object('claim_id', claim_id) FROM continued
"""

# The job goes next, since it was interrupted. The attempt is not counted, the claim id is used up.
RELEASE: Final = """
WITH released AS (
    UPDATE jobs SET
        state = 'queued',
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

    Returns False when the job was cancelled or superseded instead. ``LeaseLost`` must roll the transaction back.
    """
    return await requeue_later(
        conn, CONTINUE, job, payload=Jsonb(payload), delay_seconds=delay_seconds
    )


async def retry_or_fail(db: Database, job: ClaimedJob, error: Exception) -> Outcome:
    """Retry ``job`` later, or fail it with its cause. ``LeaseLost``.

    An error that counts as an attempt is retried up to ``max_attempts``. For any other error the job is paused,
    for at most 24 hours.
    """
    cause = issue_of(error)
    async with db.transaction() as conn:
        if isinstance(error, StoreFull):
            # A full Postgres may have no page left for the note but space to end this attempt.
            with suppress(psycopg.Error):
                async with conn.transaction():
                    await capacity.note_full(conn, error.service)
        if is_final(job, error):
            await fail(conn, job, cause if counts_as_attempt(error) else _after_waiting(job, cause))
            return "failed"
        if isinstance(error, ModelMissing):
            cause = _with(cause, GOES_ON)
        outcome: Outcome = "retried" if counts_as_attempt(error) else "paused"
        again = _retry if outcome == "retried" else _pause
        queued = await again(conn, job, cause, min_seconds=_retry_after(error))
        return outcome if queued else "cancelled"


def counts_as_attempt(error: Exception) -> bool:
    """Whether the job itself may have caused ``error``. True for unexpected errors."""
    return not isinstance(error, LatentError) or error.counts_as_attempt


def is_final(job: ClaimedJob, error: Exception) -> bool:
    """Whether ``job`` fails for good when its attempt ends with ``error``."""
    if isinstance(error, LatentError) and not error.transient:
        return True
    if counts_as_attempt(error):
        return job.attempts >= job.max_attempts
    return job.paused_seconds >= MAX_PAUSED_SECONDS


def _after_waiting(job: ClaimedJob, cause: Issue) -> Issue:
    return _with(
        cause,
        f"The job waited for this service for {job.paused_seconds / 3600:.0f} hours. Check the service and its log, then"
        f" requeue the job (latent jobs requeue {job.id})",
    )


def _with(cause: Issue, sentence: str) -> Issue:
    return cause.model_copy(update={"message": f"{cause.message}. {sentence}"})


async def _paused_before(conn: Connection, job: ClaimedJob) -> dict[str, Any]:
    """Details of the pause just before this attempt; empty if the last event was not a pause."""
    last = await (await conn.execute(LAST_EVENT, {"id": job.id})).fetchone()
    return dict(last["details"]) if last is not None and last["event"] == "paused" else {}


async def _retry(conn: Connection, job: ClaimedJob, cause: Issue, *, min_seconds: float) -> bool:
    delay = backoff_seconds(job.attempts, min_seconds=min_seconds)
    return await requeue_later(conn, RETRY, job, cause=stored(cause), delay_seconds=delay)


async def _pause(conn: Connection, job: ClaimedJob, cause: Issue, *, min_seconds: float) -> bool:
    before = await _paused_before(conn, job)
    times = int(before.get("times", 0)) + 1
    return await requeue_later(
        conn,
        PAUSE,
        job,
        cause=stored(cause),
        delay_seconds=backoff_seconds(times, min_seconds=min_seconds, cap=PAUSE_CAP_SECONDS),
        times=times,
        since=before.get("since"),
        folded_claim=before.get("claim_id"),
    )


async def release(db: Database, job: ClaimedJob) -> None:
    """Put ``job`` back without counting an attempt, since its worker stops. ``LeaseLost``."""
    async with db.transaction() as conn:
        await requeue_later(conn, RELEASE, job)


async def requeue_later(
    conn: Connection, statement: LiteralString, job: Fence, **parameters: Any
) -> bool:
    """Run a fenced statement that queues ``job`` again; returns False when it was cancelled or superseded."""
    try:
        async with conn.transaction():
            if await fenced(conn, statement, job, **parameters):
                return True
    except UniqueViolation:
        pass  # a newer job for the same work was committed after our check
    await end_cancelled(conn, job)
    return False


def _retry_after(error: Exception) -> float:
    """Seconds that a service asked us to wait, at most an hour; 0 by default."""
    seconds = error.details.get("retry_after") if isinstance(error, LatentError) else None
    return (
        min(max(0.0, seconds), MAX_RETRY_AFTER_SECONDS) if isinstance(seconds, int | float) else 0.0
    )
