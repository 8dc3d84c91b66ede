"""Writes a generation also into the other spaces: one that is being built, and one that is kept for a rollback.

An error there does not stop the document. The missing vectors are known, because only a publication or a refresh
records them: a build adds them, and a rollback is refused until then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from latent_core.db import containers
from latent_core.db.containers import Container, Space
from latent_core.domain.errors import LatentError
from latent_core.ingest.stage import AddressedChunk, stage_vectors
from latent_core.models.embedding.picture import Piece
from latent_core.queue.context import JobContext
from latent_core.wire.refresh import SpaceState
from latent_workers.deps import Deps
from latent_workers.ingest.refused_inputs import kept_of, refused_inputs_of

logger = logging.getLogger(__name__)

DUAL_WRITE_SPACES: Final = frozenset({SpaceState.BUILDING, SpaceState.LIVE, SpaceState.RETIRED})


async def dual_write_spaces(deps: Deps, container: Container) -> list[Space]:
    """The container's other collections, one space each; the live space has priority in a shared collection."""
    async with deps.stack.db.reading() as conn:
        spaces = await containers.spaces(conn, container.id)
    found = {container.space.collection_id: container.space}
    for space in sorted(spaces, key=lambda one: one.state is not SpaceState.LIVE):
        if space.state in DUAL_WRITE_SPACES:
            found.setdefault(space.collection_id, space)
    return [space for space in found.values() if space is not container.space]


async def stage_dual_write(
    ctx: JobContext, deps: Deps, container: Container, addressed: Sequence[AddressedChunk]
) -> dict[int, list[int]]:
    """The collections that now have the vectors, each with the number of points of every chunk."""
    written: dict[int, list[int]] = {}
    for space in await dual_write_spaces(deps, container):
        try:
            written[space.collection_id] = await _stage(ctx, deps, space, addressed)
        except LatentError as error:
            logger.warning(
                "space_not_written",
                extra={
                    "container_id": container.id,
                    "space": space.id,
                    "state": space.state.value,
                    "cause": error.message,
                },
            )
    return written


async def _stage(
    ctx: JobContext, deps: Deps, space: Space, addressed: Sequence[AddressedChunk]
) -> list[int]:
    drafts = [one.chunk.draft for one in addressed]

    def cut() -> list[list[Piece]]:
        return [deps.embedding.pieces(space, one.embed_text, one.picture) for one in drafts]

    parts = await asyncio.to_thread(cut)
    pieces = [piece for part in parts for piece in part]
    refused_inputs = refused_inputs_of(ctx)
    vectors = await deps.embedding.embed(
        space, pieces, ctx.checkpoint, _nobody, job_id=ctx.job.id, refused_inputs=refused_inputs
    )
    counts, vectors = kept_of(refused_inputs, parts, vectors)
    there = [
        AddressedChunk(one.doc_id, one.generation, one.chunk, n)
        for one, n in zip(addressed, counts, strict=True)
    ]
    await stage_vectors(deps.stack.vectors, space, there, vectors, ctx.checkpoint)
    return counts


async def _nobody(_done: int) -> None:
    """Only the progress of the live space is reported."""
