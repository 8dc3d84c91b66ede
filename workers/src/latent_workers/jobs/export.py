"""Export: a container's archive, ready to be fetched."""

from __future__ import annotations

from collections.abc import Mapping

from latent_core.domain.archive import ArchiveKind
from latent_core.generations.exporting import Exported, Wanted
from latent_core.generations.transfers import ExportPayload
from latent_core.ingest.delete import LEASES_TO_WAIT, enqueue_collection
from latent_core.processes.crash import crash_point
from latent_core.queue.context import JobContext
from latent_core.queue.finish import finish, hold
from latent_core.registry import archives
from latent_core.registry.connection import Connection
from latent_workers.deps import Deps
from latent_workers.jobs.archiving import archive_name, lacking_words, make_archive
from latent_workers.jobs.given_up import room_of_its_own, swept_if_given_up


async def export(ctx: JobContext, deps: Deps) -> None:
    """Write it, store it, and note it in the transaction that ends the job."""
    payload = ExportPayload.model_validate(ctx.job.payload)
    wanted = Wanted(vectors=payload.vectors, blobs=payload.blobs, golden=payload.golden)
    async with swept_if_given_up(ctx, deps), room_of_its_own():
        exported = await make_archive(ctx, deps, wanted)
        await _note(ctx, deps, wanted, exported)


async def _note(ctx: JobContext, deps: Deps, wanted: Wanted, exported: Exported) -> None:
    container_id = ctx.job.container_id

    async def write(conn: Connection) -> None:
        await hold(conn, ctx.job)
        archive_id = await archives.insert(
            conn,
            ArchiveKind.EXPORT,
            container_id,
            sha256=exported.sha256,
            size=exported.size,
            filename=archive_name(container_id, ctx.job.id),
            job_id=ctx.job.id,
            vectors=wanted.vectors,
            blobs=wanted.blobs,
            totals=exported.told(),
            contents_key=exported.contents_key,
        )
        await archives.supersede(
            conn, container_id, archive_id, vectors=wanted.vectors, blobs=wanted.blobs
        )
        await finish(
            conn,
            ctx.job,
            warnings=lacking_words(exported),
            result=told(archive_id, exported.size, exported.told()),
        )
        # The exports that this one supersedes, and what attempts before this one stored.
        lease = deps.settings.lease_seconds
        await enqueue_collection(
            conn, principal=ctx.job.principal, delay_seconds=LEASES_TO_WAIT * lease
        )
        crash_point("export.before_commit")

    await ctx.transact(write)
    crash_point("export.after_commit")


def told(archive_id: int, size: int, totals: Mapping[str, int]) -> dict[str, int]:
    """What the job answers."""
    return {"archive_id": archive_id, "bytes": size, **totals}
