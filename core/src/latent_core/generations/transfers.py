"""Ask for exports, imports and backups: the jobs that make them, and what these carry."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from latent_core.domain.archive import ArchiveKind
from latent_core.domain.ids import JobId
from latent_core.domain.job import NO_CONTAINER, PRIORITY_LATER, PRIORITY_NORMAL, JobKind, NewJob
from latent_core.generations.importing.payload import ImportPayload
from latent_core.queue.enqueue import enqueue
from latent_core.registry import archives
from latent_core.registry.connection import Connection


class ExportPayload(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    vectors: bool = True
    blobs: bool = True
    golden: str = ""
    """The key of the golden queries when it was asked for. Who asks compares it, and a worker may have another folder:
    by its own key an export might never be the one that is asked for."""


class BackupPayload(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    verify: int | None = None
    """A backup that is read to its end; None: a new one is made."""


async def request_export(
    conn: Connection, container_id: str, payload: ExportPayload, *, principal: str
) -> JobId:
    """Enqueue it; one that waits already is enough."""
    return await enqueue(
        conn,
        NewJob(
            kind=JobKind.EXPORT,
            container_id=container_id,
            doc_key=f"export:{container_id}",
            dedupe_key=f"export:{container_id}:{payload.vectors}:{payload.blobs}",
            payload=payload.model_dump(),
            principal=principal,
        ),
    )


async def request_backup(
    conn: Connection,
    container_id: str,
    *,
    verify: int | None = None,
    principal: str,
    priority: int = PRIORITY_NORMAL,
) -> JobId:
    """Enqueue one, or the verification of one."""
    return await enqueue(
        conn,
        NewJob(
            kind=JobKind.BACKUP,
            container_id=container_id,
            doc_key=f"backup:{container_id}",
            dedupe_key=f"backup:{container_id}:{verify or 'new'}",
            payload=BackupPayload(verify=verify).model_dump(),
            priority=priority,
            principal=principal,
        ),
    )


async def scheduled_backup(conn: Connection, container_id: str, *, principal: str) -> JobId:
    """A backup that nobody waits for."""
    return await request_backup(conn, container_id, principal=principal, priority=PRIORITY_LATER)


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
