"""What a vector index should hold and find, by numpy; and random histories to compare the two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID, uuid5

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from latent_core.domain.ids import PointId
from latent_core.domain.vector_types import Matrix, Vector
from latent_core.vectors.port import Points, StoredPoint, VectorHits, VectorIndex

TOLERANCE = 1e-5
"""Of a score, between the engine's float32 arithmetic and ours."""
_NAMESPACE = UUID("0d1f4c5e-93a7-4f0b-8a58-1d6a3f0c7e11")


def named(name: str) -> UUID:
    """A UUID that is the same in every run."""
    return uuid5(_NAMESPACE, name)


def unit(rows: Sequence[Sequence[float]] | NDArray[np.float64]) -> Matrix:
    """The rows, scaled to unit length."""
    matrix = np.asarray(rows, dtype=np.float64)
    scaled: Matrix = (matrix / np.linalg.norm(matrix, axis=1, keepdims=True)).astype(np.float32)
    return scaled


def random_vectors(count: int, dims: int, seed: int) -> Matrix:
    return unit(np.random.default_rng(seed).standard_normal((count, dims)))


def points_of(
    vectors: Matrix, *, doc: str = "doc", generation: int = 1, first: int = 0, prefix: str = ""
) -> Points:
    """One point a row: ids from doc, generation and position, chunk_nos counting from ``first``."""
    n = len(vectors)
    return Points(
        ids=[PointId(named(f"{prefix}{doc}/{generation}/{i}")) for i in range(n)],
        vectors=vectors,
        doc_ids=[named(doc)] * n,
        generations=[generation] * n,
        chunk_nos=list(range(first, first + n)),
    )


@dataclass
class Oracle:
    """What should be stored, searched by numpy."""

    points: dict[PointId, tuple[UUID, int, int, Vector]] = field(default_factory=dict)

    def upsert(self, points: Points) -> None:
        columns = zip(
            points.doc_ids, points.generations, points.chunk_nos, points.vectors, strict=True
        )
        self.points |= dict(zip(points.ids, columns, strict=True))

    def delete(self, doc: UUID, below: int | None, only: int | None) -> int:
        doomed = [
            point
            for point, (of, generation, _, _) in self.points.items()
            if of == doc
            and (below is None or generation < below)
            and (only is None or generation == only)
        ]
        for point in doomed:
            del self.points[point]
        return len(doomed)

    def delete_points(self, ids: Sequence[PointId]) -> None:
        for point in ids:
            self.points.pop(point, None)

    def check(
        self, hits: VectorHits, query: Vector, k: int, allowed: Sequence[PointId] | None
    ) -> None:
        """The hits are the nearest, in order. Scores that differ by less than the tolerance tie."""
        among = self.points.keys() if allowed is None else self.points.keys() & set(allowed)
        chosen = list(among)
        scores = [float(self.points[p][3] @ query) for p in chosen]
        best = sorted(scores, reverse=True)[:k]
        np.testing.assert_allclose(hits.scores, best, atol=TOLERANCE)
        order = list(zip((-hits.scores).tolist(), hits.chunk_nos.tolist(), strict=True))
        assert order == sorted(order)
        cut = best[-1] if best else np.inf
        chunk_nos = [self.points[p][2] for p in chosen]
        sure = Counter(o for o, s in zip(chunk_nos, scores, strict=True) if s > cut + TOLERANCE)
        possible = Counter(o for o, s in zip(chunk_nos, scores, strict=True) if s > cut - TOLERANCE)
        found = Counter(hits.chunk_nos.tolist())
        assert sure <= found <= possible

    def stored(self) -> list[StoredPoint]:
        """In id order."""
        rows = [StoredPoint(p, doc, gen, o) for p, (doc, gen, o, _) in self.points.items()]
        return sorted(rows, key=lambda row: row.id.bytes)


@dataclass(frozen=True)
class OracleUpsert:
    points: Points


@dataclass(frozen=True)
class OracleDelete:
    doc: UUID
    below: int | None
    only: int | None


@dataclass(frozen=True)
class OracleDeletePoints:
    ids: list[PointId]


@dataclass(frozen=True)
class OracleSearch:
    query: Vector
    k: int
    allowed: list[PointId] | None


Step = OracleUpsert | OracleDelete | OracleDeletePoints | OracleSearch
Row = tuple[PointId, UUID, int, int, list[int]]


def _points(rows: list[Row]) -> Points:
    ids, docs, generations, chunk_nos, vectors = zip(*rows, strict=True)
    return Points(ids, unit(vectors), docs, generations, chunk_nos)


DOCS = [named(f"doc {n}") for n in range(3)]
# Few directions and chunk_nos, so that ties and shared chunk_nos are common.
DIRECTIONS = st.lists(st.integers(-2, 2), min_size=4, max_size=4).filter(any)
POINT_IDS = st.integers(0, 45).map(lambda n: PointId(named(f"point {n}")))
GENERATIONS = st.integers(1, 3)
ROWS = st.tuples(POINT_IDS, st.sampled_from(DOCS), GENERATIONS, st.integers(0, 15), DIRECTIONS)
UPSERTS = st.builds(
    OracleUpsert, st.lists(ROWS, min_size=1, max_size=12, unique_by=lambda row: row[0]).map(_points)
)
DELETES = st.one_of(
    st.builds(OracleDelete, st.sampled_from(DOCS), st.none() | GENERATIONS, st.none()),
    st.builds(OracleDelete, st.sampled_from(DOCS), st.none(), GENERATIONS),
    st.builds(OracleDeletePoints, st.lists(POINT_IDS, max_size=12)),
)
SEARCHES = st.builds(
    OracleSearch,
    DIRECTIONS.map(lambda direction: unit([direction])[0]),
    st.integers(0, 30),
    st.none() | st.lists(POINT_IDS, max_size=25, unique=True),
)
STEPS = st.lists(st.one_of(UPSERTS, UPSERTS, DELETES, SEARCHES, SEARCHES), min_size=1, max_size=14)


async def take_step(index: VectorIndex, name: str, oracle: Oracle, step: Step) -> None:
    match step:
        case OracleUpsert(points):
            await index.upsert(name, points)
            oracle.upsert(points)
        case OracleDelete(doc, below, only):
            expected = oracle.delete(doc, below, only)
            assert await index.delete(name, doc, below=below, only=only) == expected
        case OracleDeletePoints(ids):
            await index.delete_points(name, ids)
            oracle.delete_points(ids)
        case OracleSearch(query, k, allowed):
            hits = await index.search(name, query, k, allowed=allowed)
            oracle.check(hits, query, k, allowed)
    assert await index.count(name) == len(oracle.points)
