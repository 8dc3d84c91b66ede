"""Refresh: change the embedding space of a container, or create its vectors again (docs/adr/0009).

- parallel: build a second space, check every point, run golden queries on both, switch - inplace: create the
vectors of the live space again; nothing else changes - drift: an adapter instead of new vectors for everything -
reparse: every stored original through the ingest job again
"""

from __future__ import annotations

from typing import Final

from latent_core.db import containers
from latent_core.db.connection import Connection
from latent_core.db.containers import Space
from latent_core.db.spaces import space_points, spaces
from latent_core.domain.errors import Conflict, NotFound
from latent_core.ingest.containers import etag, layout_of
from latent_core.ingest.stage import enqueue_dedup
from latent_core.queue.context import JobContext
from latent_core.queue.finish import finish
from latent_core.refresh.lifecycle import NotComplete, named_like, require_active
from latent_core.runtime.failpoint import failpoint
from latent_core.search.plan import SearchTarget
from latent_core.wire.refresh import RefreshPayload, SpaceState, Strategy
from latent_workers.deps import Deps
from latent_workers.ingest.refused_inputs import refused_input_warnings
from latent_workers.refresh.drift import drift
from latent_workers.refresh.fill import SpaceFill, VectorMapping, with_version
from latent_workers.refresh.work import (
    MAX_SWITCHES,
    RefreshJob,
    reparse,
    switch_when_complete,
)

ANY_TEXT: Final = "does it answer"


async def refresh(ctx: JobContext, deps: Deps) -> None:
    """One attempt; it continues where the last one ended."""
    payload = RefreshPayload.model_validate(ctx.job.payload)
    async with deps.stack.db.transaction() as conn:
        container = await containers.get(conn, ctx.job.container_id)
    if container is None:
        raise NotFound(f"container '{ctx.job.container_id}' no longer exists")
    work = RefreshJob(ctx, deps, container, payload)
    if (
        not payload.mapped_only
    ):  # what replaces mapped vectors by and by changes nothing that is seen
        require_active(container)
    match payload.strategy:
        case Strategy.PARALLEL:
            await parallel(work)
        case Strategy.INPLACE:
            await inplace(work)
        case Strategy.DRIFT:
            await drift(work)
        case Strategy.REPARSE:
            await reparse(work)


async def parallel(work: RefreshJob) -> None:
    """Build a second space until it is complete; then the gates, then the switch. A move to another collection is
    the same with copied vectors."""
    space = await work.space()
    if space.state is SpaceState.LIVE:
        return  # the switch was committed, and only its answer was lost
    failpoint("refresh.before_collection")
    await create_collection(work, space)
    failpoint("refresh.after_collection")
    copied = VectorMapping(work.container.space, None) if work.payload.moves else None
    note = "chunks copied" if work.payload.moves else "chunks embedded"
    filling = SpaceFill(work.ctx, work.deps, space, mapping=copied, note=note)
    await filling.run()
    await filling.verify()
    report = await work.judge(
        await work.searched(work.container.space),
        SearchTarget(space, await work.deps.embedder(space)),
    )
    await switch_when_complete(work, filling, space, report)


async def inplace(work: RefreshJob) -> None:
    """Every document of the live space again; with ``force`` into an empty collection."""
    space = await work.space()
    payload, vectors = work.payload, work.deps.stack.vectors
    if payload.mapped_only:
        await SpaceFill(work.ctx, work.deps, space, mapped_only=True).run()
        return
    if space.state is not SpaceState.LIVE:
        raise Conflict(f"space {space.id} is no longer the live one: start the refresh again")
    version = payload.to.version if payload.to is not None else None
    if payload.force and not payload.collection_cleared:
        await _require_answer(work, with_version(space, version))
        async with work.deps.stack.db.reading() as conn:
            await work.deps.stack.capacity.check(conn)  # or there would be none to make it again
        await work.ctx.checkpoint()
        failpoint("inplace.before_drop")
        await vectors.drop_collection(space.collection())
        failpoint("inplace.after_drop")
        await create_collection(work, space)  # at once: meanwhile it is searched
        work = await work.amended(collection_cleared=True)
    await create_collection(work, space)
    filling = SpaceFill(
        work.ctx,
        work.deps,
        with_version(space, version),
        rewrite=True,
        collection_cleared=payload.force,
    )
    await filling.run()
    await filling.verify()
    for _ in range(MAX_SWITCHES):
        await work.ctx.fence()
        try:
            failpoint("inplace.before_commit")
            await work.ctx.transact(lambda conn: _rewritten(conn, work, space, version))
        except NotComplete:
            await filling.run()
            continue
        failpoint("inplace.after_commit")
        return
    raise NotComplete(
        "documents arrive faster than they are embedded; the job will try again later"
    )


async def create_collection(work: RefreshJob, space: Space) -> None:
    """As the manifest requires; an existing collection stays unchanged."""
    await work.deps.stack.vectors.create_collection(
        space.collection(), space.dims, layout_of(work.container.manifest)
    )


async def _require_answer(work: RefreshJob, space: Space) -> None:
    """Before a collection is emptied: the embedder is installed and configured, and embeds a text now."""
    vectors = await (await work.deps.embedder(space)).embed_documents([ANY_TEXT])
    if vectors.shape != (1, space.dims):
        raise Conflict(
            f"{space.embedder} gives vectors of {vectors.shape[-1]} dimensions, and the collection holds {space.dims}:"
            " nothing was changed. Use strategy parallel"
        )


async def _rewritten(conn: Connection, work: RefreshJob, space: Space, version: str | None) -> None:
    without_points = await space_points.without_points(conn, work.container.id, space.collection_id)
    await finish(
        conn,
        work.ctx.job,
        warnings=refused_input_warnings(without_points),
        result={"space_id": space.id, "version": version, "skipped_images": without_points},
    )
    if not await spaces.lock(conn, work.container.id):
        raise NotFound(f"container '{work.container.id}' no longer exists")
    container = await containers.get(conn, work.container.id)
    if container is not None:
        require_active(container)
    # Nothing is published from here on: what came in since the last look has vectors of the version before.
    if await space_points.missing(
        conn, work.container.id, space.collection_id, limit=1, job_id=work.ctx.job.id
    ):
        raise NotComplete("new documents arrived; they are embedded as well")
    if version is not None and version != space.version and container is not None:
        await spaces.set_version(conn, space.id, version)
        manifest = named_like(container.manifest, with_version(space, version))
        await spaces.point(conn, container.id, space.id, manifest.model_dump_json(), etag(manifest))
    await enqueue_dedup(conn, work.container.id, principal=work.ctx.job.principal)
