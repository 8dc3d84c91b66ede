"""Render: page images of a live generation. Text is searchable before; this job only adds pictures."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from latent_core.blobs.keeping import store
from latent_core.domain.chunk import SourceType
from latent_core.domain.errors import IngestFailed
from latent_core.domain.ids import Sha256
from latent_core.domain.manifest import Manifest
from latent_core.generations.delete import LEASES_TO_WAIT, enqueue_collection
from latent_core.processes.crash import crash_point
from latent_core.queue.context import JobContext
from latent_core.queue.finish import finish, hold
from latent_core.registry import chunks, containers, pages
from latent_core.registry.connection import Connection
from latent_core.registry.pages import BlobRef, PageRow
from latent_workers.deps import Deps
from latent_workers.jobs.given_up import swept_if_given_up
from latent_workers.render.page import RenderOptions
from latent_workers.render.run import RenderedPage, render as drawing


class RenderPayload(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    generation: int
    sha256: str
    filename: str
    source_type: SourceType
    charset: str | None = None
    sanitize_rules: tuple[str, ...] = ()
    """By which a web page was read, with ``charset``: its pages show the lines its chunks know."""


PAGES_A_BATCH: Final = 16
"""Images that are stored before rows refer to them: garbage if the attempt ends in between."""


@dataclass(slots=True)
class Drawn:
    """Pages whose images are stored and not noted yet."""

    rows: list[PageRow] = field(default_factory=list)
    refs: list[BlobRef] = field(default_factory=list)


async def render(ctx: JobContext, deps: Deps) -> None:
    """Draw the pages of a generation and note them, some at a time, as long as it is live."""
    async with swept_if_given_up(ctx, deps):
        await _render(ctx, deps)


async def _render(ctx: JobContext, deps: Deps) -> None:
    payload = RenderPayload.model_validate(ctx.job.payload)
    if ctx.job.doc_id is None:
        raise IngestFailed(f"job {ctx.job.id} names no document")
    async with deps.stack.db.transaction() as conn:
        container = await containers.get(conn, ctx.job.container_id)
        live = container is not None and await pages.is_live(
            conn, ctx.job.doc_id, payload.generation
        )
    if container is None or not live:
        return  # something newer has its own render job
    path = await deps.stack.blobs.local_copy(Sha256(payload.sha256))
    options = _options(container.manifest, payload.source_type)
    batch = Drawn()
    async with drawing(
        deps.renderers,
        path,
        name=payload.filename,
        source_type=payload.source_type,
        options=options,
        charset=payload.charset,
        sanitize_rules=payload.sanitize_rules,
    ) as drawn:
        async for page in drawn:
            await ctx.checkpoint()
            sha256 = await store(deps.stack.db, deps.stack.blobs, page.image)
            batch.rows.append(_row(page, sha256))
            name = _filename(payload, page, options.image_format)
            batch.refs.append(BlobRef("page_image", page.number, sha256, page.mime, name))
            await ctx.progress(page.number, page.total)
            if len(batch.rows) == PAGES_A_BATCH:
                if not await _note(ctx, deps, ctx.job.doc_id, payload, batch):
                    return
                batch = Drawn()
    for warning in drawn.warnings:
        await ctx.warn(warning)
    await _note(ctx, deps, ctx.job.doc_id, payload, batch, last=True)


def _options(manifest: Manifest, source_type: SourceType) -> RenderOptions:
    of_image = source_type is SourceType.IMAGE
    return RenderOptions(
        dpi=manifest.pdf.render_dpi,
        image_format="webp" if of_image else manifest.pdf.image_format,
        quality=manifest.image.compress_quality,
        max_pages=manifest.pdf.max_pages,
        max_edge=manifest.image.thumbnail_max_edge,
    )


async def _note(
    ctx: JobContext,
    deps: Deps,
    doc_id: UUID,
    payload: RenderPayload,
    batch: Drawn,
    *,
    last: bool = False,
) -> bool:
    """Refer to the images; False when the generation is not live any more, which ends the job."""

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
        crash_point("render.before_commit")
        return live

    noted = await ctx.transact(write)
    crash_point("render.after_commit")
    return noted


def _row(page: RenderedPage, sha256: str) -> PageRow:
    return PageRow(
        page=page.number,
        text=page.text,
        width=page.width,
        height=page.height,
        image_sha256=sha256,
        line_start=page.line_start,
        line_end=page.line_end,
        visual=page.visual,
    )


def _filename(payload: RenderPayload, page: RenderedPage, form: str) -> str:
    return f"{PurePosixPath(payload.filename).stem}-{page.number:04d}.{form}"
