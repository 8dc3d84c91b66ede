"""Progress of the PDFs of containers: pending, parsed, drawn, failed."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from pydantic import BaseModel

from latent_core.domain.ids import WireJobId


class PdfState(StrEnum):
    PENDING = "pending"
    """Its newest version is not parsed yet; its job is open."""
    PARSED = "parsed"
    """Its text is searchable; not all of its pages are drawn."""
    DRAWN = "drawn"
    """Everything is done."""
    FAILED = "failed"
    """Its newest version could not be parsed, or its pages could not be drawn; ``cause`` says why."""


class PdfStatus(BaseModel):
    """One PDF. Its number of pages is 0 until it is parsed."""

    doc_id: UUID
    container_id: str
    source_uri: str
    title: str | None
    status: PdfState
    total: int
    """Pages of the live generation."""
    processed: int
    """Parsed and drawn pages."""
    unprocessed: int
    job_id: WireJobId | None
    """The open job, or the one that failed."""
    cause: str | None


class PdfTotals(BaseModel):
    """Counts over all PDFs of the requested containers, not only the listed ones."""

    documents: int = 0
    pending: int = 0
    parsed: int = 0
    drawn: int = 0
    failed: int = 0
    pages_total: int = 0
    pages_processed: int = 0
    pages_unprocessed: int = 0


class Action(StrEnum):
    """The outcome for a selected document."""

    QUEUED = "queued"
    JOINED = "joined"
    """An already open job does it."""
    NONE = "none"
    """Nothing is left to do."""
    REFUSED = "refused"
    """No job can do it; ``cause`` says what to do."""


class SelectedDocument(BaseModel):
    """One selected document and its outcome."""

    doc_id: UUID
    action: Action
    job_id: WireJobId | None = None
    cause: str | None = None
