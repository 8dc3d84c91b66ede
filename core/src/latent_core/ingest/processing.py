"""Requests for work on stored documents: process PDFs, extract a page as PDF, read its words, read an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, assert_never
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from latent_core.db.connection import Connection
from latent_core.db.doctor import repairs
from latent_core.db.documents import pdf_status
from latent_core.db.documents.page_words import PageWordsRow
from latent_core.db.documents.pages import PageSource
from latent_core.db.uploads import Upload
from latent_core.domain.chunk import SourceType
from latent_core.domain.errors import Conflict, NotFound
from latent_core.domain.ids import JobId
from latent_core.domain.job import PRIORITY_NOW, JobKind, NewJob
from latent_core.domain.pdf_status import Action, PdfState, PdfStatus, SelectedDocument
from latent_core.queue import admin
from latent_core.queue.enqueue import enqueue

NO_PDF: Final = "The document is no PDF. Add it again to render missing page images."
NO_ORIGINAL: Final = "The original is not stored. Add the document again."


async def process(
    conn: Connection, container_id: str, doc_ids: Sequence[UUID], *, principal: str
) -> list[SelectedDocument]:
    """The outcome for each document, in the given order. Idempotent: an open job is joined, finished work stays.

    The caller holds the container and has checked that it owns the documents.
    """
    found = await pdf_status.of_documents(conn, container_id, doc_ids)
    selected: dict[UUID, SelectedDocument] = {}
    for doc_id in sorted(doc_ids):  # concurrent calls lock the rows in the same order
        status = found.get(doc_id)
        if status is None:
            selected[doc_id] = SelectedDocument(doc_id=doc_id, action=Action.REFUSED, cause=NO_PDF)
        else:
            selected[doc_id] = await _one(conn, status, principal)
    return [selected[doc_id] for doc_id in doc_ids]


async def _one(conn: Connection, status: PdfStatus, principal: str) -> SelectedDocument:
    match status.status:
        case PdfState.DRAWN:
            return SelectedDocument(doc_id=status.doc_id, action=Action.NONE)
        case PdfState.PENDING:
            return SelectedDocument(
                doc_id=status.doc_id, action=Action.JOINED, job_id=status.job_id
            )
        case PdfState.FAILED:
            return await _again(conn, status)
        case PdfState.PARSED:
            if status.job_id is not None:
                return SelectedDocument(
                    doc_id=status.doc_id, action=Action.JOINED, job_id=status.job_id
                )
            return await _draw(conn, status, principal)
        case _:
            assert_never(status.status)


async def _again(conn: Connection, status: PdfStatus) -> SelectedDocument:
    """Requeue the failed job, whose payload names the bytes."""
    if status.job_id is None:
        return SelectedDocument(doc_id=status.doc_id, action=Action.REFUSED, cause=status.cause)
    try:
        await admin.requeue(conn, status.job_id)
    except Conflict:  # requeued, or the document was added again, by a concurrent request
        return SelectedDocument(doc_id=status.doc_id, action=Action.JOINED, job_id=status.job_id)
    return SelectedDocument(doc_id=status.doc_id, action=Action.QUEUED, job_id=status.job_id)


async def _draw(conn: Connection, status: PdfStatus, principal: str) -> SelectedDocument:
    found = await repairs.original(conn, status.doc_id)
    if found is None:
        return SelectedDocument(doc_id=status.doc_id, action=Action.REFUSED, cause=NO_ORIGINAL)
    job_id = await request_drawing(
        conn,
        status,
        generation=found["generation"],
        sha256=found["sha256"],
        filename=found["filename"],
        principal=principal,
    )
    return SelectedDocument(doc_id=status.doc_id, action=Action.QUEUED, job_id=job_id)


async def request_drawing(
    conn: Connection,
    status: PdfStatus,
    *,
    generation: int,
    sha256: str,
    filename: str,
    principal: str,
) -> JobId:
    """Enqueue the job that renders the pages of a live PDF. Coalesces with the one that follows an ingest."""
    key = f"render:{status.doc_id}"
    return await enqueue(
        conn,
        NewJob(
            kind=JobKind.RENDER,
            container_id=status.container_id,
            doc_id=status.doc_id,
            doc_key=key,
            dedupe_key=key,
            payload={
                "generation": generation,
                "sha256": sha256,
                "filename": filename,
                "source_type": SourceType.PDF.value,
            },
            principal=principal,
        ),
    )


PDF: Final = "application/pdf"


class PagePdfPayload(BaseModel):
    """Payload of a ``page_pdf`` or ``page_words`` job; ``sha256`` and ``filename`` belong to the original."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    generation: int
    page: int
    sha256: str
    filename: str


