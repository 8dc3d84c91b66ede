"""Request exports (a backup is an export that is kept) and imports: their jobs and the payloads of these."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pydantic import BaseModel, ConfigDict

from latent_core.db.connection import Connection
from latent_core.db.transfer import archives
from latent_core.domain.archive import ArchiveKind
from latent_core.domain.errors import Invalid
from latent_core.domain.ids import JobId
from latent_core.domain.job import NO_CONTAINER, PRIORITY_NORMAL, JobKind, NewJob
from latent_core.queue.enqueue import enqueue


class ImportPolicy(StrEnum):
    """What becomes of a document that the container has already."""

    SKIP = "skip"
    REPLACE = "replace"
    NEWEST = "newest"
    """The one whose source was modified later; where that is not known, that was fetched later."""


def policy_of(policy: ImportPolicy | None, *, merge: bool) -> ImportPolicy:
    """``Invalid`` when one is asked for that would have no effect."""
    if policy is not None and not merge:
        raise Invalid(
            "policy says what becomes of documents that are there already: give merge, too, or leave it out"
        )
    return policy or ImportPolicy.SKIP


class ImportPayload(BaseModel):
    """What an import job carries, and how far it is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: str
    filename: str
    target: str
    """The container that takes it in."""
    merge: bool = False
    policy: ImportPolicy = ImportPolicy.SKIP
    next_batch: int = 0
    chunks_read: int = 0
    """Of all batches before it: the number of its first chunk."""
    documents: int = 0
    chunks: int = 0
    skipped: int = 0
    overtaken: int = 0
    """Documents that were deleted, or added anew, between their choice and the commit of their step."""
    embedded: int = 0
    lacking_blobs: int = 0
    """References to bytes that are neither in the archive nor here."""


FRESH: Final = {
    "next_batch": 0,
    "chunks_read": 0,
    "documents": 0,
    "chunks": 0,
    "skipped": 0,
    "overtaken": 0,
    "embedded": 0,
    "lacking_blobs": 0,
}
"""How far one is that begins."""


class ExportPayload(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    vectors: bool = True
    blobs: bool = True
    golden: str = ""
    """The key of the golden queries when it was asked for. Who asks compares it, and a worker may have another folder:
    by its own key an export might never be the one that is asked for."""
    kept: bool = False
    """A backup: kept until newer ones take its place. Another export is kept for a day."""
    verify: int | None = None
    """The backup to read to its end; None: write a new archive."""


async def request_export(
    conn: Connection,
    container_id: str,
    payload: ExportPayload,
    *,
    principal: str,
    priority: int = PRIORITY_NORMAL,
) -> JobId:
    """Enqueue it; one that waits already is enough."""
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
    """Enqueue an import of stored bytes, which are kept for it.

    An import that makes its container belongs to none: the container's removal, should the import be given up,
    must not take away the job that tells why.
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
        sha256=payload.sha256,
        size=size,
        filename=payload.filename,
        job_id=job_id,
    )
    return job_id
