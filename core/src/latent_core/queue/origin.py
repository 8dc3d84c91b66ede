"""What enqueues jobs: a request, or a running job. It decides the batch of new jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from latent_core.db.connection import Connection
from latent_core.domain.job import INTERNAL_KINDS, ClaimedJob, NewJob

# A conflict waits for the transaction that inserts the same batch, and returns no row.
INSERT: Final = """
INSERT INTO job_batches (request, container_id, principal, kind, internal)
VALUES (%(request)s, %(container_id)s, %(principal)s, %(kind)s, %(internal)s)
ON CONFLICT (request, container_id, principal) WHERE request IS NOT NULL DO NOTHING
RETURNING id
"""

SELECT: Final = """
SELECT id FROM job_batches
WHERE request = %(request)s AND container_id = %(container_id)s AND principal = %(principal)s
"""


@dataclass(frozen=True, slots=True)
class JobOrigin:
    """The code that enqueues now."""

    request: str | None = None
    """Of a person or an agent; requests with one id are one batch."""
    job_id: int | None = None
    """The running job."""
    batch_id: int | None = None
    """Of the running job."""


_NO_ORIGIN: Final = JobOrigin()
_ORIGIN: ContextVar[JobOrigin] = ContextVar("what enqueues jobs", default=_NO_ORIGIN)


@contextmanager
def from_request(request: str) -> Iterator[None]:
    """Jobs enqueued in the block, and in tasks started in it, belong to this request."""
    before = _ORIGIN.set(JobOrigin(request=request))
    try:
        yield
    finally:
        _ORIGIN.reset(before)


@contextmanager
def from_job(job: ClaimedJob) -> Iterator[None]:
    """Jobs enqueued in the block follow from ``job`` and belong to its batch."""
    before = _ORIGIN.set(JobOrigin(job_id=job.id, batch_id=job.batch_id))
    try:
        yield
    finally:
        _ORIGIN.reset(before)


async def batches_of(conn: Connection, jobs: Iterable[NewJob]) -> list[dict[str, Any]]:
    """``batch_id`` and ``parent_id`` of each job, with new batches where there is none yet."""
    origin = _ORIGIN.get()
    if origin.batch_id is not None:
        placed = {"batch_id": origin.batch_id, "parent_id": origin.job_id}
        return [placed for _ in jobs]
    found: dict[tuple[str, str], int] = {}
    columns: list[dict[str, Any]] = []
    for job in jobs:
        key = (job.container_id, job.principal)
        if key not in found:
            found[key] = await _batch(conn, origin.request, job)
        columns.append({"batch_id": found[key], "parent_id": origin.job_id})
    return columns


async def _batch(conn: Connection, request: str | None, job: NewJob) -> int:
    values = {
        "request": request,
        "container_id": job.container_id,
        "principal": job.principal,
        "kind": job.kind.value,
        "internal": job.kind in INTERNAL_KINDS,
    }
    row = await (await conn.execute(INSERT, values)).fetchone()
    if row is None:  # another request of the batch has inserted it: this statement sees it
        row = await (await conn.execute(SELECT, values)).fetchone()
    if row is None:
        raise RuntimeError(
            "a batch that exists was not found: the transaction is not READ COMMITTED"
        )
    return int(row["id"])