async def request_page_pdf(
    conn: Connection, doc_id: UUID, source: PageSource, *, principal: str
) -> JobId:
    """Enqueue the job that creates it, at top priority. ``NotFound`` if the document's source is no PDF."""
    if source.mime != PDF or source.sha256 is None or source.filename is None:
        raise NotFound(
            f"Document '{doc_id}' comes from {source.mime or 'an original that is not stored'}, not from a PDF: "
            "its pages have images only.",
            doc_id=str(doc_id),
            page=source.page,
        )
    payload = PagePdfPayload(
        generation=source.generation,
        page=source.page,
        sha256=source.sha256,
        filename=source.filename,
    )
    return await enqueue(
        conn, _page_job(JobKind.PAGE_PDF, source.container_id, doc_id, payload, principal)
    )


async def request_page_words(
    conn: Connection, doc_id: UUID, source: PageWordsRow, *, principal: str
) -> JobId | None:
    """Enqueue the job that reads them from the stored PDF, at top priority; None if the page is not of a PDF."""
    if source.mime != PDF or source.sha256 is None or source.filename is None:
        return None
    payload = PagePdfPayload(
        generation=source.generation,
        page=source.page,
        sha256=source.sha256,
        filename=source.filename,
    )
    job = _page_job(JobKind.PAGE_WORDS, source.container_id, doc_id, payload, principal)
    return await enqueue(conn, replace(job, max_attempts=MAX_ATTEMPTS))


def _page_job(
    kind: JobKind, container_id: str, doc_id: UUID, payload: PagePdfPayload, principal: str
) -> NewJob:
    """About one page of a stored PDF: one of a kind at a time, at top priority."""
    key = f"{kind.value}:{doc_id}:{payload.page}"
    return NewJob(
        kind=kind,
        container_id=container_id,
        doc_id=doc_id,
        doc_key=key,
        dedupe_key=key,
        payload=payload.model_dump(mode="json"),
        priority=PRIORITY_NOW,
        principal=principal,
    )


MAX_CHARS: Final = 2_000
"""Limit of a picture's text in a query: embedders read little more, and thousands of words do not help ranking."""
MAX_ATTEMPTS: Final = 2


class ReadImagePayload(BaseModel):
    """Payload of a ``read_image`` job."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: str
    filename: str


async def request_reading(conn: Connection, upload: Upload, *, principal: str) -> JobId:
    """Enqueue the job that reads it, at top priority. One job at a time reads the same bytes."""
    payload = ReadImagePayload(sha256=upload.sha256, filename=upload.filename)
    return await enqueue(
        conn,
        NewJob(
            kind=JobKind.READ_IMAGE,
            container_id=upload.container_id,
            doc_key=f"read_image:{upload.sha256}",
            # Per container: deleting a container removes its jobs, and another container may wait for the same bytes.
            dedupe_key=f"read_image:{upload.container_id}:{upload.sha256}",
            payload=payload.model_dump(mode="json"),
            priority=PRIORITY_NOW,
            max_attempts=MAX_ATTEMPTS,
            principal=principal,
        ),
    )
