"""Large collections: the order of an exact search from 8-bit codes, whatever the vectors, and damage that is noticed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from core.tests.vectors import test_collection_layouts as layouts
from latent_core.runtime import failpoint
from latent_core.vectors.edge import large, saved_codes
from latent_core.vectors.edge.collections import Store
from latent_core.vectors.edge.flat import create_flat
from latent_core.vectors.edge.large import LargeCollection, encoded
from latent_core.vectors.edge.nearest import normalised
from latent_core.vectors.edge.point_log import PointLog
from latent_core.vectors.edge.points import PointBatch
from latent_core.vectors.edge.protocol import CODES, POINT_LOG, RequestRefused

POINTS: Final = 3000
DIMS: Final = 48
SAVER: Final = """
import sys
from pathlib import Path
from core.tests.vectors.test_large_collections import opened
from latent_core.runtime import failpoint
from latent_core.vectors.edge import saved_codes

collection = opened(Path(sys.argv[1]))
failpoint.arm(sys.argv[2])
saved_codes.save(collection)
"""

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


def test_vectors_that_are_not_in_the_cache_of_the_system_are_found_as_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large, "_CACHED_SECONDS", 0.0)
    vectors = spread(np.random.default_rng(4))
    collection = made(tmp_path, vectors)
    descriptor = os.open(tmp_path / POINT_LOG, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    found = collection.search(vectors[7], 100, None)[0].tolist()
    assert found == exact(vectors, vectors[7], 100, np.arange(POINTS))
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


def reopened(path: Path) -> LargeCollection:
    """By the saved table, which has to fit."""
    collection = saved_codes.opened(path, PointLog(path / POINT_LOG, DIMS))
    assert collection is not None
    return collection


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), later=st.integers(0, 200))
def test_a_saved_table_and_the_rest_of_the_log_are_the_whole_log(
    seed: int, later: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng = np.random.default_rng(seed)
    path = tmp_path_factory.mktemp("saved")
    collection = made(path, rng.standard_normal((300, DIMS)).astype(np.float32))
    collection.delete_points([point(n) for n in rng.choice(300, 20, replace=False).tolist()])
    saved_codes.save(collection)
    if later:
        collection.upsert(batch(rng.standard_normal((later, DIMS)).astype(np.float32), 150))
        collection.delete_points([point(n) for n in rng.choice(300, 20, replace=False).tolist()])
    query = rng.standard_normal(DIMS).astype(np.float32)
    whole, quick = opened(path), reopened(path)
    for one in (quick, whole):
        hits = collection.search(query, 400, None)
        assert [column.tolist() for column in one.search(query, 400, None)] == [
            column.tolist() for column in hits
        ]
        assert one.scroll(None, 1000) == collection.scroll(None, 1000)
        assert (one.log_size, one.points_in_log) == (
            collection.log_size,
            collection.points_in_log,
        )
    quick.upsert(batch(rng.standard_normal((9, DIMS)).astype(np.float32), 1000))
    assert len(opened(path)) == len(quick)
    for one in (collection, whole, quick):
        one.close()


def _flip(content: bytearray) -> bytearray:
    content[len(content) // 2] ^= 1
    return content


DAMAGE: Final = {
    "flipped": _flip,
    "cut off": lambda content: content[:-5],
    "no header": lambda content: content[:20],
    "empty": lambda content: content[:0],
    "other version": lambda content: b"LCCODES0" + content[8:],
    "more points": lambda content: content[:12] + b"\xff" * 8 + content[20:],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_table_is_ignored_and_removed(damage: str, tmp_path: Path) -> None:
    collection = made(tmp_path, spread(np.random.default_rng(1))[:500])
    saved_codes.save(collection)
    collection.close()
    file = tmp_path / CODES
    file.write_bytes(DAMAGE[damage](bytearray(file.read_bytes())))
    assert saved_codes.opened(tmp_path, PointLog(tmp_path / POINT_LOG, DIMS)) is None
    assert not file.exists()
    assert len(opened(tmp_path)) == 500


def test_a_kill_while_the_table_is_saved_leaves_the_one_before(tmp_path: Path) -> None:
    vectors = spread(np.random.default_rng(1))
    collection = made(tmp_path, vectors[:500])
    saved_codes.save(collection)
    collection.upsert(batch(vectors[500:600], 500))
    collection.close()
    killed = subprocess.run(
        [sys.executable, "-c", SAVER, str(tmp_path), "codes.after_header"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert killed.returncode == failpoint.KILLED, killed.stderr
    collection = reopened(tmp_path)
    assert collection.saved_size < collection.log_size
    assert len(collection) == 600
    saved_codes.save(collection)
    collection.close()
    collection = reopened(tmp_path)
    assert collection.saved_size == collection.log_size
    assert len(collection) == 600
    collection.close()


def test_the_table_of_another_log_is_ignored(tmp_path: Path) -> None:
    vectors = spread(np.random.default_rng(1))
    collection = made(tmp_path, vectors[:500])
    saved_codes.save(collection)
    codes = (tmp_path / CODES).read_bytes()
    collection.delete_points([point(7)])
    collection.rewrite()
    assert not (tmp_path / CODES).exists()
    (tmp_path / CODES).write_bytes(codes)
    assert saved_codes.opened(tmp_path, PointLog(tmp_path / POINT_LOG, DIMS)) is None


@pytest.fixture
def saving_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """With a large collection, "c", of 60 points, whose table is to be saved at once."""
    monkeypatch.setattr(saved_codes, "MIN_BYTES", 0)
    monkeypatch.setattr(saved_codes, "QUIET_SECONDS", 0.0)
    store = layouts.opened(tmp_path)
    store.create("c", layouts.DIMS)
    layouts.write(store, 0, 60)
    return store


def test_a_quiet_large_collection_saves_its_table_and_is_opened_by_it(
    saving_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = saving_store
    assert layouts.found(store) == layouts.expected(range(60))
    layouts.settle(store)
    assert layouts.files(tmp_path) == {"points", "codes", "collection.json"}
    layouts.write(store, 60, 3)
    store.close()
    positions: list[Any] = []
    read = PointLog.read

    def note(self: PointLog, after: Any = None) -> Any:
        positions.append(after)
        return read(self, after)

    monkeypatch.setattr(PointLog, "read", note)
    again = layouts.opened(tmp_path)
    assert layouts.found(again) == layouts.expected(range(63))
    assert [position.upserted for position in positions] == [60]
    again.close()


def test_a_full_disk_saves_no_table_and_the_collection_goes_on(
    saving_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = saving_store
    layouts.found(store)
    monkeypatch.setattr(store, "_min_free_bytes", 1 << 62)
    layouts.settle(store)
    assert layouts.files(tmp_path) == {"points", "collection.json"}
    assert layouts.found(store) == layouts.expected(range(60))
    store.close()
