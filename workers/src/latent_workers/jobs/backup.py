"""Backup: an archive that is kept by number, and the reading that proves one whole."""

from __future__ import annotations

from latent_core.domain.archive import ArchiveKind
from latent_core.domain.errors import NotFound
from latent_core.domain.ids import Sha256
from latent_core.generations.exporting import Exported, Wanted
from latent_core.generations.transfers import BackupPayload
from latent_core.ingest.delete import LEASES_TO_WAIT, enqueue_collection
from latent_core.processes.crash import crash_point
from latent_core.queue.context import JobContext
from latent_core.queue.finish import finish, hold
from latent_core.registry import archives, containers
from latent_core.registry.connection import Connection
from latent_workers.deps import Deps
from latent_workers.jobs.archiving import (
    archive_name,
    lacking_words,
    make_archive,
    verify_archive,
)
from latent_workers.jobs.export import told
from latent_workers.jobs.given_up import room_of_its_own, swept_if_given_up


async def backup(ctx: JobContext, deps: Deps) -> None:
    """Make one, or verify the one that the payload names."""
    payload = BackupPayload.model_validate(ctx.job.payload)
    if payload.verify is not None:
        await _verify(ctx, deps, payload.verify)
        return
    async with swept_if_given_up(ctx, deps), room_of_its_own():
        exported = await make_archive(ctx, deps, Wanted())
        await _note(ctx, deps, exported)


async def _note(ctx: JobContext, deps: Deps, exported: Exported) -> None:
    container_id = ctx.job.container_id

    async def write(conn: Connection) -> None:
        await hold(conn, ctx.job)
        container = await containers.get(conn, container_id)
        if container is None:
            raise NotFound(f"container '{container_id}' was deleted while it was backed up")
        archive_id = await archives.insert(
            conn,
            ArchiveKind.BACKUP,
            container_id,
            sha256=exported.sha256,
            size=exported.size,
            filename=archive_name(container_id, ctx.job.id),
            job_id=ctx.job.id,
            totals=exported.told(),
            contents_key=exported.contents_key,
        )
        await archives.retain(conn, container_id, container.manifest.backup.keep)
        await finish(
            conn,
            ctx.job,
            warnings=lacking_words(exported),
            result=told(archive_id, exported.size, exported.told()),
        )
        lease = deps.settings.lease_seconds
        await enqueue_collection(
            conn, principal=ctx.job.principal, delay_seconds=LEASES_TO_WAIT * lease
        )
        crash_point("backup.before_commit")

    await ctx.transact(write)
    crash_point("backup.after_commit")


async def _verify(ctx: JobContext, deps: Deps, archive_id: int) -> None:
    """``Invalid`` says where it is damaged."""
    stack = deps.stack
    async with stack.db.transaction() as conn:
        archive = await archives.get(conn, archive_id, ArchiveKind.BACKUP)
    if archive is None:
        raise NotFound(f"backup {archive_id} is not kept any more")
    path = await stack.blobs.local_copy(Sha256(archive.sha256))
    contents = await verify_archive(ctx, path, archive.bytes)

    async def write(conn: Connection) -> None:
        await hold(conn, ctx.job)
        await archives.note_verified(conn, archive_id)
        result = told(archive_id, archive.bytes, contents.totals.model_dump())
        await finish(conn, ctx.job, result=result)

    await ctx.transact(write)
