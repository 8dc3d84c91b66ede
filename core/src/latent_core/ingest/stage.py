"""Store the vectors of a generation before it becomes visible, and request dedup for its chunks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from latent_core.db.connection import Connection
from latent_core.db.containers import Space
from latent_core.db.documents import duplicates
from latent_core.domain.chunk import Chunk
from latent_core.domain.ids import PointId, point_id
from latent_core.domain.job import PRIORITY_LATER, JobKind, NewJob
from latent_core.domain.vector_types import Matrix
from latent_core.queue.enqueue import ensure_queued
from latent_core.vectors.port import Points, VectorIndex

POINTS_PER_WRITE: Final = 512

Checkpoint = Callable[[], Awaitable[None]]
"""Raises if the job was cancelled or its lease is lost; called before every write outside Postgres."""


@dataclass(frozen=True, slots=True)
class AddressedChunk:
    """A chunk with the document, generation and window count that determine its point ids."""

    doc_id: UUID
    generation: int
    chunk: Chunk
    windows: int

    def point_ids(self) -> list[PointId]:
        return [point_id(self.chunk.id, self.generation, w) for w in range(self.windows)]


async def stage_vectors(
    index: VectorIndex,
    space: Space,
    addressed: Sequence[AddressedChunk],
    vectors: Matrix,
    checkpoint: Checkpoint,
) -> None:
    """Store ``vectors`` (one row per window, in the order of ``addressed``); durable on return.

    ``NotFound`` without the collection. It is created with its container and at every start, but never here: a slow
    worker would create it again for a container that was just deleted.
    """
    await stage_points(index, space, _points(addressed, vectors), checkpoint)


async def stage_points(
    index: VectorIndex,
    space: Space,
    points: Points,
    checkpoint: Checkpoint,
    *,
    at_once: int = POINTS_PER_WRITE,
) -> None:
    """Store points that already have ids; durable on return."""
    collection = space.collection()
    for start in range(0, len(points.ids), at_once):
        await checkpoint()
        await index.upsert(collection, _slice(points, start, start + at_once))


def _points(addressed: Sequence[AddressedChunk], vectors: Matrix) -> Points:
    ids = [i for a in addressed for i in a.point_ids()]
    if len(ids) != len(vectors):
        raise ValueError(f"{len(ids)} windows, but {len(vectors)} vectors")
    return Points(
        ids=ids,
        vectors=vectors,
        doc_ids=[a.doc_id for a in addressed for _ in range(a.windows)],
        generations=[a.generation for a in addressed for _ in range(a.windows)],
        chunk_nos=[a.chunk.chunk_no for a in addressed for _ in range(a.windows)],
    )


def _slice(points: Points, start: int, stop: int) -> Points:
    return Points(
        ids=points.ids[start:stop],
        vectors=points.vectors[start:stop],
        doc_ids=points.doc_ids[start:stop],
        generations=points.generations[start:stop],
        chunk_nos=points.chunk_nos[start:stop],
    )


DELAY_SECONDS: Final = 2.0
"""Changes within this time are handled by one job."""


async def enqueue_dedup_pending(conn: Connection, container_id: str, *, principal: str) -> None:
    """Enqueue the container's job that checks all pending chunks for duplicates, unless one is queued."""
    await ensure_queued(
        conn,
        NewJob(
            kind=JobKind.DEDUP,
            container_id=container_id,
            doc_key=f"dedup:{container_id}",
            dedupe_key=f"dedup:{container_id}",
            priority=PRIORITY_LATER,
            delay_seconds=DELAY_SECONDS,
            max_attempts=20,
            principal=principal,
        ),
    )


async def enqueue_dedup(conn: Connection, container_id: str, *, principal: str) -> None:
    """Check all chunks of a container again, after its threshold or its vectors changed."""
    await duplicates.leave_all(conn, container_id)
    await enqueue_dedup_pending(conn, container_id, principal=principal)
