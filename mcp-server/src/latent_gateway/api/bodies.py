"""Bodies of requests and answers that are not questions of search (docs/api.md)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from latent_core.domain.container import ContainerDescription, ContainerState, ContainerSummary
from latent_core.domain.document import DocumentView
from latent_core.domain.envelope import Envelope
from latent_core.domain.evaluation import KeptRun
from latent_core.domain.hit import PlaceView
from latent_core.domain.job import JobView
from latent_core.domain.text import Meta, Text

MAX_LISTED_FILES = 5000
MAX_PATH = 4096
MAX_URI_BYTES = 2000
"""What the index on uris takes, with room to spare."""
YEARS = range(1900, 2201)


def _plausible(value: datetime) -> datetime:
    if value.year not in YEARS:
        raise ValueError(f"must lie in the years {YEARS[0]} to {YEARS[-1]}")
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


def _indexable(value: str) -> str:
    if len(value.encode()) > MAX_URI_BYTES:
        raise ValueError(f"must have at most {MAX_URI_BYTES} bytes")
    return value


SourceUri = Annotated[Text, AfterValidator(_indexable)]
Moment = Annotated[datetime, AfterValidator(_plausible)]
"""With a time zone; UTC unless it says otherwise."""


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ContainerList(Envelope):
    containers: list[ContainerSummary]
    next_cursor: str | None = None


class Description(Envelope, ContainerDescription):
    pass


class ManifestBody(_Request):
    manifest: dict[str, Any]


class ContainerCreated(Envelope):
    container: ContainerSummary
    etag: str
    files: list[str]
    """Names of the files written into the manifest folder."""


class ContainerUpdated(Envelope):
    container: ContainerSummary
    etag: str
    changed: bool


class StateBody(_Request):
    state: ContainerState


class ContainerStateAnswer(Envelope):
    container: ContainerSummary
    changed: bool


class JobAccepted(Envelope):
    job_id: int
    status: Literal["queued"] = "queued"


class UploadView(BaseModel):
    file_ref: str
    filename: str
    mime: str
    bytes: int
    sha256: str


class Uploaded(Envelope):
    upload: UploadView


class AddBody(_Request):
    container_id: Text
    uri: Annotated[Text | None, Field(max_length=MAX_PATH)] = None
    file_ref: Annotated[Text | None, Field(max_length=MAX_PATH)] = None
    modality: Literal["auto", "text", "image"] = "auto"
    source_uri: SourceUri | None = None
    filename: Annotated[str | None, Field(max_length=1024)] = None
    modified_at: Moment | None = None
    mtime_ns: Annotated[int | None, Field(ge=0, lt=2**63)] = None
    meta: Meta = {}
    rebuild: bool = False
    """Make it anew though it has not changed; what is live stays until then."""


class Added(JobAccepted):
    doc_id: UUID
    source_uri: str


class ListedFile(_Request):
    path: Annotated[str, Field(min_length=1, max_length=MAX_PATH)]
    """Relative to the root, with ``/``."""
    bytes: Annotated[int, Field(ge=0)]
    mtime_ns: Annotated[int, Field(ge=0, lt=2**63)]
    sha256: Annotated[str | None, Field(pattern="^[0-9a-f]{64}$")] = None
    meta_sha256: Annotated[str | None, Field(pattern="^[0-9a-f]{64}$")] = None
    """Of the meta it would be added with (``doc_meta.given_digest``); none without meta."""


class ListingBody(_Request):
    """A folder's files, or one part of them: in bytewise order of their paths, those after ``after`` up to ``through``."""

    root: Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^/\x00]+$")]
    files: Annotated[list[ListedFile], Field(max_length=200_000)]
    after: Annotated[str | None, Field(max_length=MAX_PATH, pattern=r"^[^\x00]*$")] = None
    through: Annotated[str | None, Field(max_length=MAX_PATH, pattern=r"^[^\x00]*$")] = None
    delete_vanished: bool = True
    """Delete what is stored in the part and not listed."""
    count_vanished: bool = False
    """Or only count it."""


