"""The embedded vector engine: the contract, and what happens when processes are killed."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import psutil
import pytest
import pytest_asyncio

from latent_core.domain.errors import Conflict, Invalid, OutOfSpace, TimedOut, Unavailable
from latent_core.vectors.edge.index import EdgeVectorIndex
from latent_core.vectors.edge.marker import LARGE_FROM_POINTS
from latent_core.vectors.edge.supervisor import SupervisorTimeouts
from latent_core.vectors.port import VectorIndex
from tests.support.contracts.vectors import VectorIndexContract
from tests.support.oracles.vector_oracle import named, points_of, random_vectors, unit

T = TypeVar("T")

POINTS = points_of(random_vectors(50, 4, seed=11))
WAIT_SECONDS = 30.0
OWNER = """
import asyncio, sys
from pathlib import Path
from uuid import UUID
import numpy as np
from latent_core.vectors.edge.index import EdgeVectorIndex
from latent_core.vectors.port import Points

async def main():
    index = await EdgeVectorIndex.open(Path(sys.argv[1]))
    ids = [UUID(int=n) for n in range(3)]
    await index.upsert("c", Points(ids, np.eye(3, 4), [UUID(int=7)] * 3, [9] * 3, [0, 1, 2]))
    print(index.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        await asyncio.sleep(0.005)


@asynccontextmanager
async def opened(folder: Path, **options: Any) -> AsyncIterator[EdgeVectorIndex]:
    index = await EdgeVectorIndex.open(folder, **options)
    try:
        yield index
    finally:
        await index.close()


def kill(index: EdgeVectorIndex) -> None:
    assert index.pid is not None
    os.kill(index.pid, signal.SIGKILL)


async def _insist(call: Callable[..., Awaitable[T]], *args: Any) -> T:
    """As a worker does: what is transient is tried again."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            return await call(*args)
        except (Unavailable, TimedOut):
            if time.monotonic() > deadline:
                raise


async def _search_until(index: EdgeVectorIndex, restarts: int) -> int:
    """Search without a pause, every answer checked, until that many restarts; how many were right."""
    right = 0
    while index.restarts < restarts:
        nearest = right % len(POINTS.ids)
        hits = await _insist(index.search, "c", POINTS.vectors[nearest], 1)
        assert hits.chunk_nos.tolist() == [nearest]
        right += 1
    return right


async def _kill_often(index: EdgeVectorIndex, times: int) -> None:
    """Each kill comes when something was written since the last."""
    for kills in range(times):
        written = await _insist(index.count, "c")
        deadline = time.monotonic() + WAIT_SECONDS
        while await _insist(index.count, "c") < written + 100:
            assert time.monotonic() < deadline
        kill(index)
        await _restarted(index, kills + 1)


async def _restarted(index: EdgeVectorIndex, times: int) -> None:
    await until(lambda: index.restarts >= times and index.pid is not None)


def _spawn_owner(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder)], stdout=subprocess.PIPE, text=True
    )


@asynccontextmanager
async def owner_elsewhere(folder: Path) -> AsyncIterator[tuple[subprocess.Popen[str], int]]:
    """Another process that has stored 3 points of generation 9, and the pid of its engine."""
    owner = _spawn_owner(folder)
    assert owner.stdout is not None
    try:
        with owner.stdout as output:
            yield owner, int(await asyncio.to_thread(output.readline))
    finally:
        owner.kill()
        await asyncio.to_thread(owner.wait)


def _bytes_on_disk(folder: Path) -> int:
    """Of a folder that is being worked on: files may vanish."""
    total = 0
    for path, _, files in os.walk(folder):
        for name in files:
            with suppress(FileNotFoundError):
                total += os.stat(os.path.join(path, name)).st_blocks * 512
    return total


@dataclass(frozen=True)
class VectorFolder:
    """A folder of vectors whose collections have one layout."""

    path: Path
    large_from: int

    def opened(self, **options: Any) -> AbstractAsyncContextManager[EdgeVectorIndex]:
        return opened(self.path, large_from=self.large_from, **options)


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=[LARGE_FROM_POINTS, 1], ids=["flat", "large"]
)
async def template(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> VectorFolder:
    """Two collections, "c" and "other", with ``POINTS`` each, stopped cleanly."""
    template = VectorFolder(tmp_path_factory.mktemp("template") / "vectors", request.param)
    async with template.opened() as index:
        for name in ("c", "other"):
            await index.create_collection(name, 4)
            await index.upsert(name, POINTS)
    return template


@pytest.fixture
def folder(template: VectorFolder, tmp_path: Path) -> VectorFolder:
    """A copy of the template."""
    subprocess.run(["cp", "-R", template.path, tmp_path / "vectors"], check=True)
    return VectorFolder(tmp_path / "vectors", template.large_from)


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    path = tmp_path / "empty"
    path.mkdir()
    return path


@pytest_asyncio.fixture(scope="class", loop_scope="class")
async def index(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[VectorIndex]:
    folder = tmp_path_factory.mktemp("vectors")
    index = await EdgeVectorIndex.open(folder, large_from=request.cls.LARGE_FROM)
    yield index
    assert index.restarts == 0
    await index.close()


@pytest.mark.asyncio(loop_scope="class")
class TestContract(VectorIndexContract):
    """Every promise of the port, kept by one process that is never started again. Most collections stay small."""

    LARGE_FROM = LARGE_FROM_POINTS


@pytest.mark.asyncio(loop_scope="class")
class TestContractOfLargeCollections(VectorIndexContract):
    """The same of collections that are large from their first point on."""

    LARGE_FROM = 1


@pytest.mark.asyncio(loop_scope="class")
class TestContractAcrossLayouts(VectorIndexContract):
    """The same of collections that become large and small again all the time."""

    LARGE_FROM = 16


class TestKilledEngine:
    async def test_a_search_survives_the_death_of_the_engine(self, folder: VectorFolder) -> None:
        async with folder.opened() as index:
            kill(index)
            assert (await index.search("c", POINTS.vectors[3], 1)).chunk_nos.tolist() == [3]
            assert index.restarts == 1

    async def test_searches_stay_right_while_the_engine_is_killed_again_and_again(
        self, folder: VectorFolder
    ) -> None:
        async with folder.opened() as index:
            searches = asyncio.create_task(_search_until(index, restarts=4))
            for kills in range(4):
                await _restarted(index, kills)
                kill(index)
            assert await searches > 0

    async def test_every_acknowledged_point_outlives_kills_during_writes(
        self, folder: VectorFolder
    ) -> None:
        """Small collections become large meanwhile."""
        growing = VectorFolder(folder.path, min(folder.large_from, 400))
        async with growing.opened() as index:
            killer = asyncio.create_task(_kill_often(index, times=4))
            acknowledged = list(POINTS.ids)
            batch = 0
            while not killer.done():
                vectors = random_vectors(200, 4, seed=batch)
                points = points_of(vectors, doc=f"doc {batch}", first=200 * batch)
                await _insist(index.upsert, "c", points)
                acknowledged += points.ids
                batch += 1
            await killer
            assert set(await index.vectors("c", acknowledged)) == set(acknowledged)
            assert await index.count("c") == len(acknowledged)

    async def test_a_delete_that_meets_a_kill_still_leaves_nothing(
        self, folder: VectorFolder
    ) -> None:
        async with folder.opened() as index:
            await index.upsert("c", points_of(random_vectors(2500, 4, seed=1), doc="large"))
            deletion = asyncio.create_task(index.delete("c", named("large")))
            await asyncio.sleep(0)
            kill(index)
            assert await deletion <= 2500
            assert await index.count("c") == len(POINTS.ids)

    async def test_a_stopped_engine_times_out_and_is_replaced(self, folder: VectorFolder) -> None:
        timeouts = SupervisorTimeouts(grace=0.2)
        async with folder.opened(deadline_seconds=0.5, timeouts=timeouts) as index:
            await _insist(index.count, "c")
            before = index.restarts
            assert index.pid is not None
            os.kill(index.pid, signal.SIGSTOP)
            with pytest.raises(TimedOut):
                await index.search("c", POINTS.vectors[3], 1)
            await _restarted(index, before + 1)
            hits = await _insist(index.search, "c", POINTS.vectors[3], 1)
            assert hits.chunk_nos.tolist() == [3]

    async def test_a_cancelled_call_costs_the_engine_nothing(self, folder: VectorFolder) -> None:
        async with folder.opened(timeouts=SupervisorTimeouts(grace=WAIT_SECONDS)) as index:
            for _ in range(20):
                search = asyncio.create_task(index.search("c", POINTS.vectors[0], 5))
                await asyncio.sleep(0)
                search.cancel()
                await asyncio.wait([search])
            assert await index.count("c") == len(POINTS.ids)
            assert index.restarts == 0

    async def test_calls_say_so_while_no_engine_can_start(self, folder: VectorFolder) -> None:
        async with folder.opened(deadline_seconds=0.5) as index:
            lock = folder.path / "engine.lock"
            lock.unlink()
            lock.mkdir()  # no file can be opened there any more
            kill(index)
            with pytest.raises(Unavailable, match="not running"):
                await index.collections()
            lock.rmdir()
            assert await _insist(index.collections) == ["c", "other"]

    async def test_a_collection_on_which_the_engine_keeps_crashing_is_left_alone(
        self, folder: VectorFolder
    ) -> None:
        async with folder.opened() as index:
            for crash in range(2):
                await index.count("c")
                (folder.path / "engine.busy").write_text("c".ljust(256), encoding="ascii")
                assert index.pid is not None
                os.kill(index.pid, signal.SIGSEGV)
                await _restarted(index, crash + 1)
            with pytest.raises(Unavailable, match=r"collection c .*latent doctor"):
                await index.search("c", POINTS.vectors[0], 1)
            assert (await index.search("other", POINTS.vectors[0], 1)).chunk_nos.tolist() == [0]
            await index.drop_collection("c")
            assert await index.collections() == ["other"]


class TestKilledOwner:
    async def test_the_engine_ends_with_its_owner_and_the_next_one_finds_all_points(
        self, folder: VectorFolder
    ) -> None:
        async with owner_elsewhere(folder.path) as (owner, engine):
            owner.kill()
            async with folder.opened() as index:
                assert await index.count("c", generation=9) == 3
            await until(lambda: not psutil.pid_exists(engine))

    async def test_a_second_owner_is_refused_by_name_of_the_first(
        self, folder: VectorFolder
    ) -> None:
        async with folder.opened():
            with pytest.raises(Conflict, match=str(os.getpid())):
                await EdgeVectorIndex.open(folder.path, timeouts=SupervisorTimeouts(leftover=0.1))

    async def test_the_engine_inherits_no_secret_and_has_its_own_session(
        self, empty: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("LLC_MCP_TOKEN", "do-not-tell")
        async with opened(empty) as index:
            assert index.pid is not None
            environment = psutil.Process(index.pid).environ()
            assert set(environment) == {
                "PATH",
                "LC_ALL",
                "MALLOC_ARENA_MAX",
                "OPENBLAS_NUM_THREADS",
            }
            assert os.getsid(index.pid) == index.pid


class TestLargeCollections:
    async def test_the_coarse_scan_finds_what_the_exact_one_would(self, empty: Path) -> None:
        """Clustered vectors, whose neighbours lie close together, and deletions among them."""
        rng = np.random.default_rng(17)
        centres = rng.standard_normal((60, 96))
        vectors = unit(centres[rng.integers(60, size=6500)] + 0.4 * rng.standard_normal((6500, 96)))
        queries = unit(vectors[:20] + 0.1 * rng.standard_normal((20, 96)))
        kept = vectors[500:]
        async with opened(empty) as index:
            await index.create_collection("c", 96)
            await index.upsert("c", points_of(vectors[:500], doc="gone"))
            await index.upsert("c", points_of(kept, first=500))
            await index.delete("c", named("gone"))
            for query in queries:
                scores = kept @ query
                best = np.argsort(-scores, kind="stable")[:100]
                hits = await index.search("c", query, 100)
                assert set(hits.chunk_nos.tolist()) == set((best + 500).tolist())
                np.testing.assert_allclose(hits.scores, scores[hits.chunk_nos - 500], atol=1e-5)


class TestStorage:
    async def test_points_outlive_a_clean_stop(self, folder: VectorFolder) -> None:
        async with folder.opened() as index:
            assert await index.collections() == ["c", "other"]
            await index.create_collection("c", 4)
            assert await index.count("c") == len(POINTS.ids)

    async def test_the_synced_log_alone_brings_back_what_was_acknowledged(
        self, folder: VectorFolder, tmp_path: Path
    ) -> None:
        """A power loss: the log as it was when the writes returned."""
        restored = VectorFolder(tmp_path / "restored", folder.large_from)
        async with folder.opened() as index:
            await index.upsert("c", points_of(random_vectors(700, 4, seed=2), doc="late"))
            await index.delete("c", named("doc"))
            shutil.copytree(folder.path / "c", restored.path / "c")
        async with restored.opened() as index:
            assert await index.count("c", doc_id=named("late")) == 700
            assert await index.count("c") == 700

    async def test_a_write_returns_when_its_log_is_synced(
        self, folder: VectorFolder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced: set[str] = set()
        sync = os.fsync

        def note(fd: int) -> None:
            sync(fd)
            synced.add(os.path.relpath(os.readlink(f"/proc/self/fd/{fd}"), folder.path))

        monkeypatch.setattr("latent_core.vectors.edge.durable.os.fsync", note)
        log = "c/points"
        async with folder.opened() as index:
            await index.upsert("c", points_of(random_vectors(3, 4, seed=2), doc="late"))
            assert log in synced
            synced.clear()
            await index.delete("c", named("late"))
            assert log in synced

    async def test_a_collection_that_cannot_be_read_fails_alone(self, folder: VectorFolder) -> None:
        os.truncate(folder.path / "c" / "points", 8)
        (folder.path / "other" / "collection.json").unlink()
        async with folder.opened() as index:
            for name in ("c", "other", "c"):
                with pytest.raises(Unavailable, match=rf"{name} .*latent doctor"):
                    await index.search(name, POINTS.vectors[0], 1)
            with pytest.raises(Unavailable, match=r"other .*latent doctor"):
                await index.create_collection("other", 4)
            await index.create_collection(
                "c", 4
            )  # a start opens nothing: one that is damaged does not prevent it
            await index.drop_collection("c")
            assert await index.collections() == ["other"]
            assert index.restarts == 0

    async def test_a_cut_off_file_fails_its_collection_alone(self, empty: Path) -> None:
        folder = VectorFolder(empty, 1)
        async with folder.opened() as index:
            for name in ("c", "other"):
                await index.create_collection(name, 4)
                await index.upsert(name, POINTS)
        os.truncate(empty / "c" / "points", 10)
        async with folder.opened() as index:
            with pytest.raises(Unavailable, match=r"c .*latent doctor"):
                await index.search("c", POINTS.vectors[0], 50)
            assert len((await index.search("other", POINTS.vectors[0], 50)).chunk_nos) == 50

    async def test_half_made_and_half_removed_collections_are_cleared(self, empty: Path) -> None:
        remains = [empty / ".making-c", empty / ".removing-d"]
        for path in remains:
            (path / "segments").mkdir(parents=True)
        async with opened(empty) as index:
            assert await index.collections() == []
        assert not any(path.exists() for path in remains)

    async def test_a_full_disk_refuses_writes_and_still_answers(self, folder: VectorFolder) -> None:
        async with folder.opened(min_free_bytes=1 << 62) as index:
            with pytest.raises(OutOfSpace, match="free disk space"):
                await index.upsert("c", POINTS)
            with pytest.raises(OutOfSpace):
                await index.create_collection("d", 4)
            assert (await index.search("c", POINTS.vectors[2], 1)).chunk_nos.tolist() == [2]
            assert await index.collections() == ["c", "other"]

    async def test_the_space_of_many_deleted_points_is_reclaimed_at_the_next_start(
        self, folder: VectorFolder
    ) -> None:
        async with folder.opened() as index:
            await index.upsert("c", points_of(random_vectors(2100, 4, seed=2), doc="large"))
            before = _bytes_on_disk(folder.path / "c")
            await index.delete("c", named("large"))
        async with folder.opened() as index:
            hits = await index.search("c", POINTS.vectors[7], 1)
            assert hits.chunk_nos.tolist() == [7]
            await index.upsert("c", points_of(random_vectors(50, 4, seed=3), doc="new"))
            assert await index.count("c") == len(POINTS.ids) + 50
            await until(lambda: _bytes_on_disk(folder.path / "c") < before)
            assert index.restarts == 0

    async def test_names_that_are_no_folder_names_are_refused(self, empty: Path) -> None:
        async with opened(empty) as index:
            for name in ("../up", "", ".hidden", "a/b", "x" * 201):
                with pytest.raises(Invalid):
                    await index.create_collection(name, 4)
            with pytest.raises(Invalid):
                await index.create_collection("c", 0)

    async def test_a_closed_index_is_unavailable_and_leaves_no_process(self, empty: Path) -> None:
        index = await EdgeVectorIndex.open(empty)
        engine = index.pid
        assert engine is not None
        await index.close()
        await index.close()
        with pytest.raises(Unavailable, match="closed"):
            await index.collections()
        assert not psutil.pid_exists(engine)
