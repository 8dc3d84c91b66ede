"""What language models have made of documents: summaries and page extractions, and what it cost."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from pydantic import BaseModel

from latent_core.domain.ids import WireJobId
from latent_core.domain.job import JobState


class ModelUse(BaseModel):
    """Tokens and cost, by the prices of the provider."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0


class ExtractionStatus(ModelUse):
    """Pages of the live generation. Tokens and cost are those of the stored extractions."""

    total: int = 0
    processed: int = 0
    """Extracted."""
    failed: int = 0
    stale: int = 0
    """Of processed and failed: by another model, prompt or version of the form than today's."""
    unprocessed: int = 0


class DocumentExtraction(ExtractionStatus):
    """Of one document, with its newest job."""

    job_id: WireJobId | None = None
    job_state: JobState | None = None
    cause: str | None = None
    """Why the job failed, else why the first failed page did."""
    failed_pages: list[int] = []
    """The first ones."""


class SummaryState(StrEnum):
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    NONE = "none"


class DocumentSummary(ModelUse):
    state: SummaryState = SummaryState.NONE
    stale: bool = False
    """By another model than the one that the manifest names."""
    cause: str | None = None


class DocumentUnderstanding(BaseModel):
    """One document."""

    doc_id: UUID
    container_id: str
    source_uri: str
    title: str | None
    extraction: DocumentExtraction | None
    """None: documents of this type are not extracted."""
    summary: DocumentSummary


class SummaryTotals(ModelUse):
    documents: int = 0
    done: int = 0
    failed: int = 0
    skipped: int = 0
    stale: int = 0


class ExtractionTotals(ExtractionStatus):
    documents: int = 0
    """Documents whose pages are extracted."""


class PurposeUse(ModelUse):
    """All calls of language models for a purpose, repeated and refused ones too."""

    purpose: str
    model: str
    calls: int


class UnderstandingTotals(BaseModel):
    """Of a container."""

    extraction_model: str | None
    """That the manifest names; None: extraction is off."""
    summary_model: str | None
    extraction: ExtractionTotals
    summaries: SummaryTotals
    usage: list[PurposeUse]
