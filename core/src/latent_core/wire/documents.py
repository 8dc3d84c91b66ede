"""Documents: add, upload, list, listing of a folder, document search."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal, Self
from uuid import UUID

from pydantic import AfterValidator, BaseModel, Field, SecretStr, model_validator

from latent_core.domain.chunk import SourceType
from latent_core.domain.conversation import MAX_MESSAGES, Message
from latent_core.domain.document import DocumentView
from latent_core.domain.ids import WireJobId
from latent_core.domain.note import MAX_NAME_CHARS, MAX_TEXT_CHARS
from latent_core.domain.text import Meta, Text
from latent_core.wire.base import MAX_PATH, Envelope, Moment, PagedEnvelope, RequestBody, SourceUri
from latent_core.wire.jobs import JobAccepted
from latent_core.wire.search import (
    MAX_CONTAINERS,
    MAX_QUERY_CHARS,
    MAX_TOP_K,
    SearchRequest,
    SourceTypes,
)

MAX_WAIT_SECONDS: Final = 5.0
MAX_PASSWORD_CHARS: Final = 255
"""The limit of Office."""


class AddBody(RequestBody):
    container_id: Text
    uri: Annotated[Text | None, Field(max_length=MAX_PATH)] = None
    file_ref: Annotated[Text | None, Field(max_length=MAX_PATH)] = None
    text: Annotated[str | None, Field(min_length=1, max_length=MAX_TEXT_CHARS)] = None
    """A note in Markdown, instead of a source."""
    messages: Annotated[list[Message] | None, Field(min_length=1, max_length=MAX_MESSAGES)] = None
    """A conversation, instead of a source. Under the ``name`` of a running one they continue it: messages that it has
    already are not added again."""
    title: Annotated[Text | None, Field(min_length=1, max_length=MAX_NAME_CHARS)] = None
    """Of a note or conversation."""
    name: Annotated[Text | None, Field(min_length=1, max_length=MAX_NAME_CHARS)] = None
    """Of a note: adding another text under the same name replaces it and keeps the former one as a version. Default:
    derived from the text."""
    session: Annotated[Text | None, Field(min_length=1, max_length=MAX_NAME_CHARS)] = None
    """The session in which it was added."""
    expires_at: Moment | None = None
    """When it is deleted; default never."""
    if_version: Annotated[int | None, Field(ge=0, lt=2**31)] = None
    """Of a note: accept it only if this version is current; 0: only if there is none."""
    supersedes: UUID | None = None
    """Of a note: a document of the container that it replaces. That one is kept, out of search."""
    wait_seconds: Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS)] = 0
    """Seconds to wait until it is searchable."""
    modality: Literal["auto", "text", "image"] = "auto"
    source_uri: SourceUri | None = None
    filename: Annotated[str | None, Field(max_length=1024)] = None
    modified_at: Moment | None = None
    mtime_ns: Annotated[int | None, Field(ge=0, lt=2**63)] = None
    meta: Meta = {}
    password: Annotated[SecretStr | None, Field(min_length=1, max_length=MAX_PASSWORD_CHARS)] = None
    """Opens an encrypted PDF or Office file. Used for this read and not kept: a later reparse of the document fails."""
    rebuild: bool = False
    """Ingest again even if nothing has changed; the live version stays until the new one is published."""


class NearestNote(BaseModel):
    """A note of the container that is about the same as a new one."""

    doc_id: UUID
    title: str
    written_at: datetime | None
    written_by: str | None


class AddAnswer(JobAccepted):
    doc_id: UUID
    source_uri: str
    searchable: bool = False
    """Whether searches find this content now."""
    note_version: int = 1
    """How many texts were accepted under the name of the note."""
    replaced: UUID | None = None
    """The document that keeps the former text of this name."""
    masked: dict[str, int] = {}
    """Kinds of secrets that were masked in the text, with their number."""
    nearest: list[NearestNote] = []
    """Up to three notes of the container that are nearest in meaning."""


class DeletionAnswer(JobAccepted):
    restorable_until: datetime | None = None
    """None: the deletion is final."""


MAX_SELECTED: Final = 100


class SelectionBody(RequestBody):
    doc_ids: Annotated[list[UUID], Field(min_length=1, max_length=MAX_SELECTED)]


class DocumentOutcome(BaseModel):
    """What became of one document of a selection."""

    doc_id: UUID
    job_id: WireJobId | None = None
    """None: nothing was done, and ``cause`` says why."""
    cause: str | None = None


class SelectionAnswer(Envelope):
    documents: list[DocumentOutcome]
    """In the given order."""


class DeletedView(BaseModel):
    """A deleted document that can be restored."""

    doc_id: UUID
    source_uri: str
    title: str | None
    written_by: str | None
    deleted_at: datetime
    restorable_until: datetime


class DeletedPage(Envelope):
    documents: list[DeletedView]


class DocumentPage(PagedEnvelope):
    documents: list[DocumentView]


class OutlineSection(BaseModel):
    id: str
    """For ``documents_get``: valid while the document does not change."""
    heading: str
    """Empty for text before the first heading."""
    level: int
    line_start: int | None = None
    line_end: int | None = None
    page: int | None = None
    page_end: int | None = None
    characters: int


class OutlineAnswer(Envelope):
    doc_id: UUID
    title: str | None
    pages: int
    sections: list[OutlineSection]


class DocumentAnswer(Envelope):
    document: DocumentView


class OriginalAnswer(Envelope):
    doc_id: UUID
    source_uri: str
    filename: str
    mime: str
    bytes: int
    sha256: str
    url: str
    """Serves the bytes as an attachment, without a token."""
    seconds: int
    """How long the link is valid."""


DOCUMENTS: Final = (
    SourceType.MARKDOWN,
    SourceType.PDF,
    SourceType.WEB,
    SourceType.YAML,
    SourceType.JSON,
    SourceType.DOCUMENT,
    SourceType.SHEET,
    SourceType.SLIDES,
    SourceType.MAIL,
    SourceType.NOTEBOOK,
    SourceType.SUBTITLES,
    SourceType.AUDIO,
)


def _documents_only(value: list[SourceType]) -> list[SourceType]:
    if SourceType.CODE in value:
        raise ValueError(
            "doc_search does not search source code; for code use a search with source_type: [code]"
        )
    return value


DocumentTypes = Annotated[SourceTypes, AfterValidator(_documents_only)]


class DocSearchBody(RequestBody):
    query: Annotated[str, Field(min_length=1, max_length=MAX_QUERY_CHARS)]
    formats: DocumentTypes = list(DOCUMENTS)
    """Source types other than code; an empty list means the default."""
    source_type: DocumentTypes = []
    """Another name of ``formats``."""
    limit: Annotated[int, Field(ge=1, le=MAX_TOP_K)] = 10
    containers: Annotated[list[Text] | None, Field(min_length=1, max_length=MAX_CONTAINERS)] = None
    """Default: all readable containers."""

    @model_validator(mode="after")
    def _named_once(self) -> Self:
        if self.source_type and "formats" in self.model_fields_set:
            raise ValueError("formats and source_type are the same: give one of them")
        return self

    def request(self) -> SearchRequest:
        return SearchRequest(
            containers=self.containers,
            query=self.query,
            top_k=self.limit,
            source_type=self.source_type or self.formats or list(DOCUMENTS),
        )


class UploadView(BaseModel):
    file_ref: str
    filename: str
    mime: str
    bytes: int
    sha256: str


class UploadAnswer(Envelope):
    upload: UploadView


class ResumableUploadView(BaseModel):
    """How far a resumable upload is. Sizes in bytes."""

    file_ref: str
    """Its id, and of the upload that it becomes."""
    filename: str
    mime: str
    length: int
    received: int
    """Stored durably: continue here."""
    expires_at: datetime | None
    """When it is deleted unless it is continued; None: it is complete."""
    upload: UploadView | None
    """The upload, once it is complete."""


class ResumableUploadAnswer(Envelope):
    resumable_upload: ResumableUploadView


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
    source: UUID | None = None
    """The source that has this root. A listing without it deletes nothing of a source."""
    allow_deletions: bool = False
    """Also delete more than 20 documents that are more than 30 % of those below the root."""


class RefusedFile(BaseModel):
    """An unchanged file whose job failed permanently."""

    path: str
    reason: str
    job_id: WireJobId


class ListingAnswer(Envelope):
    """The files that the server needs. ``deleted`` has a limit: ``partial`` means that more are gone; list the part again."""

    need: list[str]
    hash: list[str]
    refused: list[RefusedFile]
    unchanged: int
    open_jobs: list[WireJobId]
    """Jobs of unchanged files that are not searchable yet."""
    vanished: int
    documents: int = 0
    """Documents below the root, if some of them vanished."""
    deleted: list[str]
    delete_jobs: list[WireJobId]
