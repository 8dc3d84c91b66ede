"""Large collections: the order of an exact search from 8-bit codes, whatever the vectors, and damage that is noticed."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from latent_core.vectors.edge.flat import create_flat
from latent_core.vectors.edge.large import LargeCollection, encoded
from latent_core.vectors.edge.nearest import normalised
from latent_core.vectors.edge.point_log import PointLog
from latent_core.vectors.edge.points import PointBatch
from latent_core.vectors.edge.protocol import POINT_LOG, RequestRefused

POINTS: Final = 3000
DIMS: Final = 48

Vectors = NDArray[np.float32]


def opened(path: Path, dims: int = DIMS) -> LargeCollection:
    log = PointLog(path / POINT_LOG, dims)
    return LargeCollection(path, log, log.read())


def made(path: Path, vectors: Vectors) -> LargeCollection:
    create_flat(path, vectors.shape[1])
    collection = opened(path, vectors.shape[1])
    for start in range(0, len(vectors), 700):
        collection.upsert(batch(vectors[start : start + 700], start))
    return collection


def batch(vectors: Vectors, first: int = 0) -> PointBatch:
    numbers = range(first, first + len(vectors))
    return PointBatch(
        ids=[point(n) for n in numbers],
        doc_ids=[UUID(int=n // 10).bytes for n in numbers],
        generations=np.full(len(vectors), 1, np.int64),
        chunk_nos=np.array(numbers, np.int64),
        vectors=vectors,
    )


def point(number: int) -> bytes:
    return UUID(int=number).bytes


def exact(vectors: Vectors, query: Vectors, k: int, among: NDArray[np.int64]) -> list[int]:
    scores = np.einsum("ij,j->i", normalised(vectors[among]), normalised(query[None])[0])
    order = np.lexsort((among, -scores))
    best: list[int] = among[order[:k]].tolist()
    return best


def spread(rng: np.random.Generator) -> Vectors:
    return rng.standard_normal((POINTS, DIMS)).astype(np.float32)


def clustered(rng: np.random.Generator) -> Vectors:
    """Few directions, each with hundreds of vectors that differ by less than a step of their codes."""
    centres = rng.standard_normal((6, DIMS))[rng.integers(0, 6, POINTS)]
    return (centres + rng.standard_normal((POINTS, DIMS)) * 1e-3).astype(np.float32)


def repeated(rng: np.random.Generator) -> Vectors:
    return rng.standard_normal((9, DIMS)).astype(np.float32)[rng.integers(0, 9, POINTS)]


def spiky(rng: np.random.Generator) -> Vectors:
    """One large part each: the steps of the codes are as wide as they can be."""
    vectors = rng.standard_normal((POINTS, DIMS)) * 0.02
    vectors[np.arange(POINTS), rng.integers(0, DIMS, POINTS)] += 1
    return vectors.astype(np.float32)


@pytest.mark.parametrize("kind", [spread, clustered, repeated, spiky])
def test_the_order_is_that_of_an_exact_search_under_filters_of_every_size(
    kind: type, tmp_path: Path
) -> None:
    rng = np.random.default_rng(3)
    vectors = kind(rng)
    collection = made(tmp_path, vectors)
    everything = np.arange(POINTS)
    for share in (1.0, 0.5, 0.1, 0.01, 0.001):
        among = np.sort(rng.choice(POINTS, max(1, int(share * POINTS)), replace=False))
        ids = None if share == 1.0 else [point(n) for n in rng.permutation(among).tolist()]
        for query in rng.standard_normal((8, DIMS)).astype(np.float32):
            for k in (1, 10, 116):
                chunk_nos, scores = collection.search(query, k, ids)
                chosen = everything if ids is None else among
                assert chunk_nos.tolist() == exact(vectors, query, k, chosen)
                assert (np.diff(scores) <= 0).all()
    collection.close()


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), dims=st.integers(1, 90), points=st.integers(1, 400))
def test_the_order_is_exact_after_replacements_deletions_and_reopening(
    seed: int, dims: int, points: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng = np.random.default_rng(seed)
    path = tmp_path_factory.mktemp("large")
    vectors = rng.standard_normal((points, dims)).astype(np.float32)
    collection = made(path, vectors)
    some = np.flatnonzero(rng.random(points) < 0.3)
    vectors[some] = rng.standard_normal((len(some), dims)).astype(np.float32)
    for n in some.tolist():
        collection.upsert(batch(vectors[n : n + 1], n))
    gone = rng.random(points) < 0.3
    collection.delete_points([point(n) for n in np.flatnonzero(gone).tolist()])
    left = np.flatnonzero(~gone)
    query = rng.standard_normal(dims).astype(np.float32)
    for again in (False, True, True):
        assert collection.search(query, 50, None)[0].tolist() == exact(vectors, query, 50, left)
        assert len(collection) == len(left)
        collection.close()
        if again:
            log = PointLog(path / POINT_LOG, dims)
            rewritten = LargeCollection(path, log, log.read())
            rewritten.rewrite()
            rewritten.close()
        collection = opened(path, dims)
    found = collection.vectors([point(n) for n in left.tolist()])
    assert sorted(one.int for one, _ in found) == left.tolist()
    for one, vector in found:
        np.testing.assert_allclose(vector, normalised(vectors[one.int][None])[0])
    collection.close()


def test_an_empty_collection_and_vectors_of_zeros_have_an_answer(tmp_path: Path) -> None:
    collection = made(tmp_path, np.zeros((0, 4), np.float32))
    query = np.ones(4, np.float32)
    assert collection.search(query, 5, None)[0].tolist() == []
    collection.upsert(batch(np.zeros((3, 4), np.float32)))
    chunk_nos, scores = collection.search(query, 5, None)
    assert (chunk_nos.tolist(), scores.tolist()) == ([0, 1, 2], [0, 0, 0])
    assert collection.search(query, 5, [point(9)])[0].tolist() == []
    collection.close()


def test_no_code_is_off_by_more_than_half_a_step() -> None:
    vectors = normalised(np.random.default_rng(1).standard_normal((50, 300)).astype(np.float32))
    codes, steps = encoded(vectors)
    assert (np.abs(codes * steps[:, None] - vectors) <= steps[:, None] * 0.5001).all()


@pytest.mark.parametrize("damage", ["other vector", "not a number", "cut off"])
def test_a_vector_that_is_not_what_was_written_is_no_hit_but_damage(
    damage: str, tmp_path: Path
) -> None:
    vectors = spread(np.random.default_rng(8))
    collection = made(tmp_path, vectors)
    file = tmp_path / POINT_LOG
    content = bytearray(file.read_bytes())
    at = content.find(normalised(vectors[2000][None]).tobytes())
    if damage == "cut off":
        content = content[: at + 8]
    else:
        value = -vectors[2000] if damage == "other vector" else np.full(DIMS, np.nan, np.float32)
        content[at : at + 4 * DIMS] = value.tobytes()
    with file.open("r+b") as out:  # the same file, which is open
        out.write(content)
        out.truncate()
    with pytest.raises(RequestRefused, match="latent doctor"):
        collection.search(vectors[2000], 5, None)
    collection.close()
