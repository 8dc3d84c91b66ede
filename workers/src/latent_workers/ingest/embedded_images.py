"""Draws images before the document is published, for embedders that read images: their vectors are part of it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Final

from latent_core.db.containers import Container
from latent_core.domain.chunk import Modality, SourceType
from latent_core.domain.errors import IngestFailed, Issue
from latent_core.domain.ids import Sha256
from latent_core.queue.context import JobContext
from latent_workers.chunk.pages import page_chunks
from latent_workers.deps import Deps
from latent_workers.ingest.page_drawing import DrawnPages, RenderPayload, draw
from latent_workers.ingest.prepare import PreparedDocument

PICTURED: Final = frozenset({SourceType.IMAGE, SourceType.PDF})
"""Types whose pages show more than their text. Pages of the others are rendered from their text, and their vectors
would add nothing."""


async def with_pictures(
    ctx: JobContext,
    deps: Deps,
    container: Container,
    payload: RenderPayload,
    made: PreparedDocument,
    *,
    decrypted: Path | None = None,
) -> PreparedDocument:
    """``made`` with its pages drawn, if the container's embedder reads images: an image is embedded as it looks,
    and each page of a PDF becomes a chunk beside the text chunks.

    A page that cannot be drawn is found by its text; the render job later says why it has no image. Pages of a
    ``decrypted`` copy are always drawn here, since a render job has no password.
    """
    embeds = await _reads_images(deps, container, payload.source_type)
    if not embeds and decrypted is None:
        return made
    drawn = DrawnPages()
    try:
        async with aclosing(
            draw(ctx, deps, container.manifest, payload, decrypted=decrypted)
        ) as pages:
            async for page in pages:
                drawn.add(*page)
    except IngestFailed as error:
        lacks = "only its text is embedded" if embeds else "it has no page images"
        await ctx.warn(Issue(code=error.code, message=f"{lacks}: {error.message}"))
        return made if decrypted is None else replace(made, drawn=drawn)
    if not embeds:
        return replace(made, drawn=drawn)
    pictures = {
        row.page: Sha256(row.image_sha256) for row in drawn.rows if row.image_sha256 is not None
    }
    if payload.source_type is SourceType.IMAGE:
        drafts = [replace(draft, picture=pictures.get(1)) for draft in made.drafts]
        return replace(made, drafts=drafts, drawn=drawn)
    counter = deps.embedding.counter(container.space)
    shown = await asyncio.to_thread(
        page_chunks, made.parsed, pictures, payload.source_type, counter
    )
    return replace(made, drafts=[*made.drafts, *shown], drawn=drawn)


async def _reads_images(deps: Deps, container: Container, source_type: SourceType) -> bool:
    model = (await deps.embedder(container.space)).model
    if not model.reads_images or source_type not in PICTURED:
        return False
    return source_type is SourceType.IMAGE or Modality.IMAGE in container.manifest.modalities
