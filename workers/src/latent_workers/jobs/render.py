"""Render: page images of a live generation. Text is searchable before; this job only adds pictures."""

from __future__ import annotations

from pathlib import PurePosixPath
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from latent_core.blobs.keeping import store
from latent_core.domain.chunk import SourceType
from latent_core.domain.errors import IngestFailed
from latent_core.domain.ids import Sha256
from latent_core.queue.context import JobContext
from latent_core.queue.finish import finish
from latent_core.registry import chunks, containers, pages
from latent_core.registry.connection import Connection
from latent_core.registry.pages import BlobRef, PageRow
from latent_workers.deps import Deps
from latent_workers.render.page import RenderOptions
from latent_workers.render.run import RenderedPage, render as drawing


class RenderPayload(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    generation: int
    sha256: str
    filename: str
    source_type: SourceType


async def render(ctx: JobContext, deps: Deps) -> None:
    """Draw every page, store the images, then note them all in one transaction, if the generation is still live."""
    payload = RenderPayload.model_validate(ctx.job.payload)
    if ctx.job.doc_id is None:
        raise IngestFailed(f"job {ctx.job.id} names no document")
    doc_id = ctx.job.doc_id
    async with deps.stack.db.transaction() as conn:
        container = await containers.get(conn, ctx.job.container_id)
        live = container is not None and await pages.is_live(conn, doc_id, payload.generation)
    if container is None or not live:
        return  # something newer has its own render job
    path = await deps.stack.blobs.local_copy(Sha256(payload.sha256))
    manifest = container.manifest
    options = RenderOptions(
        dpi=manifest.pdf.render_dpi,
        image_format=manifest.pdf.image_format,
        quality=manifest.image.compress_quality,
        max_pages=manifest.pdf.max_pages,
    )
    rows: list[PageRow] = []
    refs: list[BlobRef] = []
    async with drawing(
        deps.sandbox,
        path,
        name=payload.filename,
        source_type=payload.source_type,
        options=options,
    ) as drawn:
        async for page in drawn:
            await ctx.checkpoint()
            sha256 = await store(deps.stack.db, deps.stack.blobs, page.image)
            rows.append(_row(page, sha256))
            name = _filename(payload, page, options.image_format)
            refs.append(BlobRef("page_image", page.number, sha256, page.mime, name))
            await ctx.progress(page.number, page.total)
    for warning in drawn.warnings:
        await ctx.warn(warning)
    await _note(ctx, doc_id, payload, rows, refs)


async def _note(
    ctx: JobContext,
    doc_id: UUID,
    payload: RenderPayload,
    rows: list[PageRow],
    refs: list[BlobRef],
) -> None:
    async def write(conn: Connection) -> None:
        await finish(conn, ctx.job)
        if not await pages.is_live(conn, doc_id, payload.generation):
            return
        await pages.write(conn, doc_id, payload.generation, rows)
        await pages.refer(conn, doc_id, payload.generation, refs)
        if payload.source_type is not SourceType.PDF:
            await chunks.place_on_pages(conn, doc_id, payload.generation)

    await ctx.transact(write)


def _row(page: RenderedPage, sha256: str) -> PageRow:
    return PageRow(
        page=page.number,
        text=page.text,
        width=page.width,
        height=page.height,
        image_sha256=sha256,
        line_start=page.line_start,
        line_end=page.line_end,
    )


def _filename(payload: RenderPayload, page: RenderedPage, form: str) -> str:
    return f"{PurePosixPath(payload.filename).stem}-{page.number:04d}.{form}"
