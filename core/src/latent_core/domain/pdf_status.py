"""How far the PDFs of containers are: what waits, what is parsed, what is drawn, what failed."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from pydantic import BaseModel


class PdfState(StrEnum):
    PENDING = "pending"
    """Its newest version is not read yet; a job of it is open."""
    PARSED = "parsed"
    """Its text is searched; not all of its pages are drawn."""
    DRAWN = "drawn"
    """All is done."""
    FAILED = "failed"
    """It, or its newest version, could not be read, or its pages could not be drawn: ``cause`` says why."""


class PdfStatus(BaseModel):
    """One PDF. Until it is read, nobody knows how many pages it has: 0."""

    doc_id: UUID
    container_id: str
    source_uri: str
    title: str | None
    status: PdfState
    total: int
    """Pages of what is searched now."""
    processed: int
    """Those that are read and drawn."""
    unprocessed: int
    job_id: int | None
    """Works on it, or is the one that failed."""
    cause: str | None


class PdfTotals(BaseModel):
    """Of all PDFs of the containers that were asked for, whatever is listed."""

    documents: int = 0
    pending: int = 0
    parsed: int = 0
    drawn: int = 0
    failed: int = 0
    pages_total: int = 0
    pages_processed: int = 0
    pages_unprocessed: int = 0


class Action(StrEnum):
    """What becomes of a document that somebody selected."""

    QUEUED = "queued"
    JOINED = "joined"
    """A job that was open already does it."""
    NONE = "none"
    """There is nothing left to do."""
    REFUSED = "refused"
    """No job can do it: ``cause`` says what a person can."""


class SelectedDocument(BaseModel):
    """One selected document and what becomes of it."""

    doc_id: UUID
    action: Action
    job_id: int | None = None
    cause: str | None = None
