"""Export: an archive of a container. A backup is an export that is kept by number."""

from __future__ import annotations

from collections.abc import Mapping

from latent_core.db import containers
from latent_core.db.connection import Connection
from latent_core.db.transfer import archives
from latent_core.domain.errors import NotFound
from latent_core.domain.ids import Sha256
from latent_core.domain.job import ArchiveKind
from latent_core.ingest.delete import LEASES_TO_WAIT, enqueue_collection
from latent_core.queue.context import JobContext
from latent_core.queue.finish import finish, hold
from latent_core.runtime.failpoint import failpoint
from latent_core.transfer.exporting import ExportOptions, FinishedArchive
from latent_core.transfer.requests import ExportPayload
from latent_workers.deps import Deps
from latent_workers.ingest.cleanup import cleanup_on_failure, private_folder
from latent_workers.transfer.archives import (
    archive_name,
    lacking_words,
    make_archive,
    verify_archive,
)


async def export(ctx: JobContext, deps: Deps) -> None:
    """Write an archive, store it, and record it in the transaction that ends the job; or verify a stored one."""
    payload = ExportPayload.model_validate(ctx.job.payload)
    if payload.verify is not None:
        await _verify(ctx, deps, payload.verify)
        return
    options = ExportOptions(vectors=payload.vectors, blobs=payload.blobs)
    async with cleanup_on_failure(ctx, deps), private_folder():
        exported = await make_archive(ctx, deps, options)
        await _record(ctx, deps, payload, exported)


async def _record(
    ctx: JobContext, deps: Deps, payload: ExportPayload, exported: FinishedArchive
) -> None:
    container_id = ctx.job.container_id
    options = {"vectors": payload.vectors, "blobs": payload.blobs}

    async def write(conn: Connection) -> None:
        await hold(conn, ctx.job)
        archive_id = await archives.insert(
            conn,
            ArchiveKind.BACKUP if payload.kept else ArchiveKind.EXPORT,
            container_id,
            bucket=exported.bucket,
            sha256=exported.sha256,
            size=exported.size,
            filename=archive_name(container_id, ctx.job.id),
            job_id=ctx.job.id,
            totals=exported.totals_with_gaps(),
            contents_key=exported.contents_key,
            **options,
        )
        if payload.kept:
            await _retain(conn, container_id)
        else:
            await archives.supersede(conn, container_id, archive_id, **options)
        result = _result(archive_id, exported.size, exported.totals_with_gaps())
        await finish(conn, ctx.job, warnings=lacking_words(exported), result=result)
        # The archives that this one supersedes, and what attempts before this one stored.
        lease = deps.settings.lease_seconds
        await enqueue_collection(
            conn, principal=ctx.job.principal, delay_seconds=LEASES_TO_WAIT * lease
        )
        failpoint("export.before_commit")

    await ctx.transact(write)
    failpoint("export.after_commit")


async def _retain(conn: Connection, container_id: str) -> None:
    """Delete the backups above the number that the manifest keeps."""
    container = await containers.get(conn, container_id)
    if container is None:
        raise NotFound(f"container '{container_id}' was deleted during its backup")
    await archives.retain(conn, container_id, container.manifest.backup.keep)


async def _verify(ctx: JobContext, deps: Deps, archive_id: int) -> None:
    """``Invalid`` says where it is damaged."""
    stack = deps.stack
    async with stack.db.transaction() as conn:
        archive = await archives.get(conn, archive_id, ArchiveKind.BACKUP)
    if archive is None:
        raise NotFound(f"backup {archive_id} no longer exists")
    path = await stack.blobs.of(archive.bucket).local_copy(Sha256(archive.sha256))
    contents = await verify_archive(ctx, path, archive.bytes)

    async def write(conn: Connection) -> None:
        await hold(conn, ctx.job)
        await archives.note_verified(conn, archive_id)
        result = _result(archive_id, archive.bytes, contents.totals.model_dump())
        await finish(conn, ctx.job, result=result)

    await ctx.transact(write)


def _result(archive_id: int, size: int, totals: Mapping[str, int]) -> dict[str, int]:
    """The job's result."""
    return {"archive_id": archive_id, "bytes": size, **totals}
