"""Progress of PDFs, and having some of them finished."""

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
    """On the first page: they are counted over all PDFs, whatever a page lists."""
    documents: list[PdfStatus]


class ProcessBody(RequestBody):
    container_id: ContainerId
    doc_ids: Annotated[list[UUID], Field(min_length=1, max_length=MAX_SELECTED)]
    stream: bool = True
    """Follow them until they are done; else the jobs are answered at once (202), and a key keeps the answer."""


class ProcessAnswer(Envelope):
    container_id: str
    queued: int
    """Documents that a job works on now."""
    documents: list[SelectedDocument]
