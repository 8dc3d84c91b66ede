"""Draws pages and stores each image before a row refers to it; if the attempt ends in between, it is garbage."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from latent_core.blobs.writer import store
from latent_core.db.documents.pages import BlobRef, PageRow, lacks
from latent_core.domain.chunk import SourceType
from latent_core.domain.ids import Sha256
from latent_core.domain.manifest.model import Manifest
from latent_core.queue.context import JobContext
from latent_workers.deps import Deps
from latent_workers.render.page import RenderOptions
from latent_workers.render.resume import PageDrawing
from latent_workers.render.run import Pages, RenderedPage, render
from latent_workers.sandbox.budget import Budget

SECONDS_TO_DRAWING: Final = 5.0
"""Between two checks whether the pages are drawn, of jobs that need them."""


class RenderPayload(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    generation: int
    sha256: str
    filename: str
    source_type: SourceType
    charset: str | None = None
    sanitize_rules: tuple[str, ...] = ()
    """The rules and the charset with which a web page was parsed: its images must show the lines of its chunks."""


@dataclass(slots=True)
class DrawnPages:
    """Pages with stored images and without rows."""

    rows: list[PageRow] = field(default_factory=list)
    refs: list[BlobRef] = field(default_factory=list)

    def add(self, row: PageRow, ref: BlobRef) -> None:
        self.rows.append(row)
        self.refs.append(ref)


async def draw(
    ctx: JobContext,
    deps: Deps,
    manifest: Manifest,
    payload: RenderPayload,
    *,
    decrypted: Path | None = None,
) -> AsyncGenerator[tuple[PageRow, BlobRef]]:
    """The pages of a stored original, or of its ``decrypted`` copy, one by one. Warnings name skipped pages at the
    end."""
    blobs = await deps.stack.blobs_of(ctx.job.container_id)
    path = decrypted or await blobs.local_copy(Sha256(payload.sha256))
    options = _options(manifest, payload.source_type)

    def part(render_options: RenderOptions, budget: Budget) -> AbstractAsyncContextManager[Pages]:
        return render(
            deps.renderers,
            path,
            name=payload.filename,
            source_type=payload.source_type,
            options=render_options,
            charset=payload.charset,
            sanitize_rules=payload.sanitize_rules,
            budget=budget,
        )

    drawing = PageDrawing(part, options, by_page=payload.source_type is SourceType.PDF)
    async with aclosing(drawing.pages()) as pages:
        async for page in pages:
            await ctx.checkpoint()
            sha256 = await store(deps.stack.db, blobs, page.image)
            name = (
                f"{PurePosixPath(payload.filename).stem}-{page.number:04d}.{options.image_format}"
            )
            await ctx.progress(page.number, page.total)
            yield (
                _row(page, sha256),
                BlobRef("page_image", page.number, sha256, page.mime, name),
            )
    for warning in drawing.warnings:
        await ctx.warn(warning)


def _options(manifest: Manifest, source_type: SourceType) -> RenderOptions:
    of_image = source_type is SourceType.IMAGE
    return RenderOptions(
        dpi=manifest.pdf.render_dpi,
        image_format="webp" if of_image else manifest.pdf.image_format,
        quality=manifest.image.compress_quality,
        max_pages=manifest.pdf.max_pages,
        max_edge=manifest.image.thumbnail_max_edge,
    )


def _row(page: RenderedPage, sha256: Sha256) -> PageRow:
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


async def is_drawing(deps: Deps, doc_id: UUID) -> bool:
    """Whether a job still draws the pages of the live generation."""
    async with deps.stack.db.reading() as conn:
        lack = (await lacks(conn, [doc_id])).get(doc_id)
    return lack is not None and lack.drawing
