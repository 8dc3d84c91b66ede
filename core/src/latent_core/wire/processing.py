"""Progress of PDFs, and a request to finish selected ones."""

from __future__ import annotations

from typing import Annotated, Final
from uuid import UUID

from pydantic import Field

from latent_core.domain.envelope import Envelope
from latent_core.domain.pdf_status import PdfStatus, PdfTotals, SelectedDocument
from latent_core.wire.base import PagedEnvelope, RequestBody
from latent_core.wire.fields import ContainerId

MAX_SELECTED: Final = 100


class PdfStatusPage(PagedEnvelope):
    totals: PdfTotals | None
    """Only on the first page: counts over all PDFs, not only the listed ones."""
    documents: list[PdfStatus]


class ProcessBody(RequestBody):
    container_id: ContainerId
    doc_ids: Annotated[list[UUID], Field(min_length=1, max_length=MAX_SELECTED)]
    stream: bool = True
    """Stream progress until all are done; without it the answer lists the jobs at once (202)."""


class ProcessAnswer(Envelope):
    container_id: str
    queued: int
    """Documents with a running job."""
    documents: list[SelectedDocument]
