"""Status of summaries and page extractions, and requests for extraction."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from latent_core.domain.extraction import PageExtraction
from latent_core.domain.generated import GeneratedGroup
from latent_core.domain.ids import WireJobId
from latent_core.domain.pdf_status import SelectedDocument
from latent_core.domain.summary import SummaryFrontMatter
from latent_core.domain.understanding import DocumentUnderstanding, UnderstandingTotals
from latent_core.domain.visual_importance import Importance, ImportanceBy
from latent_core.wire.base import ContainerId, Envelope, PagedEnvelope, RequestBody
from latent_core.wire.pages import MAX_SELECTED

MAX_PAGES = 10_000


class UnderstandingPage(PagedEnvelope):
    totals: UnderstandingTotals | None
    """Only on the first page: of the whole container."""
    documents: list[DocumentUnderstanding]


class ExtractBody(RequestBody):
    container_id: ContainerId
    doc_ids: Annotated[list[UUID], Field(min_length=1, max_length=MAX_SELECTED)]
    pages: Annotated[
        list[Annotated[int, Field(ge=1, lt=2**31)]] | None,
        Field(min_length=1, max_length=MAX_PAGES),
    ] = None
    """Only these pages, from 1."""
    force: bool = False
    """Also pages that are extracted, and pages whose answer was refused."""
    stream: bool = True
    """Stream progress until all are done; without it the answer lists the jobs at once (202)."""


class ExtractAnswer(Envelope):
    container_id: str
    queued: int
    """Documents with a job."""
    documents: list[SelectedDocument]


class DropGeneratedBody(RequestBody):
    container_id: ContainerId
    group: GeneratedGroup
    doc_ids: Annotated[list[UUID] | None, Field(min_length=1, max_length=MAX_SELECTED)] = None
    """Default: all documents of the container."""


MAX_SUMMARISED: Final = 500


class SummariseBody(RequestBody):
    container_id: ContainerId
    doc_ids: Annotated[list[UUID] | None, Field(min_length=1, max_length=MAX_SUMMARISED)] = None
    """Default: the next documents without a summary; with ``force`` the next of all."""
    after: UUID | None = None
    """Without ``doc_ids``: ``next`` of the answer before."""
    force: bool = False
    """Also where a summary of the text exists, or its answers were refused."""


class SummaryJob(BaseModel):
    doc_id: UUID
    job_id: WireJobId


class SummariseAnswer(Envelope):
    container_id: str
    jobs: list[SummaryJob]
    next: UUID | None
    """Send it as ``after`` for the next documents; null: there are no more."""


class SummaryView(BaseModel):
    """The summary of the live version of a document."""

    doc_id: UUID
    state: Literal["done", "failed", "skipped"]
    front_matter: SummaryFrontMatter | None
    text: str
    filename: str
    file: str | None
    """``<doc_id>.summary.md``: the front matter in YAML, then the text."""
    model: str
    prompt_version: str
    created_at: datetime
    cause: str | None
    """Why it failed or was skipped."""
    raw: str | None
    """For owners: the answer that was refused, at most 64 KiB of it."""
    input_tokens: int
    output_tokens: int
    cost: float


class DocumentSummaryAnswer(Envelope):
    summary: SummaryView


class FoundPage(BaseModel):
    """A page that has the text, or the number."""

    doc_id: UUID
    page: int
    source_uri: str
    title: str | None
    excerpt: str
    """Of the page's text, around the match if that is there."""
    found_in: list[Literal["source", "extraction"]]
    """Empty without a text to find."""
    extraction: Literal["none", "done", "failed"]
    cause: str | None
    visual_importance: Importance | None
    visual_importance_by: ImportanceBy | None
    page_hash: str | None
    """Of everything that the model read to extract it."""
    page_pdf_sha256: str | None


class FoundPages(PagedEnvelope):
    pages: list[FoundPage]


class ExtractionView(BaseModel):
    """A page extraction as it is stored."""

    doc_id: UUID
    source: str
    page: int
    next_page: int | None
    """The page that was consulted with it."""
    state: Literal["done", "failed"]
    extraction: PageExtraction | None
    cause: str | None
    raw: str | None
    """The answer that was refused, at most 64 KiB of it."""
    model: str
    prompt_version: str
    version: str
    page_hash: str
    pdf_sha256: str | None
    page_pdf_sha256: str | None
    next_page_pdf_sha256: str | None
    input_tokens: int
    output_tokens: int
    cost: float
    created_at: datetime


class ExtractionAnswer(Envelope):
    page: ExtractionView
