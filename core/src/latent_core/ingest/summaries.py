"""Requests for summaries: which documents, and the job that makes one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from latent_core.db.connection import Connection
from latent_core.db.documents import summary_inputs
from latent_core.db.documents.summary_inputs import LiveDocument
from latent_core.domain.ids import JobId
from latent_core.domain.job import PRIORITY_LATER, PRIORITY_NORMAL, JobKind, NewJob
from latent_core.queue.enqueue import enqueue_many

MAX_ATTEMPTS: Final = 3
"""Each attempt at a slow document is a paid call."""
DOCUMENTS_PER_REQUEST: Final = 500


class SummarisePayload(BaseModel):
    """Payload of a ``summarise`` job."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    generation: int
    force: bool = False
    """Also if there is a summary of this text."""


def summarise_job(
    container_id: str,
    doc_id: UUID,
    payload: SummarisePayload,
    *,
    principal: str,
    requested: bool = False,
) -> NewJob:
    """The job; ``requested``: by a person, not by a publication. A queued one for the document is joined."""
    key = f"summarise:{doc_id}"
    return NewJob(
        kind=JobKind.SUMMARISE,
        container_id=container_id,
        doc_id=doc_id,
        doc_key=key,
        dedupe_key=f"{key}:force" if payload.force else key,
        payload=payload.model_dump(mode="json"),
        priority=PRIORITY_NORMAL if requested else PRIORITY_LATER,
        max_attempts=MAX_ATTEMPTS,
        principal=principal,
    )


@dataclass(frozen=True, slots=True)
class RequestedSummaries:
    jobs: dict[UUID, JobId]
    """By document."""
    last: UUID | None
    """The document to continue after; None if there are no more."""


async def request(
    conn: Connection, container_id: str, doc_ids: Sequence[UUID], *, force: bool, principal: str
) -> RequestedSummaries:
    """Jobs for those of ``doc_ids`` that are published. The caller holds the container, whose manifest permits it."""
    found = await summary_inputs.live(conn, container_id, doc_ids)
    chosen = [found[doc_id] for doc_id in doc_ids if doc_id in found]
    return RequestedSummaries(
        await _enqueued(conn, container_id, chosen, force=force, principal=principal), None
    )


async def request_all(
    conn: Connection, container_id: str, *, after: UUID | None, force: bool, principal: str
) -> RequestedSummaries:
    """Jobs for the next documents without a summary, or with ``force`` for the next of all."""
    found = await summary_inputs.unprocessed(
        conn, container_id, after=after, limit=DOCUMENTS_PER_REQUEST, every=force
    )
    return RequestedSummaries(
        await _enqueued(conn, container_id, found, force=force, principal=principal),
        found[-1].doc_id if len(found) == DOCUMENTS_PER_REQUEST else None,
    )


async def _enqueued(
    conn: Connection,
    container_id: str,
    chosen: Sequence[LiveDocument],
    *,
    force: bool,
    principal: str,
) -> dict[UUID, JobId]:
    jobs = [
        summarise_job(
            container_id,
            one.doc_id,
            SummarisePayload(generation=one.generation, force=force),
            principal=principal,
            requested=True,
        )
        for one in chosen
    ]
    ids = await enqueue_many(conn, jobs)
    return {one.doc_id: job_id for one, job_id in zip(chosen, ids, strict=True)}
