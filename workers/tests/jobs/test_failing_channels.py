"""Searches over containers whose vectors cannot be searched: others are searched, and the log stays short."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from latent_core.db import containers
from latent_core.db.connection import Database
from latent_core.domain.errors import UpstreamError, UpstreamOverload
from latent_core.domain.manifest.model import Manifest, SearchMode
from latent_core.ingest import containers as founding
from latent_core.search.circuit_breaker import FAILURES
from latent_core.search.readable import Readable
from latent_core.telemetry import outage
from latent_core.vectors.port import VectorHits
from latent_core.wire.search import SearchRequest, SearchResponse
from tests.support.harness.worker_harness import CONTAINER, DIMS, WorkerHarness, open_harness
from tests.support.queue import until

SLOW = "slow"
SECONDS = 0.5


@pytest.fixture
async def harness(database: Database, tmp_path: Path) -> AsyncIterator[WorkerHarness]:
    """Two containers with a document each."""
    async with open_harness(database, tmp_path) as made:
        stack = made.stack
        manifest = Manifest(id=SLOW, name="Slow", embedder="openai/test", dims=DIMS)
        await founding.create(
            stack.db,
            stack.vectors,
            stack.blobs,
            made.embedder,
            manifest,
            principal="local:you",
            request_id=None,
        )
        for container in (CONTAINER, SLOW):
            await made.add("lamp.txt", b"The lamp is lit.", container=container)
        assert await made.work() == []
        yield made
        await stack.breakers.close()


async def search(
    harness: WorkerHarness, *names: str, seconds: float | None = None
) -> SearchResponse:
    async with harness.stack.db.transaction() as conn:
        found = [await containers.get(conn, name) for name in names]
    readable = {one.id: Readable(one) for one in found if one is not None}
    request = SearchRequest(containers=list(names), query="lamp", mode=SearchMode.SEMANTIC, top_k=5)
    return await harness.deps.search_service(seconds).search(request, readable)


async def test_a_container_that_is_slow_does_not_cost_the_vectors_of_others(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    vectors = harness.stack.vectors
    plain = vectors.search

    async def slow(collection: str, *given: Any, **more: Any) -> VectorHits:
        if SLOW in collection:
            await asyncio.Event().wait()
        return await plain(collection, *given, **more)

    monkeypatch.setattr(vectors, "search", slow)
    for _ in range(FAILURES):
        assert (await search(harness, SLOW, seconds=SECONDS)).partial
    await until(lambda: not harness.stack.breakers.of("qdrant").is_open)
    answer = await search(harness, CONTAINER)
    assert (answer.partial, len(answer.hits)) == (False, 1)
    assert not [r for r in caplog.records if r.message.startswith("circuit_")]


async def test_a_service_that_answers_with_errors_is_logged_once_per_kind_of_error(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(outage, "QUIET_SECONDS", 0.0)
    caplog.set_level(logging.INFO)
    vectors = harness.stack.vectors
    error: Exception = UpstreamError("Qdrant failed (500)")

    async def failing(*given: Any, **more: Any) -> VectorHits:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(vectors, "search", failing)
        for _ in range(5):
            assert (await search(harness, CONTAINER, SLOW)).partial
        error = UpstreamOverload("Qdrant limits requests (429)")
        for _ in range(5):
            assert (await search(harness, CONTAINER, SLOW)).partial
    assert not (await search(harness, CONTAINER, SLOW)).partial
    lines = [vars(r) for r in caplog.records if r.message.startswith("channel_")]
    assert [(line["message"], line["error"]) for line in lines] == [
        ("channel_failed", "UpstreamError"),
        ("channel_failed", "UpstreamOverload"),
        ("channel_recovered", "UpstreamError"),
        ("channel_recovered", "UpstreamOverload"),
    ]
    assert "Qdrant failed (500)" in lines[0]["cause"]
    assert [line["failures"] for line in lines[2:]] == [10, 10]
    assert {line["channel"] for line in lines} == {"vector"}
