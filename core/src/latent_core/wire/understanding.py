"""Status of summaries and page extractions, and requests for extraction."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from latent_core.domain.extraction import PageExtraction
from latent_core.domain.generated import GeneratedGroup
from latent_core.domain.pdf_status import SelectedDocument
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
