"""The interface of the vector engine: addressed points in named collections, and checks. Postgres is authoritative."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from latent_core.domain.errors import Invalid
from latent_core.domain.ids import PointId
from latent_core.domain.vector_types import Matrix, Vector

NO_COLLECTION: Final = "readiness"
"""A collection that does not exist. That it does not is an answer, too, and the cheapest one."""


@dataclass(frozen=True, slots=True)
class Points:
    """Vectors to store: one generation of a document, or of several documents in a batch."""

    ids: Sequence[PointId]
    vectors: Matrix
    doc_ids: Sequence[UUID]
    generations: Sequence[int]
    chunk_nos: Sequence[int]


@dataclass(frozen=True, slots=True)
class VectorHits:
    """Nearest points, best first. Several points may share a chunk_no (windows of one chunk)."""

    chunk_nos: NDArray[np.int64]
    scores: NDArray[np.float32]
    """Cosine similarity, -1..1."""


@dataclass(frozen=True, slots=True)
class StoredPoint:
    id: PointId
    doc_id: UUID
    generation: int
    chunk_no: int


@dataclass(frozen=True, slots=True)
class CollectionLayout:
    """How a server stores a collection (manifest key ``vectors``). Ignored by the embedded engine, which is one
    process on one disk and always searches a coarse copy with rescoring."""

    quantization: Literal["none", "int8"] | None = None
    """None: exact up to ``QUANTIZE_FROM_POINTS``, int8 with rescoring above."""
    shards: int = 1
    replicas: int = 1


class VectorIndex(Protocol):
    """Collections of points with cosine similarity; ``doc_id`` and ``generation`` are indexed at creation.

    Every call raises ``Unavailable`` when the engine is unreachable and ``TimedOut`` past its deadline.
    Writes are durable, and visible to searches, when they return.
    """

    async def create_collection(
        self, name: str, dims: int, layout: CollectionLayout = CollectionLayout()
    ) -> None:
        """Create ``name`` unless it exists with the same ``dims`` (``Conflict`` for other dims).

        An existing one adopts the parts of ``layout`` that can be changed in place.
        """
        ...

    async def drop_collection(self, name: str) -> None:
        """Remove ``name`` and all its points, if it exists."""
        ...

    async def collections(self) -> list[str]: ...

    async def upsert(self, collection: str, points: Points) -> None:
        """Store points, then check by id that all are stored. ``NotFound`` without the collection."""
        ...

    async def search(
        self, collection: str, vector: Vector, k: int, *, allowed: Sequence[PointId] | None = None
    ) -> VectorHits:
        """The ``k`` nearest points (exact), limited to ``allowed`` if given."""
        ...

    async def vectors(
        self, collection: str, ids: Sequence[PointId], *, all_replicas: bool = False
    ) -> dict[PointId, Vector]:
        """Stored vectors of the ids that exist; with ``all_replicas`` only of those that every replica has."""
        ...

    async def delete(
        self, collection: str, doc_id: UUID, *, below: int | None = None, only: int | None = None
    ) -> int:
        """Delete points of ``doc_id``: all, those of generations < ``below``, or of generation ``only``.

        Returns the count before; afterwards none is left. Does nothing without the collection.
        """
        ...

    async def delete_points(self, collection: str, ids: Sequence[PointId]) -> None:
        """Delete the points with these ids; afterwards none is left. Does nothing without the collection."""
        ...

    async def count(
        self, collection: str, *, doc_id: UUID | None = None, generation: int | None = None
    ) -> int:
        """Exact count; ``NotFound`` without the collection."""
        ...

    async def scroll(
        self, collection: str, *, after: PointId | None, limit: int
    ) -> list[StoredPoint]:
        """Points in id order after ``after``, at most ``limit`` (for checks and repairs)."""
        ...

    async def close(self) -> None: ...


def checked_points(points: Points) -> NDArray[np.float32]:
    """The vectors of ``points``; ``Invalid`` for columns of different length and for non-finite numbers."""
    vectors = np.ascontiguousarray(points.vectors, dtype=np.float32)
    lengths = {len(points.ids), len(points.doc_ids), len(points.generations), len(points.chunk_nos)}
    if vectors.ndim != 2 or lengths != {len(vectors)}:
        raise Invalid("points need one vector, document, generation and chunk_no each")
    if not np.isfinite(vectors).all():
        raise Invalid("vectors hold finite numbers only")
    return vectors


def checked_query(vector: Vector, k: int) -> NDArray[np.float32]:
    """``vector`` as float32; ``Invalid`` for an unusable query."""
    query = np.ascontiguousarray(vector, dtype=np.float32)
    if query.ndim != 1 or not np.isfinite(query).all():
        raise Invalid("a query is one vector of finite numbers")
    if k < 0:
        raise Invalid(f"k is {k}: it must not be negative")
    return query
