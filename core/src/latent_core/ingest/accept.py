"""Accept a source: one transaction writes the document and the job that will ingest it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from latent_core.db import containers
from latent_core.db.connection import Connection
from latent_core.db.documents import documents
from latent_core.db.documents.documents import Authorship, SourceInfo
from latent_core.domain.document import Author
from latent_core.domain.errors import NotFound
from latent_core.domain.ids import JobId
from latent_core.domain.job import JobKind, NewJob
from latent_core.domain.origin import Origin
from latent_core.queue.enqueue import enqueue

CORPUS_MIME: Final = "application/x-ndjson"


class Validators(BaseModel):
    """HTTP validators of the fetched bytes. Sent with the next request, they show whether the bytes changed."""

    model_config = ConfigDict(frozen=True)

    etag: str | None = None
    last_modified: str | None = None
    final_url: str
    """The address after redirects; the validators are sent only there."""
    mime: str
    filename: str


class PayloadAuthorship(BaseModel):
    """Who adds the content, and until when it is kept; written to the document with its publication."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    origin: Origin
    written_by: str
    token_name: str | None = None
    session: str | None = None
    written_at: datetime
    expires_at: datetime | None = None

    @classmethod
    def of(cls, author: Author, expires_at: datetime | None = None) -> Self:
        """By the author, now."""
        return cls(
            origin=author.origin,
            written_by=author.written_by,
            token_name=author.token_name,
            session=author.session,
            written_at=datetime.now(UTC),
            expires_at=expires_at,
        )


class IngestPayload(BaseModel):
    """Payload of an ingest or corpus job: where the bytes are, and their metadata."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    uri: str
    filename: str
    mime: str
    request: int = 0
    """``documents.request`` at enqueue time; a newer request overtakes this job."""
    sha256: str | None = None
    """Hash of a stored blob; else ``path`` names a file below an ingest root, or ``url`` a page."""
    source_sha256: str | None = None
    """Hash of the file as it was sent, if ``sha256`` is its conversations in the stored form."""
    masked: int = 0
    """Secrets that were masked when that form was made."""
    path: str | None = None
    url: str | None = None
    validators: Validators | None = None
    """Of the stored bytes, when they came from ``url``."""
    modality: Literal["auto", "text", "image"] = "auto"
    accepted_at: datetime
    modified_at: datetime | None = None
    mtime_ns: int | None = None
    meta: dict[str, Any] = {}
    """From path and sender; metadata in the file is added when the file is read."""
    given_meta: str | None = None
    """``doc_meta.given_digest`` of the sender's part of ``meta``."""
    recipe: str | None = None
    """The recipe at acceptance. A refusal is valid while the recipe is unchanged."""
    rebuild: bool = False
    """Rebuild even if nothing that determines the chunks has changed."""
    sealed_password: str | None = None
    """``PasswordSeal.seal``: opens the file in this job. The end of the job erases it."""
    authorship: PayloadAuthorship | None = None
    """None: the author stays the same, as when a document is ingested again from its original."""
    offset: int = 0
    """Byte offset at which a corpus job continues; ``line`` is the line number there."""
    line: int = 1
    records: int = 0
    failures: int = 0
    nameless: int = 0
    """Failed records without an id."""

    @property
    def row_authorship(self) -> Authorship | None:
        """For the document's row."""
        if self.authorship is None:
            return None
        by = self.authorship
        author = Author(by.origin, by.written_by, by.token_name, by.session)
        return Authorship(author, by.written_at, by.expires_at)


def from_original(row: dict[str, Any], recipe: str, *, rebuild: bool = True) -> IngestPayload:
    """Payload for a document's stored bytes; the sender's metadata stays unchanged."""
    validators = Validators.model_validate(row["validators"]) if row["validators"] else None
    return IngestPayload(
        uri=row["uri"],
        filename=row["filename"],
        mime=validators.mime if validators is not None else row["blob_mime"],
        sha256=row["sha256"],
        source_sha256=row["source_sha256"] if row["source_sha256"] != row["sha256"] else None,
        validators=validators,
        accepted_at=row["fetched_at"] or datetime.now(UTC),
        modified_at=row["source_modified_at"],
        mtime_ns=row["source_mtime_ns"],
        meta=row["meta"],
        given_meta=row["given_meta"],
        recipe=recipe,
        rebuild=rebuild,
    )


@dataclass(frozen=True, slots=True)
class AcceptedSource:
    doc_id: UUID
    job_id: JobId
    request: int


async def accept(
    conn: Connection, source: SourceInfo, payload: IngestPayload, *, kind: JobKind, principal: str
) -> AcceptedSource:
    """Write document and job; ``NotFound`` if the container was deleted.

    Adding the same document again while its job is queued replaces the job's payload. The container is locked first,
    so that no document is added to a container that is being deleted.
    """
    if await containers.hold(conn, source.container_id) is None:
        raise NotFound(f"Container '{source.container_id}' does not exist.")
    request = await documents.accept(conn, source)
    job_id = await enqueue(
        conn,
        NewJob(
            kind=kind,
            container_id=source.container_id,
            doc_id=source.doc_id,
            doc_key=str(source.doc_id),
            dedupe_key=f"{kind.value}:{source.doc_id}",
            payload=payload.model_copy(update={"request": request}).model_dump(mode="json"),
            principal=principal,
        ),
    )
    return AcceptedSource(source.doc_id, job_id, request)
