"""Render: page images of a live generation. Its text is searchable before; this job only adds images."""

from __future__ import annotations

from contextlib import aclosing
from typing import Final
from uuid import UUID

from latent_core.db import containers
from latent_core.db.connection import Connection
from latent_core.db.documents import chunks, pages
from latent_core.domain.chunk import SourceType
from latent_core.domain.errors import IngestFailed, NotFound
from latent_core.ingest.delete import LEASES_TO_WAIT, enqueue_collection
from latent_core.queue.context import JobContext
from latent_core.queue.finish import finish, hold
from latent_core.runtime.failpoint import failpoint
from latent_workers.deps import Deps
from latent_workers.ingest.cleanup import cleanup_on_failure
from latent_workers.ingest.page_drawing import DrawnPages, RenderPayload, draw

PAGES_PER_BATCH: Final = 16


async def render(ctx: JobContext, deps: Deps) -> None:
    """Draw the pages of a generation and store them in batches, while it is live."""
    async with cleanup_on_failure(ctx, deps):
        try:
            await _render(ctx, deps)
        except (IngestFailed, NotFound):
            # The document was replaced or deleted during the job, and its original is garbage by now.
            if await _is_live(ctx, deps):
                raise


async def _render(ctx: JobContext, deps: Deps) -> None:
    payload = RenderPayload.model_validate(ctx.job.payload)
    if ctx.job.doc_id is None:
        raise IngestFailed(f"job {ctx.job.id} has no document")
    async with deps.stack.db.reading() as conn:
        container = await containers.get(conn, ctx.job.container_id)
    if container is None or not await _is_live(ctx, deps):
        return  # something newer has its own render job
    batch = DrawnPages()
    async with aclosing(draw(ctx, deps, container.manifest, payload)) as drawn:
        async for page in drawn:
            batch.add(*page)
            if len(batch.rows) == PAGES_PER_BATCH:
                if not await _note(ctx, deps, ctx.job.doc_id, payload, batch):
                    return
                batch = DrawnPages()
    await _note(ctx, deps, ctx.job.doc_id, payload, batch, last=True)


async def _is_live(ctx: JobContext, deps: Deps) -> bool:
    payload = RenderPayload.model_validate(ctx.job.payload)
    async with deps.stack.db.reading() as conn:
        return ctx.job.doc_id is None or await pages.is_live(
            conn, ctx.job.doc_id, payload.generation
        )


async def _note(
    ctx: JobContext,
    deps: Deps,
    doc_id: UUID,
    payload: RenderPayload,
    batch: DrawnPages,
    *,
    last: bool = False,
) -> bool:
    """Refer to the images; False if the generation is no longer live, which ends the job."""

    async def write(conn: Connection) -> bool:
        await hold(conn, ctx.job)
        live = await pages.is_live(conn, doc_id, payload.generation)
        if live:
            await pages.write(conn, doc_id, payload.generation, batch.rows)
            await pages.refer(conn, doc_id, payload.generation, batch.refs)
        if live and last and payload.source_type is not SourceType.PDF:
            await chunks.place_on_pages(conn, doc_id, payload.generation)
        if last or not live:
            await finish(conn, ctx.job)
        if not live or (last and ctx.job.attempts > 1):
            await enqueue_collection(
                conn,
                principal=ctx.job.principal,
                delay_seconds=LEASES_TO_WAIT * deps.settings.lease_seconds,
            )
        failpoint("render.before_commit")
        return live

    noted = await ctx.transact(write)
    failpoint("render.after_commit")
    return noted
