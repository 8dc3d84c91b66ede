"""Enqueue exports (a backup is an export that is kept) and imports; payloads of their jobs."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pydantic import BaseModel, ConfigDict

from latent_core.db.connection import Connection
from latent_core.db.transfer import archives
from latent_core.domain.errors import Invalid
from latent_core.domain.ids import JobId
from latent_core.domain.job import NO_CONTAINER, PRIORITY_NORMAL, ArchiveKind, JobKind, NewJob
from latent_core.queue.enqueue import enqueue


class ImportPolicy(StrEnum):
    """How a merge treats a document that the container already has."""

    SKIP = "skip"
    REPLACE = "replace"
    NEWEST = "newest"
    """Keep the document whose source was modified later; if unknown, the one that was fetched later."""


def policy_of(requested: ImportPolicy | None, *, merge: bool) -> ImportPolicy:
    """The requested policy or the default; ``Invalid`` for a policy without ``merge``."""
    if requested is not None and not merge:
        raise Invalid(
            "policy applies to documents that already exist, so it requires merge. Set merge or omit policy."
        )
    return requested or ImportPolicy.SKIP


class ImportPayload(BaseModel):
    """Payload and progress of an import job."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: str
    bucket: str = ""
    """Of the archive; "" for the installation's own."""
    filename: str
    target: str
    """The target container."""
    merge: bool = False
    policy: ImportPolicy = ImportPolicy.SKIP
    next_batch: int = 0
    chunks_read: int = 0
    """Chunks in all earlier batches: the number of the next batch's first chunk."""
    chunks_waiting: int = 0
    """In a new container: of them the last ones, whose postings are not written yet."""
    documents: int = 0
    chunks: int = 0
    skipped: int = 0
    overtaken: int = 0
    """Documents that were deleted or added again between their selection and the commit of their step."""
    embedded: int = 0
    lacking_blobs: int = 0
    """References to bytes that are neither in the archive nor here."""


FRESH: Final = {
    "next_batch": 0,
    "chunks_read": 0,
    "chunks_waiting": 0,
    "documents": 0,
    "chunks": 0,
    "skipped": 0,
    "overtaken": 0,
    "embedded": 0,
    "lacking_blobs": 0,
}
"""Progress of a new import."""


class ExportPayload(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    vectors: bool = True
    blobs: bool = True
    kept: bool = False
    """A backup, kept until newer ones replace it. Other exports are kept for a day."""
    verify: int | None = None
    """The backup to verify; None: write a new archive."""


async def request_export(
    conn: Connection,
    container_id: str,
    payload: ExportPayload,
    *,
    principal: str,
    priority: int = PRIORITY_NORMAL,
) -> JobId:
    """Enqueue an export; an equal one that is queued already is reused."""
    role = "backup" if payload.kept else "export"
    return await enqueue(
        conn,
        NewJob(
            kind=JobKind.EXPORT,
            container_id=container_id,
            doc_key=f"{role}:{container_id}",
            dedupe_key=f"{role}:{container_id}:{payload.vectors}:{payload.blobs}:{payload.verify or 'new'}",
            payload=payload.model_dump(),
            priority=priority,
            principal=principal,
        ),
    )


async def request_import(
    conn: Connection, payload: ImportPayload, *, size: int, principal: str
) -> JobId:
    """Enqueue an import of stored bytes and keep these bytes.

    An import into a new container belongs to no container. If the import fails, the removal of that container must not
    delete the job that shows the cause.
    """
    job_id = await enqueue(
        conn,
        NewJob(
            kind=JobKind.IMPORT,
            container_id=payload.target if payload.merge else NO_CONTAINER,
            doc_key=f"import:{payload.target}",
            payload=payload.model_dump(mode="json"),
            principal=principal,
        ),
    )
    await archives.insert(
        conn,
        ArchiveKind.IMPORT,
        payload.target,
        bucket=payload.bucket,
        sha256=payload.sha256,
        size=size,
        filename=payload.filename,
        job_id=job_id,
    )
    return job_id
