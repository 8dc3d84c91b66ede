"""End a claim: done, failed or cancelled, and store issues as JSON. Every statement is fenced by the claim."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, LiteralString, Protocol

from psycopg.types.json import Jsonb

from latent_core.db.connection import Connection
from latent_core.domain.errors import Issue, IssueCode, LatentError
from latent_core.domain.ids import JobId
from latent_core.domain.job import ClaimedJob
from latent_core.queue.errors import LeaseLost

MESSAGE_CHARACTERS: Final = 2000


def issue_of(error: BaseException) -> Issue:
    """The issue that users see for ``error``; for an unexpected error only its name, the log has the rest."""
    if isinstance(error, LatentError):
        return error.issue()
    return Issue(
        code=IssueCode.UNAVAILABLE,
        message=f"an unexpected error ({type(error).__name__}) in the worker; see the worker's log",
    )


def stored(issue: Issue | None) -> Jsonb | None:
    """``issue`` for a jsonb column."""
    return None if issue is None else Jsonb(_dump(issue))


def stored_list(issues: Iterable[Issue]) -> Jsonb:
    """``issues`` for a jsonb column."""
    return Jsonb([_dump(issue) for issue in issues])


def _dump(issue: Issue) -> Any:
    cut = issue.model_copy(update={"message": issue.message[:MESSAGE_CHARACTERS]})
    return clean(cut.model_dump(mode="python"))


def clean(value: Any) -> Any:
    """``value`` as jsonb can store it: no NUL, no lone surrogate, only JSON types.

    A cause often quotes the content that could not be read; that must not prevent recording the failure.
    """
    match value:
        case str():
            return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
        case None | bool() | int() | float():
            return value
        case dict():
            return {clean(str(key)): clean(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [clean(item) for item in value]
        case _:
            return clean(str(value))


FINISH: Final = """
WITH finished AS (
    UPDATE jobs SET
        state = 'done',
        payload = payload - 'sealed_password',
        cause = NULL,
        warnings = warnings || %(warnings)s,
        result = %(result)s,
        lease_expires = NULL,
        finished_at = clock_timestamp()
    WHERE id = %(id)s AND claim_id = %(claim_id)s AND state = 'running'
    RETURNING id, claim_id
)
INSERT INTO job_events (job_id, event, details)
SELECT id, 'done', jsonb_build_object('claim_id', claim_id) FROM finished
"""

# The caller makes it all or nothing: a job that is not counted was lost or is being cancelled.
FINISH_ALL: Final = """
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::bigint[], %(claim_ids)s::bigint[], %(steps)s::integer[]) AS g (id, claim_id, steps)
), held AS MATERIALIZED (
    SELECT jobs.id, given.steps FROM jobs JOIN given USING (id, claim_id)
    WHERE state = 'running' AND NOT cancel_requested
    ORDER BY jobs.id
    FOR NO KEY UPDATE OF jobs
), finished AS (
    UPDATE jobs SET
        state = 'done',
        payload = payload - 'sealed_password',
        cause = NULL,
        progress_done = held.steps, progress_total = held.steps, progress_note = NULL,
        lease_expires = NULL,
        finished_at = clock_timestamp()
    FROM held
    WHERE jobs.id = held.id AND state = 'running'
    RETURNING jobs.id, claim_id
)
INSERT INTO job_events (job_id, event, details)
SELECT id, 'done', jsonb_build_object('claim_id', claim_id) FROM finished
"""

HOLD: Final = """
SELECT 1 FROM jobs WHERE id = %(id)s AND claim_id = %(claim_id)s AND state = 'running' FOR NO KEY UPDATE
"""

FAIL: Final = """
WITH failed AS (
    UPDATE jobs SET
        state = 'failed',
        payload = payload - 'sealed_password',
        cause = %(cause)s,
        lease_expires = NULL,
        finished_at = clock_timestamp()
    WHERE id = %(id)s AND claim_id = %(claim_id)s AND state = 'running'
    RETURNING id, claim_id, cause
)
INSERT INTO job_events (job_id, event, details)
SELECT id, 'failed', jsonb_build_object('claim_id', claim_id, 'cause', cause) FROM failed
"""

# Also ends a job that should be queued again while a newer job for the same work is queued.
CANCEL: Final = """
WITH cancelled AS (
    UPDATE jobs SET
        state = 'cancelled',
        payload = payload - 'sealed_password',
        cause = CASE WHEN cancel_requested THEN cause ELSE %(superseded)s END,
        lease_expires = NULL,
        finished_at = clock_timestamp()
    WHERE id = %(id)s AND claim_id = %(claim_id)s AND state = 'running'
    RETURNING id, claim_id, cancel_requested
)
INSERT INTO job_events (job_id, event, details)
SELECT id, CASE WHEN cancel_requested THEN 'cancelled' ELSE 'superseded' END,
       jsonb_build_object('claim_id', claim_id)
