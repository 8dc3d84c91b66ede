"""Small and large collections of the embedded engine: conversions, crashes, full disks and damaged files.

Of shards, which earlier versions made of large collections, a few are made here as they made them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from qdrant_edge import EdgeShard, IntegerIndexParams, UpdateOperation, UuidIndexParams

from latent_core.runtime import failpoint
from latent_core.vectors.edge import conversion, saved_codes
from latent_core.vectors.edge.collections import OpenLimits, Store
from latent_core.vectors.edge.flat import FlatCollection
from latent_core.vectors.edge.large import LargeCollection
from latent_core.vectors.edge.marker import CollectionMarker, Layout
from latent_core.vectors.edge.point_log import DamagedLogError, PointLog, RecordKind
from latent_core.vectors.edge.points import PointBatch
from latent_core.vectors.edge.protocol import CODES, Fault, RequestRefused, VectorOp, VectorRequest
from latent_core.vectors.edge.requests import handle
from latent_core.vectors.edge.shard import Shard, _config
from tests.support.oracles.vector_oracle import named, points_of, random_vectors

DIMS: Final = 8
LARGE_FROM: Final = 40
WRITER: Final = """
import json, sys
from pathlib import Path
from latent_core.runtime import failpoint
from core.tests.vectors.test_collection_layouts import opened, write, delete, settle

folder, point, story = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
store = opened(folder)
for first, count in story["before"]:
    write(store, first, count)
if not point.startswith("to_log"):
    settle(store)
failpoint.arm(point)
for first, count in story["during"]:
    write(store, first, count)
    print(f"{first} {count}", flush=True)
for doc in story["deleted"]:
    delete(store, doc)
settle(store)
"""
GROWING: Final = {"before": [(0, 30)], "during": [(30, 5), (35, 20), (55, 5)], "deleted": []}
CONVERTED: Final = {"before": [(0, 60), (100, 5)], "during": [], "deleted": [0, 1, 2]}
REWRITTEN: Final = {"before": [(0, 8)], "during": [(0, 8)] * 300, "deleted": []}
REWRITTEN_LARGE: Final = {"before": [(0, 50)], "during": [(0, 50)] * 120, "deleted": []}
STORIES: Final = {
    ("flat", "flat.before_append"): GROWING,
    ("flat", "flat.after_append"): GROWING,
    ("flat", "flat.before_replace"): REWRITTEN,
    ("flat", "flat.after_replace"): REWRITTEN,
    ("large", "flat.before_replace"): REWRITTEN_LARGE,
    ("large", "flat.after_replace"): REWRITTEN_LARGE,
    ("shard", "to_log.before_points"): CONVERTED,
    ("shard", "to_log.after_points"): CONVERTED,
    ("shard", "to_log.after_marker"): CONVERTED,
}
"""What leads to each point, of a write, of the rewrite of a file, and of a conversion."""


def opened(folder: Path, **options: Any) -> Store:
    return Store(folder, min_free_bytes=0, **{"large_from": LARGE_FROM, **options})


def doc_of(number: int) -> UUID:
    """Twenty points each."""
    return named(f"doc {number // 20}")


def batch(first: int, count: int) -> PointBatch:
    """Points that are the same whenever they are written."""
    numbers = range(first, first + count)
    return PointBatch(
        ids=[named(f"point {n}").bytes for n in numbers],
        doc_ids=[doc_of(n).bytes for n in numbers],
        generations=np.full(count, 1, np.int64),
        chunk_nos=np.array(numbers, np.int64),
        vectors=np.stack([random_vectors(1, DIMS, seed=n)[0] for n in numbers]),
    )


def request(op: VectorOp, body: bytes = b"", **args: Any) -> VectorRequest:
    return VectorRequest(1, op, time.monotonic() + 60, "c", args, body)


def write(store: Store, first: int, count: int) -> None:
    body = b"".join(batch(first, count).encode())
    handle(store, request(VectorOp.UPSERT, body, n=count, dims=DIMS))


def delete(store: Store, doc: int) -> None:
    doc_id = named(f"doc {doc}").bytes
    handle(store, request(VectorOp.DELETE, doc_id, below=None, only=None, limit=2048))


def settle(store: Store) -> None:
    """Until nothing is due but flushes."""
    while store.settle(lambda _: None) == 0.0:
        pass


def found(store: Store) -> list[tuple[int, float]]:
    """All points by their distance to a query, scores to four digits."""
    query = random_vectors(1, DIMS, seed=10_000)[0]
    chunk_nos, scores = store.get("c").search(query, 1000, None)
    return [(int(n), round(float(s), 4)) for n, s in zip(chunk_nos, scores, strict=True)]


def layout(folder: Path) -> Layout:
    return CollectionMarker.read(folder / "c").layout


def files(folder: Path) -> set[str]:
    return {path.name for path in (folder / "c").iterdir()}


def expected(numbers: Sequence[int]) -> list[tuple[int, float]]:
    query = random_vectors(1, DIMS, seed=10_000)[0]
    scores = {n: float(random_vectors(1, DIMS, seed=n)[0] @ query) for n in numbers}
    return [(n, round(scores[n], 4)) for n in sorted(numbers, key=lambda n: (-scores[n], n))]


def make_shard(path: Path) -> None:
    """Make the empty collection in ``path`` a shard, as earlier versions did with large ones."""
    shutil.rmtree(path)
    path.mkdir()
    shard = EdgeShard.create(str(path), _config(DIMS))
    for field_name, index in (
        ("doc_id", UuidIndexParams()),
        ("generation", IntegerIndexParams(lookup=False, range=True)),
    ):
        shard.update(UpdateOperation.create_field_index(field_name, index))
    shard.close()
    marker = {"format": 2, "dims": DIMS}  # the first ones named no layout
    (path / "collection.json").write_text(json.dumps(marker), encoding="ascii")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With one empty collection, "c"."""
    store = opened(tmp_path)
    store.create("c", DIMS)
    store.close()
    return tmp_path


