"""Small containers share a collection on a server: placement, moving out, deletion, on Postgres and the REST adapter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latent_core.db import containers, placement
from latent_core.db.connection import Database
from latent_core.db.containers import Container
from latent_core.domain.errors import NotFound
from latent_core.domain.installation import MarkerPolicy
from latent_core.domain.job import JobKind
from latent_core.domain.manifest.model import Manifest
from latent_core.ingest import containers as founding
from latent_core.ingest.delete import delete_container
from latent_core.refresh.lifecycle import begin_move
from latent_core.settings import Settings
from latent_core.vectors.port import Points
from latent_core.vectors.qdrant.connection import QdrantAddress
from latent_core.vectors.qdrant.index import QdrantVectorIndex
from latent_workers import maintenance
from tests.support.harness.worker_harness import (
    DIMS,
    LEASE_SECONDS,
    CountingEmbedder,
    WorkerHarness,
    open_deps,
)
from tests.support.installations import OURS
from tests.support.queue import sql
from tests.support.servers.qdrant_server import QdrantServer

BOUND = 2


@asynccontextmanager
async def opened(database: Database, folder: Path) -> AsyncIterator[WorkerHarness]:
    """With two collections allowed, one of them in use."""
    settings = Settings(data_dir=folder, lease_seconds=LEASE_SECONDS)
    embedder = CountingEmbedder()
    async with database.transaction() as conn:
        await conn.execute(
            "INSERT INTO installation (id, holder) VALUES (%(id)s, %(holder)s)",
            {"id": OURS.id, "holder": OURS.holder},
        )
        await placement.set_bound(conn, BOUND)
    with QdrantServer() as server:
        index = await QdrantVectorIndex.open(QdrantAddress(server.url), OURS, MarkerPolicy.CREATE)
        async with open_deps(database, settings, embedder, manifest("notes"), index=index) as deps:
            yield WorkerHarness(deps, embedder, folder)


@pytest.fixture
async def harness(database: Database, tmp_path: Path) -> AsyncIterator[WorkerHarness]:
    async with opened(database, tmp_path) as made:
        yield made


def manifest(name: str, **more: Any) -> Manifest:
    return Manifest(id=name, name=name, embedder="openai/test", dims=DIMS, **more)


async def created(harness: WorkerHarness, name: str, **more: Any) -> Container:
    stack = harness.stack
    return await founding.create(
        stack.db,
        stack.vectors,
        stack.blobs,
        harness.embedder,
        manifest(name, **more),
        principal="local:you",
        request_id=None,
    )


async def read(harness: WorkerHarness, name: str) -> Container:
    async with harness.stack.db.transaction() as conn:
        found = await containers.get(conn, name)
    assert found is not None
    return found


async def found(harness: WorkerHarness, name: str, text: str) -> list[tuple[int, float]]:
    """As a search does: the container is read once, then its collection is searched."""
    container = await read(harness, name)
    vector = await harness.embedder.embed_query(text)
    hits = await harness.stack.vectors.search(container.space.collection(), vector, 100)
    return list(zip(hits.chunk_nos.tolist(), hits.scores.tolist(), strict=True))


async def test_containers_beyond_the_bound_share_a_collection_unless_they_need_their_own(
    harness: WorkerHarness,
) -> None:
    own = await created(harness, "second")
    shared = [await created(harness, name) for name in ("third", "fourth")]
    forced = await created(harness, "forced", vectors={"own_collection": True})
    sharded = await created(harness, "sharded", vectors={"shards": 2})
    assert [one.space.shared is None for one in (own, *shared, forced, sharded)] == [
        True,
        False,
        False,
        True,
        True,
    ]
    assert shared[0].space.shared == shared[1].space.shared
    async with harness.stack.db.transaction() as conn:
        usage = await placement.usage(conn)
    assert (usage.own, usage.shared, usage.in_shared, usage.bound) == (4, 1, 2, BOUND)
    report = await harness.examine()
    assert report.clean, report
    assert report.checks["vector_collections"] == (
        "4 of 2 (LLC_QDRANT_COLLECTIONS); 2 embedding spaces of small containers share 1 more"
    )


async def test_each_container_in_a_shared_collection_has_only_its_own_documents(
    harness: WorkerHarness,
) -> None:
    await created(harness, "second")
    for name in ("third", "fourth"):
        await created(harness, name)
        for n in range(3):
            await harness.add(f"{n}.txt", f"{name} lamp {n} is lit".encode(), container=name)
    assert await harness.work() == []
    assert [len(await found(harness, name, "lamp")) for name in ("third", "fourth")] == [3, 3]
    report = await harness.examine()
    assert report.clean, report
    assert report.containers["third"].counts["points"] == 3
    async with harness.stack.db.transaction() as conn:
        assert await delete_container(conn, "third", principal="local:you")
    await harness.settle()
    report = await harness.examine()
    assert report.clean, report
    (proof,) = await sql(
        harness.stack.db, "SELECT result FROM jobs WHERE kind = 'delete_container'"
    )
    assert proof["result"]["points"] == 3
    assert len(await found(harness, "fourth", "lamp")) == 3


async def test_points_that_a_slow_worker_writes_after_a_deletion_are_collected(
    harness: WorkerHarness,
) -> None:
    await created(harness, "second")
    gone = await created(harness, "third")
    await created(harness, "fourth")
    await harness.add("a.txt", b"the lamp is lit", container="third")
    assert await harness.work() == []
    index, collection = harness.stack.vectors, gone.space.collection()
    (point,) = await index.scroll(collection, after=None, limit=10)
    vectors = await index.vectors(collection, [point.id])
    row = np.stack([vectors[point.id]])
    late = Points([point.id], row, [point.doc_id], [point.generation], [point.chunk_no])
    async with harness.stack.db.transaction() as conn:
        await delete_container(conn, "third", principal="local:you")
    assert await harness.work() == []
    await index.upsert(collection, late)
    assert not (await harness.examine()).clean
    await harness.settle()
    assert (await harness.examine()).clean
    assert collection not in await index.collections()


async def test_a_container_that_outgrows_a_shared_collection_moves_without_embedding_anything(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await created(harness, "second")
    before = await created(harness, "third")
    await created(harness, "fourth")
    for name, count in (("third", 12), ("fourth", 3)):
        for n in range(count):
            await harness.add(f"{n}.txt", f"{name} lamp {n} is lit".encode(), container=name)
    assert await harness.work() == []
    hits = await found(harness, "third", "lamp 3")
    embedded = harness.embedder.texts
    monkeypatch.setattr(placement, "MAX_SHARED_POINTS", 11)
    await maintenance.look(harness.deps.settings, harness.stack)
    rows = await sql(harness.stack.db, "SELECT container_id FROM jobs WHERE kind = 'refresh'")
    assert [row["container_id"] for row in rows] == ["third"]
    assert await harness.work(JobKind.REFRESH) == []
    after = await read(harness, "third")
    assert after.space.shared is None
    assert (after.manifest, after.etag) == (before.manifest, before.etag)
    assert await found(harness, "third", "lamp 3") == hits
    assert harness.embedder.texts == embedded
    await sql(harness.stack.db, "UPDATE spaces SET keep_until = now() WHERE state = 'retired'")
    await harness.settle()
    assert before.space.collection() not in await harness.stack.vectors.collections()
    assert len(await found(harness, "fourth", "lamp")) == 3
    await maintenance.look(harness.deps.settings, harness.stack)
    assert await harness.work(JobKind.REFRESH) == []


@pytest.mark.parametrize("documents", [0, 3])
@pytest.mark.parametrize(
    "vectors",
    [{"own_collection": True}, {"shards": 2}, {"replicas": 2}, {"quantization": "none"}],
    ids=lambda vectors: next(iter(vectors)),
)
async def test_a_container_whose_manifest_is_given_its_own_collection_later_moves_there(
    harness: WorkerHarness, vectors: dict[str, Any], documents: int
) -> None:
    await created(harness, "second")
    before = await created(harness, "third")
    await created(harness, "fourth")
    for n in range(documents):
        await harness.add(f"{n}.txt", f"third lamp {n} is lit".encode(), container="third")
    assert await harness.work() == []
    changed = manifest("third", vectors=vectors)
    async with harness.stack.db.transaction() as conn:
        new_etag = founding.etag(changed)
        assert await containers.update_manifest(conn, changed, new_etag, before.etag)
    await maintenance.look(harness.deps.settings, harness.stack)
    assert await harness.work(JobKind.REFRESH) == []
    after = await read(harness, "third")
    assert after.space.shared is None
    assert len(await found(harness, "third", "lamp")) == documents
    assert (await read(harness, "fourth")).space.shared is not None
    await maintenance.look(harness.deps.settings, harness.stack)
    assert await harness.work(JobKind.REFRESH) == []


async def test_searches_and_ingests_during_a_move_see_every_document_once(
    harness: WorkerHarness,
) -> None:
    await created(harness, "second")
    await created(harness, "third")
    for n in range(30):
        await harness.add(f"{n}.txt", f"third lamp {n} is lit".encode(), container="third")
    assert await harness.work() == []
    async with harness.stack.db.transaction() as conn:
        assert await begin_move(conn, "third", principal="local:you") is not None
        assert await begin_move(conn, "third", principal="local:you") is None
    moved, seen = asyncio.Event(), []

    async def searching() -> None:
        while not moved.is_set():
            chunk_nos = [chunk_no for chunk_no, _ in await found(harness, "third", "lamp")]
            assert len(chunk_nos) == len(set(chunk_nos))
            assert set(range(30)) <= set(chunk_nos)
            seen.append(len(chunk_nos))

    async def ingesting() -> None:
        for n in range(30, 40):
            await harness.add(f"{n}.txt", f"third lamp {n} is lit".encode(), container="third")
            assert await harness.work(JobKind.INGEST) == []

    async def moving() -> None:
        try:
            assert await harness.work(JobKind.REFRESH) == []
        finally:
            moved.set()

    await asyncio.gather(searching(), ingesting(), moving())
    assert seen
    container = await read(harness, "third")
    assert container.space.shared is None
    assert len(await found(harness, "third", "lamp")) == 40
    await harness.settle()
    report = await harness.examine()
    assert report.clean, report


async def test_a_container_that_is_refreshed_is_not_moved_meanwhile(
    harness: WorkerHarness,
) -> None:
    await created(harness, "second")
    await created(harness, "third")
    async with harness.stack.db.transaction() as conn:
        with pytest.raises(NotFound):
            await begin_move(conn, "missing", principal="local:you")
    async with harness.stack.db.transaction() as conn:
        assert await begin_move(conn, "second", principal="local:you") is None
        first = await begin_move(conn, "third", principal="local:you")
        assert first is not None
    await sql(harness.stack.db, "UPDATE jobs SET state = 'failed' WHERE kind = 'refresh'")
    async with harness.stack.db.transaction() as conn:
        assert await begin_move(conn, "third", principal="local:you") not in (None, first)
    spaces = await sql(harness.stack.db, "SELECT state FROM spaces WHERE container_id = 'third'")
    assert sorted(row["state"] for row in spaces) == ["building", "live"]