FROM cancelled
"""

SUPERSEDED: Final = Issue(
    code=IssueCode.CONFLICT,
    message="a newer job for the same work took this one's place",
)


class Fence(Protocol):
    """A job and the claim that holds it: every write of a worker matches both."""

    @property
    def id(self) -> JobId: ...

    @property
    def claim_id(self) -> int: ...


async def finish(
    conn: Connection,
    job: ClaimedJob,
    *,
    warnings: Iterable[Issue] = (),
    result: Mapping[str, Any] | None = None,
) -> None:
    """Mark ``job`` done in the transaction that makes its effect visible.

    Raises ``LeaseLost`` when the claim is no longer valid: the transaction must roll back.
    """
    stored_result = None if result is None else Jsonb(clean(dict(result)))
    if not await fenced(conn, FINISH, job, warnings=stored_list(warnings), result=stored_result):
        raise lease_lost(job)


async def finish_all(conn: Connection, jobs: Sequence[tuple[ClaimedJob, int]]) -> None:
    """Mark jobs done in the transaction that makes all their effects visible, each with its number of steps.

    Raises ``LeaseLost`` when a claim is no longer valid or its job is being cancelled: the transaction must roll
    back, and each job then finds out for itself which of the two it was.
    """
    parameters = {
        "ids": [job.id for job, _ in jobs],
        "claim_ids": [job.claim_id for job, _ in jobs],
        "steps": [steps for _, steps in jobs],
    }
    if (await conn.execute(FINISH_ALL, parameters)).rowcount != len(jobs):
        raise LeaseLost(f"at least one of {len(jobs)} jobs is no longer held by its claim")


async def hold(conn: Connection, job: ClaimedJob) -> None:
    """Lock the job's row at the start of a transaction that ends the claim later. ``LeaseLost``.

    For writers that must lock other rows before those of queued jobs (``requeue_with`` at the end).
    """
    if not await fenced(conn, HOLD, job):
        raise lease_lost(job)


async def fail(conn: Connection, job: Fence, cause: Issue) -> None:
    """Fail ``job`` with its cause; it stays as a dead letter until it is requeued. ``LeaseLost``."""
    if not await fenced(conn, FAIL, job, cause=stored(cause)):
        raise lease_lost(job)


async def end_cancelled(conn: Connection, job: Fence) -> None:
    """End ``job`` because it was cancelled, or because a newer job does its work. ``LeaseLost``."""
    if not await fenced(conn, CANCEL, job, superseded=stored(SUPERSEDED)):
        raise lease_lost(job)


async def fenced(conn: Connection, statement: LiteralString, job: Fence, **parameters: Any) -> bool:
    """Run a statement that writes one row only if the claim is still valid; returns whether it was."""
    cursor = await conn.execute(statement, {"id": job.id, "claim_id": job.claim_id, **parameters})
    return cursor.rowcount == 1


def lease_lost(job: Fence) -> LeaseLost:
    return LeaseLost(f"job {job.id} is no longer held by claim {job.claim_id}")
