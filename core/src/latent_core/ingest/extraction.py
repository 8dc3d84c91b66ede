"""Requests for page extraction: which documents have it, and the job that does it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from latent_core.db.connection import Connection
from latent_core.db.documents import page_inputs
from latent_core.db.documents.page_inputs import PagedDocument
from latent_core.domain.chunk import SourceType
from latent_core.domain.job import PRIORITY_LATER, PRIORITY_NORMAL, JobKind, NewJob
from latent_core.domain.pdf_status import Action, SelectedDocument
from latent_core.queue.enqueue import enqueue_many

EXTRACTED: Final = frozenset(
    {
        SourceType.PDF,
        SourceType.IMAGE,
        SourceType.DOCUMENT,
        SourceType.SHEET,
        SourceType.SLIDES,
        SourceType.WEB,
        SourceType.MARKDOWN,
        SourceType.TEXT,
    }
)
"""Documents whose pages are prose or have a look of their own. Not code, data, mail, conversations, notebooks and
subtitles: a description of their pages adds nothing to their text. Records of a corpus have no pages."""
MAX_ATTEMPTS: Final = 3
"""Per batch of pages: each attempt at a slow page is a paid call."""


class ExtractPayload(BaseModel):
    """Payload of an ``extract`` job."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    generation: int
    pages: tuple[int, ...] | None = None
    """None: all."""
    force: bool = False
    """Also pages that are extracted."""
    after: int = 0
    """The last page that an earlier part of this job finished."""


def extract_job(
    container_id: str,
    doc_id: UUID,
    payload: ExtractPayload,
    *,
    principal: str,
    requested: bool = False,
) -> NewJob:
    """The job; ``requested``: by a person, not by a publication. Queued jobs for the same pages become one."""
    every = payload.pages is None and not payload.force
    chosen = hashlib.sha256(f"{payload.pages} {payload.force}".encode()).hexdigest()
    return NewJob(
        kind=JobKind.EXTRACT,
        container_id=container_id,
        doc_id=doc_id,
        doc_key=f"extract:{doc_id}",
        dedupe_key=f"extract:{doc_id}" if every else f"extract:{doc_id}:{chosen}",
        payload=payload.model_dump(mode="json"),
        priority=PRIORITY_NORMAL if requested else PRIORITY_LATER,
        max_attempts=MAX_ATTEMPTS,
        principal=principal,
    )


NOT_PUBLISHED: Final = "It is not published yet."
NOT_EXTRACTED: Final = "Pages of documents of this type are not extracted."
NO_PAGES: Final = "It has no pages yet. Try again when they are drawn (latent pages status)."


async def request(
    conn: Connection,
    container_id: str,
    doc_ids: Sequence[UUID],
    pages: Sequence[int] | None,
    *,
    force: bool,
    principal: str,
) -> list[SelectedDocument]:
    """The outcome for each document, in the given order. The caller holds the container, whose manifest permits it."""
    refused: dict[UUID, str] = {}
    jobs: dict[UUID, NewJob] = {}
    for doc_id in doc_ids:
        document = await page_inputs.document(conn, doc_id)
        if document is None or (cause := _refusal(document, pages)) is not None:
            refused[doc_id] = NOT_PUBLISHED if document is None else str(cause)
            continue
        payload = ExtractPayload(
            generation=document.generation,
            pages=None if pages is None else tuple(sorted(set(pages))),
            force=force,
        )
        jobs[doc_id] = extract_job(
            container_id, doc_id, payload, principal=principal, requested=True
        )
    ids = dict(zip(jobs, await enqueue_many(conn, list(jobs.values())), strict=True))
    return [
        SelectedDocument(doc_id=doc_id, action=Action.REFUSED, cause=refused[doc_id])
        if doc_id in refused
        else SelectedDocument(doc_id=doc_id, action=Action.QUEUED, job_id=ids[doc_id])
        for doc_id in doc_ids
    ]


def _refusal(document: PagedDocument, pages: Sequence[int] | None) -> str | None:
    if document.is_record or document.source_type not in EXTRACTED:
        return NOT_EXTRACTED
    if not document.pages:
        return NO_PAGES
    lacking = sorted(set(pages or ()) - set(document.pages))
    if lacking:
        return f"It has no page {lacking[0]}; its last page is {document.pages[-1]}."
    return None
