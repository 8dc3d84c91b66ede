"""Documents: add, list, show."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from latent_core.domain.document import DocumentView
from latent_core.domain.envelope import Envelope
from latent_core.domain.text import Meta, Text
from latent_core.wire.base import PagedEnvelope, RequestBody
from latent_core.wire.fields import MAX_PATH, Moment, SourceUri
from latent_core.wire.jobs import JobAccepted


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