@pytest.fixture
def store(folder: Path) -> Iterator[Store]:
    store = opened(folder)
    yield store
    store.close()


class TestSizes:
    def test_a_collection_that_grows_and_shrinks_answers_the_same(self, store: Store) -> None:
        write(store, 0, LARGE_FROM - 1)
        assert isinstance(store.get("c"), FlatCollection)
        assert found(store) == expected(range(LARGE_FROM - 1))
        write(store, LARGE_FROM - 1, 21)
        assert isinstance(store.get("c"), LargeCollection)
        assert found(store) == expected(range(60))
        for doc in (0, 1, 2):
            delete(store, doc)
        assert found(store) == []
        for _ in range(400):
            write(store, 100, 5)
        settle(store)
        assert isinstance(store.get("c"), FlatCollection)
        assert found(store) == expected(range(100, 105))

    @pytest.mark.parametrize("points", [30, 60], ids=["small", "large"])
    def test_a_count_keeps_no_collection_open_that_nothing_else_uses(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, points: int
    ) -> None:
        monkeypatch.setattr(saved_codes, "QUIET_SECONDS", 0.0)
        monkeypatch.setattr(saved_codes, "MIN_BYTES", 0)
        store = opened(folder)
        write(store, 0, points)
        store.close()
        count = request(VectorOp.COUNT, generation=None)
        assert handle(store, count) == ({"count": points}, b"")
        settle(store)
        assert not store._open
        assert (CODES in files(folder)) == (points >= LARGE_FROM), "saved first, if it is large"
        assert found(store) == expected(range(points))
        handle(store, count)
        settle(store)
        assert list(store._open) == ["c"]
        store.close()

    def test_wide_vectors_make_a_collection_large_with_fewer_points(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(conversion, "_LARGE_FROM_FLOATS", 10 * DIMS)
        write(store, 0, 9)
        assert isinstance(store.get("c"), FlatCollection)
        write(store, 9, 1)
        assert isinstance(store.get("c"), LargeCollection)


class TestConversion:
    def test_a_shard_of_an_earlier_version_becomes_a_file_when_it_was_used(
        self, folder: Path
    ) -> None:
        make_shard(folder / "c")
        store = opened(folder)
        write(store, 0, 60)
        store.create("c", DIMS)
        assert isinstance(store.get("c"), Shard)
        assert found(store) == expected(range(60))
        delete(store, 1)
        settle(store)
        assert files(folder) == {"points", "collection.json"}
        assert layout(folder) is Layout.FLAT
        assert found(store) == expected([*range(20), *range(40, 60)])

    def test_a_shard_that_takes_long_to_convert_goes_on_as_it_is(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(conversion, "_CONVERTED_FLOATS", 10 * DIMS)
        make_shard(folder / "c")
        store = opened(folder)
        write(store, 0, 11)
        settle(store)
        assert layout(folder) is Layout.SHARD
        assert found(store) == expected(range(11))
        store.close()

    @pytest.mark.parametrize("step", ["PointLog", "remove_remains"])
    def test_a_conversion_that_fails_leaves_the_collection_whole_and_waits(
        self, folder: Path, step: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls = []

        def fail(*_: Any) -> None:
            calls.append(step)
            raise OSError(28, "No space left on device")

        make_shard(folder / "c")
        store = opened(folder)
        write(store, 0, 30)
        with monkeypatch.context() as failing:
            failing.setattr(conversion, step, fail)
            settle(store)
            assert found(store) == expected(range(30))
            write(store, 30, 5)
            settle(store)
        assert calls == [step], "it is not tried again at once"
        assert found(store) == expected(range(35))
        store.close()
        again = opened(folder)
        assert found(again) == expected(range(35))
        settle(again)
        assert files(folder) == {"points", "collection.json"}
        assert found(again) == expected(range(35))
        again.close()

    def test_a_full_disk_prevents_a_conversion_but_no_search(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make_shard(folder / "c")
        store = opened(folder)
        write(store, 0, 30)
        monkeypatch.setattr(store, "_min_free_bytes", 1 << 62)
        settle(store)
        assert layout(folder) is Layout.SHARD
        assert found(store) == expected(range(30))
        store.close()


class TestCrash:
    @pytest.mark.parametrize(("made", "point"), STORIES)
    def test_a_kill_at_a_named_point_loses_no_acknowledged_write_and_stores_none_in_half(
        self, made: str, point: str, folder: Path
    ) -> None:
        story = STORIES[made, point]
        if made == "shard":
            make_shard(folder / "c")
        writer = subprocess.run(
            [sys.executable, "-c", WRITER, str(folder), point, json.dumps(story)],
            check=False,
            capture_output=True,
            text=True,
        )
        assert writer.returncode == failpoint.KILLED, writer.stderr
        reported = [tuple(map(int, line.split())) for line in writer.stdout.splitlines()]
        store = opened(folder)
        stored = {number for number, _ in found(store)}
        acknowledged = _numbers([*story["before"], *reported])
        if story["deleted"]:  # by whole documents, and none came before its turn
            assert stored in [_without(acknowledged, story["deleted"][:n]) for n in range(4)]
        else:
            following = (
                [tuple(story["during"][len(reported)])]
                if len(reported) < len(story["during"])
                else []
            )
            assert stored in (acknowledged, acknowledged | _numbers(following))
        assert found(store) == expected(sorted(stored))
        write(store, 200, 3)
        settle(store)
        assert found(store) == expected([*sorted(stored), 200, 201, 202])
        assert files(folder) == {"points", "collection.json"}
        store.close()

    @settings(max_examples=40, deadline=None)
    @given(cut=st.integers(1, 400))
    def test_a_write_that_never_finished_is_cut_off_and_the_others_stay(
        self, cut: int, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        folder = tmp_path_factory.mktemp("cut")
        log = PointLog(folder / "points", DIMS)
        log.replace(())
        log.append(RecordKind.UPSERT, 3, batch(0, 3).encode())
        whole = log.size
        log.append(RecordKind.UPSERT, 7, batch(3, 7).encode())
        os.truncate(log.path, max(whole, log.size - cut))
        with (folder / "points").open("ab") as file:
            file.write(b"\0" * (cut % 50))
        again = PointLog(folder / "points", DIMS)
        assert [record.n for record in again.read()] == [3]
        assert log.path.stat().st_size == again.size == whole
        again.append(RecordKind.UPSERT, 2, batch(20, 2).encode())
        assert [record.n for record in PointLog(folder / "points", DIMS).read()] == [3, 2]

    def test_nothing_of_a_write_remains_when_the_disk_is_full(self, folder: Path) -> None:
        """The limit of the size of a file has the same effect: a part is written, then nothing more."""
        script = f"""
import resource, signal
from pathlib import Path
from core.tests.vectors.test_collection_layouts import opened, write
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = opened(Path({str(folder)!r}))
write(store, 0, 5)
size = Path({str(folder / "c" / "points")!r}).stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, size + 100))
try:
    write(store, 5, 10)
except OSError as exc:
    print("refused", exc.errno)
assert Path({str(folder / "c" / "points")!r}).stat().st_size == size
assert len(store.get("c")) == 5
"""
        done = subprocess.run(
            [sys.executable, "-c", script], check=True, capture_output=True, text=True
        )
        assert done.stdout.startswith("refused")
        store = opened(folder)
        assert found(store) == expected(range(5))
        write(store, 5, 10)
        assert found(store) == expected(range(15))


class TestDamage:
    def test_a_flipped_bit_before_a_whole_record_is_damage(self, folder: Path) -> None:
        store = opened(folder)
        for first in (0, 5, 10):
            write(store, first, 5)
        content = bytearray((folder / "c" / "points").read_bytes())
        content[len(content) // 2] ^= 1
        (folder / "c" / "points").write_bytes(content)
        with pytest.raises(RequestRefused, match="latent doctor") as refusal:
            opened(folder).get("c")
        assert refusal.value.fault is Fault.UNAVAILABLE
        with pytest.raises(DamagedLogError, match="not a record"):
            PointLog(folder / "c" / "points", DIMS).read()

    @pytest.mark.parametrize("content", [b"", b"LCPO", b"x" * 16, b"x" * 5000])
    def test_a_file_without_its_header_is_damage(self, folder: Path, content: bytes) -> None:
        (folder / "c" / "points").write_bytes(content)
        with pytest.raises(RequestRefused, match="latent doctor"):
            opened(folder).get("c")

    def test_a_file_of_other_dimensions_than_its_marker_is_damage(self, folder: Path) -> None:
        CollectionMarker(DIMS + 1, Layout.FLAT).write(folder / "c")
        with pytest.raises(RequestRefused, match="latent doctor"):
            opened(folder).get("c")

    def test_a_missing_file_is_damage_and_not_an_empty_collection(self, folder: Path) -> None:
        (folder / "c" / "points").unlink()
        with pytest.raises(RequestRefused, match="latent doctor"):
            opened(folder).get("c")


class TestFile:
    def test_what_was_replaced_and_deleted_leaves_the_file_when_nothing_else_is_to_do(
        self, folder: Path, store: Store
    ) -> None:
        for _ in range(300):
            write(store, 0, 8)
        write(store, 20, 8)
        delete(store, 1)
        large = (folder / "c" / "points").stat().st_size
        settle(store)
        assert (folder / "c" / "points").stat().st_size < large / 200
        assert found(store) == expected(range(8))

    def test_equal_vectors_have_equal_scores_in_every_row(self, tmp_path: Path) -> None:
        """A product of matrices rounds rows differently, depending on their place."""
        rng = np.random.default_rng(5)
        for name in ("1", "10000"):
            (tmp_path / name).mkdir()
        for dims, large_from in product((3, 96, 385, 768), (10_000, 1)):
            store = opened(tmp_path / str(large_from), large_from=large_from)
            store.create(f"c{dims}", dims)
            points = points_of(random_vectors(601, dims, seed=dims))
            vectors = points.vectors.copy()
            tied = rng.choice(601, 200, replace=False)
            vectors[tied] = vectors[tied[0]]
            chosen = PointBatch(
                [one.bytes for one in points.ids],
                [one.bytes for one in points.doc_ids],
                np.array(points.generations),
                np.array(points.chunk_nos),
                vectors,
            )
            collection = store.get(f"c{dims}")
            collection.upsert(chosen)
            chunk_nos, scores = collection.search(vectors[tied[0]], 200, None)
            assert chunk_nos.tolist() == sorted(tied.tolist())
            assert len(set(scores.tolist())) == 1

    def test_vectors_of_another_length_are_compared_by_their_direction(
        self, folder: Path, store: Store
    ) -> None:
        points = batch(0, 5)
        longer = PointBatch(
            points.ids, points.doc_ids, points.generations, points.chunk_nos, points.vectors * 7
        )
        handle(store, request(VectorOp.UPSERT, b"".join(longer.encode()), n=5, dims=DIMS))
        assert found(store) == expected(range(5))


class TestOpenCollections:
    def test_a_start_opens_nothing(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        store = opened(folder)
        monkeypatch.setattr(Store, "get", None)
        store.clear_remains()
        store.tidy()
        store.create("c", DIMS)
        assert store.names() == ["c"]
        with pytest.raises(RequestRefused, match=f"{DIMS} dimensions, not {DIMS + 1}"):
            store.create("c", DIMS + 1)

    def test_more_than_the_limits_are_closed_and_are_there_when_they_are_used(
        self, tmp_path: Path
    ) -> None:
        names = [f"c{n}" for n in range(6)]
        limits = OpenLimits(large_bytes=20_000, flat_bytes=20_000)
        store = opened(tmp_path, limits=limits)
        for number, name in enumerate(names):
            store.create(name, DIMS)
            size = LARGE_FROM if number % 2 else 20
            body = b"".join(batch(0, size).encode())
            upsert = VectorRequest(1, VectorOp.UPSERT, 0, name, {"n": size, "dims": DIMS}, body)
            handle(store, upsert)
        for _ in range(2):
            for number, name in enumerate(names):
                assert len(store.get(name)) == (LARGE_FROM if number % 2 else 20)
                open_ones = list(store._open.values())
                flats = [one for one in open_ones if isinstance(one, FlatCollection)]
                larges = [one for one in open_ones if isinstance(one, LargeCollection)]
                assert sum(one.memory_bytes for one in flats) <= 20_000
                assert sum(one.memory_bytes for one in larges) <= 20_000
        store.close()

    def test_a_count_closes_no_collection_that_is_in_use(self, tmp_path: Path) -> None:
        size = 20
        store = opened(tmp_path)
        for name in ("used", "idle", "other"):
            store.create(name, DIMS)
            body = b"".join(batch(0, size).encode())
            upsert = VectorRequest(1, VectorOp.UPSERT, 0, name, {"n": size, "dims": DIMS}, body)
            handle(store, upsert)
        one = store.get("used").memory_bytes
        store.close()
        store = opened(tmp_path, limits=OpenLimits(flat_bytes=one))
        store.get("used")
        for name in ("idle", "other"):
            count = VectorRequest(1, VectorOp.COUNT, 0, name, {"generation": None}, b"")
            assert handle(store, count) == ({"count": size}, b"")
            assert set(store._open) == {"used", name}, "the one that was counted before is closed"
        store.get("other")
        assert list(store._open) == ["other"], "used now, it counts like any other"
        store.close()

    def test_the_documents_of_a_deletion_are_counted_by_one_opening(self, folder: Path) -> None:
        store = opened(folder)
        write(store, 0, 40)
        store.close()
        opening = None
        for doc in (0, 1):
            count = request(VectorOp.COUNT, named(f"doc {doc}").bytes, generation=None)
            assert handle(store, count) == ({"count": 20}, b"")
            settle(store)
            opening = opening or store._open["c"]
            assert store._open["c"] is opening
        store.close()

    def test_one_collection_is_open_whatever_its_size(self, folder: Path) -> None:
        store = opened(folder, limits=OpenLimits(large_bytes=0, flat_bytes=0))
        write(store, 0, 10)
        assert found(store) == expected(range(10))
        write(store, 10, 50)
        assert found(store) == expected(range(60))
        store.close()


def _numbers(parts: Sequence[Sequence[int]]) -> set[int]:
    return {n for first, count in parts for n in range(first, first + count)}


def _without(numbers: set[int], docs: Sequence[int]) -> set[int]:
    gone = {named(f"doc {doc}") for doc in docs}
    return {n for n in numbers if doc_of(n) not in gone}
