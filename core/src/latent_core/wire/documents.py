"""Documents: add, upload, list, listing of a folder, document search."""

from __future__ import annotations

from typing import Annotated, Final, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from latent_core.domain.chunk import SourceType
from latent_core.domain.document import DocumentView
from latent_core.domain.text import Meta, Text
from latent_core.wire.base import MAX_PATH, Envelope, Moment, PagedEnvelope, RequestBody, SourceUri
from latent_core.wire.jobs import JobAccepted
from latent_core.wire.search import MAX_CONTAINERS, MAX_QUERY_CHARS, MAX_TOP_K


class AddBody(RequestBody):
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
    """Ingest again even if nothing has changed; the live version stays until the new one is published."""


class AddAnswer(JobAccepted):
    doc_id: UUID
    source_uri: str


class DocumentPage(PagedEnvelope):
    documents: list[DocumentView]


class DocumentAnswer(Envelope):
    document: DocumentView


DOCUMENTS: Final = (
    SourceType.MARKDOWN,
    SourceType.PDF,
    SourceType.WEB,
    SourceType.YAML,
    SourceType.JSON,
)


class DocSearchBody(RequestBody):
    query: Annotated[str, Field(min_length=1, max_length=MAX_QUERY_CHARS)]
    formats: Annotated[list[SourceType], Field(max_length=len(SourceType))] = list(DOCUMENTS)
    limit: Annotated[int, Field(ge=1, le=MAX_TOP_K)] = 10
    containers: Annotated[list[Text] | None, Field(min_length=1, max_length=MAX_CONTAINERS)] = None
    """Default: all readable containers."""


class UploadView(BaseModel):
    file_ref: str
    filename: str
    mime: str
    bytes: int
    sha256: str


class UploadAnswer(Envelope):
    upload: UploadView


class ListedFile(RequestBody):
    path: Annotated[str, Field(min_length=1, max_length=MAX_PATH)]
    """Relative to the root, with ``/``."""
    bytes: Annotated[int, Field(ge=0)]
    mtime_ns: Annotated[int, Field(ge=0, lt=2**63)]
    sha256: Annotated[str | None, Field(pattern="^[0-9a-f]{64}$")] = None
    meta_sha256: Annotated[str | None, Field(pattern="^[0-9a-f]{64}$")] = None
    """Digest of its meta (``doc_meta.given_digest``); none without meta."""


class ListingBody(RequestBody):
    """A folder's files or a part of them: by the byte order of their paths, those after ``after`` up to ``through``."""

    root: Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^/\x00]+$")]
    files: Annotated[list[ListedFile], Field(max_length=200_000)]
    after: Annotated[str | None, Field(max_length=MAX_PATH, pattern=r"^[^\x00]*$")] = None
    through: Annotated[str | None, Field(max_length=MAX_PATH, pattern=r"^[^\x00]*$")] = None
    delete_vanished: bool = True
    """Delete stored documents of this part that are not listed."""
    count_vanished: bool = False
    """Only count them."""


class RefusedFile(BaseModel):
    """An unchanged file whose job failed permanently."""

    path: str
    reason: str
    job_id: int


class ListingAnswer(Envelope):
    """The files that the server needs. ``deleted`` has a limit: ``partial`` means that more are gone; list the part again."""

    need: list[str]
    hash: list[str]
    refused: list[RefusedFile]
    unchanged: int
    open_jobs: list[int]
    """Jobs of unchanged files that are not searchable yet."""
    vanished: int
    deleted: list[str]
    delete_jobs: list[int]
