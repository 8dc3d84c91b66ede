"""The vectors of a step: the archive's own, or made anew, and stored where nothing sees them yet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final
from uuid import UUID

import numpy as np

from latent_core.archive.batches import Batch
from latent_core.archive.records import ChunkRecord
from latent_core.domain.chunk import Modality
from latent_core.domain.ids import PointId, point_id
from latent_core.domain.vector import Matrix
from latent_core.generations.importing.step import Step, Taken, Target
from latent_core.ingest.stage import Checkpoint, stage_points
from latent_core.vectors.port import Points, VectorIndex

POINTS_A_WRITE: Final = 2048
"""Each write is brought to the disk: thousands at once cost as little as some."""

Embed = Callable[[Sequence[ChunkRecord], Sequence[str | None]], Awaitable[tuple[list[int], Matrix]]]
"""Windows of each chunk, and their vectors: for chunks whose own are not there or of another space."""


async def vectors_of(
    target: Target, taken: Sequence[Taken], batches: Sequence[Batch], embed: Embed
) -> tuple[list[int], Matrix, int]:
    """Windows and vectors of the chunks of ``taken``, in order; and how many of them had to be embedded."""
    stored: dict[int, Matrix] = {}
    if target.same_space:
        for batch in batches:
            for part in batch.parts:
                stored.update(_rows_of(part.chunks, part.vectors))
    chunks = [chunk for one in taken for chunk in one.chunks]
    lacking = [chunk for chunk in chunks if chunk.n not in stored]
    if lacking:
        pictures = _pictures(taken)
        windows, matrix = await embed(lacking, [pictures.get(chunk.n) for chunk in lacking])
        ends = np.cumsum(windows)
        for chunk, end, count in zip(lacking, ends, windows, strict=True):
            stored[chunk.n] = matrix[int(end) - count : int(end)]
    parts = [stored[chunk.n] for chunk in chunks]
    dims = target.container.space.dims
    matrix = np.concatenate(parts) if parts else np.empty((0, dims), np.float32)
    return [len(part) for part in parts], matrix, len(lacking)


def _pictures(taken: Sequence[Taken]) -> dict[int, str]:
    """Number of each chunk that is the picture of a page to that picture's hash, where the archive has its bytes."""
    found: dict[int, str] = {}
    for one in taken:
        drawn = {page.page: page.sha256 for page in one.pages if page.uri is not None}
        for chunk in one.chunks:
            if chunk.modality is Modality.IMAGE and chunk.page is not None:
                sha256 = drawn.get(chunk.page)
                if sha256 is not None:
                    found[chunk.n] = sha256
    return found


def _rows_of(chunks: Sequence[ChunkRecord], vectors: Matrix | None) -> Iterator[tuple[int, Matrix]]:
    if vectors is None:
        return
    start = 0
    for chunk in chunks:
        yield chunk.n, vectors[start : start + chunk.windows]
        start += chunk.windows


async def stage(index: VectorIndex, target: Target, step: Step, checkpoint: Checkpoint) -> None:
    """Store the vectors of a step where nothing sees them yet."""
    points = await asyncio.to_thread(_points, step)
    space = target.container.space
    await stage_points(index, space, points, checkpoint, at_once=POINTS_A_WRITE)


def _points(step: Step) -> Points:
    ids: list[PointId] = []
    docs: list[UUID] = []
    generations: list[int] = []
    ords: list[int] = []
    for one, windows in zip(step.chunks, step.windows, strict=True):
        for window in range(windows):
            ids.append(point_id(one.id, one.document.generation, window))
            docs.append(one.document.doc_id)
            generations.append(one.document.generation)
            ords.append(one.ord)
    return Points(ids, step.vectors, docs, generations, ords)
