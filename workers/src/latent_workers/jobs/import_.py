"""Import: verify the archive completely, then import it step by step; a killed import continues where it was."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from latent_core.db import containers, sources
from latent_core.db.containers import Container
from latent_core.db.transfer import import_rows as rows
from latent_core.domain.errors import LatentError, NotFound
from latent_core.domain.ids import Sha256
from latent_core.domain.manifest.model import settled
from latent_core.ingest.abandon import purge_abandoned
from latent_core.ingest.containers import layout_of, prepare_bucket
from latent_core.ingest.delete import LEASES_TO_WAIT, enqueue_collection, enqueue_removal
from latent_core.queue.context import JobContext
from latent_core.queue.errors import LeaseLost
from latent_core.queue.finish import hold
from latent_core.queue.lease import amend
from latent_core.runtime.failpoint import failpoint
from latent_core.transfer import import_container
from latent_core.transfer.import_container import ImportModel
from latent_core.transfer.reader import ArchiveOpening, read_opening
from latent_core.transfer.records import Header
from latent_core.transfer.requests import FRESH, ImportPayload
from latent_core.transfer.selection import ImportTarget
from latent_workers.deps import Deps
from latent_workers.ingest.cleanup import private_folder, was_the_last
from latent_workers.transfer.archives import verify_archive
from latent_workers.transfer.import_steps import Steps

logger = logging.getLogger(__name__)


async def import_(ctx: JobContext, deps: Deps) -> None:
    """One attempt. A new container stays invisible until the last step, and is removed if no attempt follows."""
    payload = ImportPayload.model_validate(ctx.job.payload)
    async with _removed_if_given_up(ctx, deps, payload), private_folder():
        path = await deps.stack.blobs.of(payload.bucket).local_copy(Sha256(payload.sha256))
        opening = await asyncio.to_thread(_opening, path)
        if payload.next_batch == 0:
            size = (await asyncio.to_thread(path.stat)).st_size
            contents = await verify_archive(ctx, path, size)
            total = contents.totals.chunks
        else:
            total = None  # verified by the attempt that began
        manifest, refused_inputs = settled(opening.manifest)
        manifest, unknown = deps.stack.language_models.settled(manifest)
        refused_inputs += unknown
        manifest = manifest.model_copy(update={"id": payload.target})
        note: str | None = None
        if payload.merge:
            container, refused_inputs = await _there(deps, payload, opening.header), []
        else:
            async with deps.stack.embedders.held(manifest.embedder):
                made_by = await import_container.with_model(
                    deps.stack.embedders, manifest, opening.header
                )
                container, payload = await _made(ctx, deps, made_by, payload, opening.header)
            refused_inputs, note = [*refused_inputs, *made_by.dropped], made_by.note
        target = ImportTarget(
            container, opening.header, payload, _same_space(container, opening.header)
        )
        await Steps(ctx, deps, target, total, refused_inputs, note).run(path)


def _opening(path: Path) -> ArchiveOpening:
    with path.open("rb") as file:
        return read_opening(file)


def _same_space(container: Container, header: Header) -> bool:
    """Whether this container's embedder would produce the archive's vectors."""
    space, exported_space = container.space, header.space
    own = (space.embedder, space.version, space.dims)
    return (
        header.vectors
        and not space.is_adapted
        and own == (exported_space.embedder, exported_space.version, exported_space.dims)
    )


async def _there(deps: Deps, payload: ImportPayload, header: Header) -> Container:
    async with deps.stack.db.transaction() as conn:
        there = await containers.get(conn, payload.target)
        if there is None:
            raise NotFound(f"container '{payload.target}' no longer exists")
        await sources.bring_in(conn, payload.target, header.sources)
    return there


async def _made(
    ctx: JobContext,
    deps: Deps,
    made_by: ImportModel,
    payload: ImportPayload,
    header: Header,
) -> tuple[Container, ImportPayload]:
    """Creates the container of this import, unless an earlier attempt has."""
    stack, manifest = deps.stack, made_by.manifest
    bucket = await prepare_bucket(stack.db, stack.blobs, manifest)
    async with stack.db.transaction() as conn:
        await hold(conn, ctx.job)
        if not await rows.founded(conn, manifest.id, ctx.job.id):
            payload = payload.model_copy(update=FRESH)
            await import_container.found(
                conn,
                manifest,
                made_by.space,
                bucket,
                job_id=ctx.job.id,
                principal=ctx.job.principal,
            )
            await sources.bring_in(conn, manifest.id, header.sources)
            await amend(conn, ctx.job, payload.model_dump(mode="json"))
        container = await import_container.hidden(conn, manifest)
    failpoint("import.before_collection")
    await stack.vectors.create_collection(
        container.space.collection(), container.space.dims, layout_of(manifest)
    )
    failpoint("import.after_collection")
    return container, payload


@asynccontextmanager
async def _removed_if_given_up(
    ctx: JobContext, deps: Deps, payload: ImportPayload
) -> AsyncIterator[None]:
    """If the block ends the job without success, remove the new container, or remove what it has added to an
    existing one."""
    try:
        yield
    except LeaseLost:
        raise
    except Exception as error:
        if was_the_last(ctx, error):
            await _remove(ctx, deps, payload)
        raise


async def _remove(ctx: JobContext, deps: Deps, payload: ImportPayload) -> None:
    lease = deps.settings.lease_seconds
    try:
        async with deps.stack.db.transaction() as conn:
            if await rows.give_up(conn, payload.target, ctx.job.id):
                await enqueue_removal(conn, payload.target, principal=ctx.job.principal)
            await enqueue_collection(
                conn, principal=ctx.job.principal, delay_seconds=LEASES_TO_WAIT * lease
            )
        if payload.merge:
            await purge_abandoned(
                deps.stack.db,
                principal=ctx.job.principal,
                lease_seconds=lease,
                ending=ctx.job,
                container_id=payload.target,
            )
    except (
        LatentError,
        LeaseLost,
    ) as error:  # the job's own error is what its owner must see; the scheduler looks again
        logger.warning("import_cleanup_failed", extra={"job_id": ctx.job.id, "cause": str(error)})