class RefusedFile(BaseModel):
    """A file that was added as it is now, and whose job failed for good."""

    path: str
    reason: str
    job_id: int


class Listing(Envelope):
    """What a folder lacks. ``deleted`` is bounded: ``partial`` says that more vanished; list the part again."""

    need: list[str]
    hash: list[str]
    refused: list[RefusedFile]
    unchanged: int
    open_jobs: list[int]
    """Of unchanged files that were sent before and are not searchable yet."""
    vanished: int
    deleted: list[str]
    delete_jobs: list[int]


class DocumentPage(Envelope):
    documents: list[DocumentView]
    next_cursor: str | None


class DocumentAnswer(Envelope):
    document: DocumentView


class ChunkView(BaseModel):
    chunk_id: UUID
    doc_id: UUID
    source_uri: str
    file_hash: str | None
    """SHA-256 of the document's bytes; of a record, of what it says."""
    ord: int
    ordinal: int
    modality: str
    source_type: str
    block_type: str
    text: str
    embed_text: str
    place: PlaceView
    parent_section: str | None
    key_path: str | None
    table_id: str | None
    row_group: int | None
    offsets: tuple[int, int]
    content_hash: str
    token_count: int
    windows: int
    """Vectors it has."""
    duplicate_of: UUID | None
    """The earlier chunk that it nearly repeats."""
    provenance: dict[str, Any]
    meta: dict[str, Any]
    indexed_at: datetime


class ChunkPage(Envelope):
    chunks: list[ChunkView]
    next_cursor: str | None


class ChunkAnswer(Envelope):
    chunk: ChunkView


class Class(BaseModel):
    """Of a histogram; the last one has no end."""

    at_least: int
    below: int | None
    chunks: int


class Distribution(BaseModel):
    min: int
    p50: int
    p95: int
    max: int
    histogram: list[Class]


class ChunkSizes(BaseModel):
    chunks: int
    duplicates: int
    """Those that nearly repeat an earlier one."""
    tokens: Distribution
    """Of what was embedded."""
    characters: Distribution
    """Of the raw text."""


class SizesAnswer(Envelope):
    total: ChunkSizes | None
    by_source_type: dict[str, ChunkSizes]


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


class PagesPage(Envelope):
    doc_id: UUID
    container_id: str
    source_uri: str
    source_type: str | None
    page_images: PageImage
    """Of the pages that are listed; of a text without pages yet, of all of it."""
    page_images_cause: str | None
    pages: list[ListedPage]
    next_cursor: str | None


class PagePdfAnswer(Envelope):
    page: int
    page_pdf: Literal["ready", "pending"]
    pdf_uri: str | None
    job_id: int | None
    """Of the job that makes it, while it is pending."""


class JobAnswer(Envelope):
    job: JobView


class JobPage(Envelope):
    jobs: list[JobView]
    next_cursor: str | None


class RequeueBody(_Request):
    container_id: Text
    cursor: Annotated[Text, Field(max_length=128)] | None = None
    """Of the answer before: a request tries so many again as one transaction can."""


class RequeueAnswer(Envelope):
    """What was tried again; ``next_cursor`` when there may be more."""

    job_ids: list[int]
    left: int
    """That stay failed: a newer job does their work already, or runs in their place."""
    remaining: int = 0
    """That the queue does not take now: ask again with ``next_cursor``, or from the beginning, when it has room."""
    next_cursor: str | None


class EvalRuns(Envelope):
    runs: list[KeptRun]
    next_cursor: str | None


class DoctorBody(_Request):
    container_id: Text | None = None
    repair: bool = False
    deep: bool = False
    """Read all bytes and compare their hashes."""


class DoctorAnswer(Envelope):
    report: dict[str, Any]
