"""The PDF of a single page, created on first request."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from latent_core.db.connection import Connection
from latent_core.db.documents.page_pdfs import PageSource
from latent_core.domain.errors import NotFound
from latent_core.domain.ids import JobId
from latent_core.domain.job import PRIORITY_NOW, JobKind, NewJob
from latent_core.queue.enqueue import enqueue

PDF: Final = "application/pdf"


class PagePdfPayload(BaseModel):
    """Payload of a ``page_pdf`` job; ``sha256`` and ``filename`` belong to the original."""

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
    key = f"page_pdf:{doc_id}:{source.page}"
    payload = PagePdfPayload(
        generation=source.generation,
        page=source.page,
        sha256=source.sha256,
        filename=source.filename,
    )
    return await enqueue(
        conn,
        NewJob(
            kind=JobKind.PAGE_PDF,
            container_id=source.container_id,
            doc_id=doc_id,
            doc_key=key,
            dedupe_key=key,
            payload=payload.model_dump(mode="json"),
            priority=PRIORITY_NOW,
            principal=principal,
        ),
    )
