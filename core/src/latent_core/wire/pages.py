"""Pages of documents (text, images, single-page PDFs) and the progress of PDFs."""

from __future__ import annotations

from typing import Annotated, Final, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from latent_core.domain.ids import WireJobId
from latent_core.domain.pdf_status import PdfStatus, PdfTotals, SelectedDocument
from latent_core.wire.base import ContainerId, Envelope, PagedEnvelope, RequestBody

PageImage = Literal["ready", "pending", "failed", "none"]


class PageView(BaseModel):
    page: int
    pages: int
    text: str
    width: int | None
    height: int | None
    page_uri: str | None
    page_image: PageImage
    page_image_cause: str | None = None


class PageAnswer(Envelope):
    page: PageView


class ListedPage(BaseModel):
    page: int
    page_uri: str | None
    page_image: PageImage
    sha256: str | None
    bytes: int | None
    mime: str | None
    width: int | None
    height: int | None


class PagesPage(PagedEnvelope):
    doc_id: UUID
    container_id: str
    source_uri: str
    source_type: str | None
    page_images: PageImage
    """Of the listed pages; of the whole document if it has no pages."""
    page_images_cause: str | None
    pages: list[ListedPage]


class PagePdfAnswer(Envelope):
    page: int
    page_pdf: Literal["ready", "pending"]
    pdf_uri: str | None
    pdf_sha256: str | None = None
    """Of the PDF that the page is from."""
    page_pdf_sha256: str | None = None
    """Of the page's own PDF, once it is ready."""
    job_id: WireJobId | None
    """The job that makes it, while it is pending."""


class BoxView(BaseModel):
    """Edges from the top left corner, as fractions of the width and height of the page's image: 0 to 1."""

    left: float
    top: float
    right: float
    bottom: float


class PageBoxesAnswer(Envelope):
    doc_id: UUID
    page: int
    chunk_id: UUID | None
    """None: the boxes of words are those of the whole page."""
    state: Literal["ready", "pending", "none"]
    """``pending``: ``job_id`` reads the words of the page. ``none``: ``cause`` says why there are no boxes."""
    cause: str | None = None
    passage: list[BoxView] = []
    """Around the passage of the chunk, one per line."""
    words: list[BoxView] = []
    """Around the words of ``q``."""
    job_id: WireJobId | None = None


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
