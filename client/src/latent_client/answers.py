"""Answers of the gateway that are not nouns of the core already (docs/api.md)."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, Field

from latent_core.domain.container import ContainerDescription, ContainerSummary
from latent_core.domain.document import DocumentView
from latent_core.domain.envelope import Envelope
from latent_core.domain.evaluation import KeptRun
from latent_core.domain.findings import DoctorReport
from latent_core.domain.hit import PlaceView
from latent_core.domain.job import JobView


class ContainersAnswer(Envelope):
    containers: list[ContainerSummary]


class Description(Envelope, ContainerDescription):
    """A container with its manifest, sizes and etag."""


class Written(Envelope):
    """A container that was created or changed."""

    container: ContainerSummary
    etag: str
    files: list[str] = []
    """Names of the files the server wrote into its manifest folder."""
    changed: bool = True


class Queued(Envelope):
    """Work that was accepted."""

    job_id: int
    status: str


class Added(Queued):
    """A document that was accepted."""

    doc_id: UUID
    source_uri: str


class UploadView(BaseModel):
    file_ref: str
    filename: str
    mime: str
    bytes: int
    sha256: str


class UploadAnswer(Envelope):
    upload: UploadView


class ListedFile(BaseModel):
    """A file of a folder as it is announced."""

    path: str
    """Relative to the root, with slashes."""
    bytes: int
    mtime_ns: int
    sha256: str | None = None
    meta_sha256: str | None = None
    """Of the meta it would be added with; none without meta."""


class RefusedFile(BaseModel):
    """A file that was added as it is now, and whose job failed for good."""

    path: str
    reason: str
    job_id: int


class ListingAnswer(Envelope):
    """What the server wants of an announced folder."""

    need: list[str] = []
    """To be uploaded and added."""
    hash: list[str] = []
    """To be announced again, with their sha256."""
    refused: list[RefusedFile] = []
    unchanged: int = 0
    open_jobs: list[int] = []
    """Of unchanged files that were sent before and are not searchable yet."""
    vanished: int = 0
    """Documents whose files are gone, when they were to be deleted or counted."""
    deleted: list[str] = []
    """Source uris of documents that vanished from the folder."""
    delete_jobs: list[int] = []


class Paged(Envelope):
    """One page of a list."""

    next_cursor: str | None = None
    """Absent on the last page."""


class DocumentsPage(Paged):
    documents: list[DocumentView]


class DocumentAnswer(Envelope):
    document: DocumentView


class ChunkView(BaseModel):
    """A live chunk, whole; offsets in characters of the source's text."""

    chunk_id: UUID
    doc_id: UUID
    source_uri: str
    file_hash: str | None = None
    """SHA-256 of the document's bytes."""
    ord: int
    ordinal: int
    modality: str
    source_type: str
    block_type: str
    text: str
    embed_text: str
    place: PlaceView
    parent_section: str | None = None
    key_path: str | None = None
    table_id: str | None = None
    row_group: int | None = None
    offsets: tuple[int, int]
    content_hash: str
    token_count: int
    windows: int = 1
    duplicate_of: UUID | None = None
    """The earlier chunk that it nearly repeats."""
    provenance: dict[str, Any]
    meta: dict[str, Any]
    indexed_at: datetime


class ChunksPage(Paged):
    chunks: list[ChunkView]


class ChunkAnswer(Envelope):
    chunk: ChunkView


class SizeClass(BaseModel):
    """Of a histogram; the last one has no end."""

    at_least: int
    below: int | None
    chunks: int


class Distribution(BaseModel):
    min: int
    p50: int
    p95: int
    max: int
    histogram: list[SizeClass] = []


class ChunkSizes(BaseModel):
    chunks: int
    duplicates: int
    tokens: Distribution
    characters: Distribution


class SizesAnswer(Envelope):
    """How long chunks are: all of them, and by source type."""

    total: ChunkSizes | None
    by_source_type: dict[str, ChunkSizes] = {}


class PageView(BaseModel):
    """One page of a document; sizes in pixels of its image."""

    page: int
    pages: int
    text: str
    width: int | None = None
    height: int | None = None
    page_uri: str | None = None
    page_image: str = "none"
    page_image_cause: str | None = None


class PageAnswer(Envelope):
    page: PageView


class ListedPage(BaseModel):
    """A page without its text; ``bytes`` and ``sha256`` are those of its image."""

    page: int
    page_uri: str | None = None
    page_image: str = "none"
    sha256: str | None = None
    bytes: int | None = None
    mime: str | None = None
    width: int | None = None
    height: int | None = None


class PagesPage(Paged):
    doc_id: UUID
    container_id: str
    source_uri: str
    source_type: str | None = None
    page_images: str = "none"
    page_images_cause: str | None = None
    pages: list[ListedPage]


class PagePdf(Envelope):
    """One page of a PDF as a file of its own."""

    page: int
    page_pdf: str
    """``ready`` or ``pending``."""
    pdf_uri: str | None = None
    job_id: int | None = None
    """Of the job that makes it, while it is pending."""


class JobsPage(Paged):
    jobs: list[JobView]


class RequeuedJobs(Envelope):
    """What was tried again; ``left`` stay failed, since a newer job does their work, and ``remaining`` since the
    queue takes no more: the issues say when to come back."""

    job_ids: list[int]
    left: int
    remaining: int = 0
    next_cursor: str | None = None


class JobAnswer(Envelope):
    job: JobView


class JobNews(BaseModel):
    """Something that happened to a job, or (``progress``) how far it has come."""

    event: str
    """``end`` is the last: the job is in a final state."""
    id: int | None = None
    """Of a line of the job's history."""
    at: datetime | None = None
    details: dict[str, Any] = {}
    job: JobView | None = None
    """The job as it stood then; None when it is gone."""


class EvalRuns(Paged):
    runs: list[KeptRun]


class DoctorAnswer(Envelope):
    report: DoctorReport


class ToolView(BaseModel):
    """A tool as agents that speak plain HTTP are told of it."""

    name: str
    mcp_name: str = Field(alias="mcpName")
    title: str
    description: str
    input_schema: dict[str, Any] = Field(alias="inputSchema")


class ToolsAnswer(Envelope):
    tools: list[ToolView]


class Readiness(BaseModel):
    status: str
    services: dict[str, Any] = {}


class Blob(BaseModel):
    """Bytes behind a signed link."""

    mime: str
    content: bytes


class WaitProgress(BaseModel):
    """How far the jobs that are waited for have come."""

    total: int
    done: int
    """In a final state."""
    failed: int
    running: list[JobView]
    """As they were last seen."""
    at: datetime
