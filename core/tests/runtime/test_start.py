"""Starts on servers: what is wrong with one collection, or for a while, stops no process."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from latent_core import stack as module
from latent_core.domain.errors import LatentError, MarkerMismatch, Misconfigured, TimedOut
from latent_core.domain.manifest.model import Manifest
from latent_core.ingest import containers as founding
from latent_core.search.embed import QueryCache
from latent_core.settings import Settings
from latent_core.stack import Stack
from latent_core.vectors.qdrant.index import QdrantVectorIndex
from tests.support.harness.installation import eventually
from tests.support.servers.qdrant_server import QdrantServer

NAMES = ("coast", "fog", "lamp")
DIMS = 8


@pytest.fixture
def qdrant() -> Iterator[QdrantServer]:
    with QdrantServer() as running:
        yield running


@pytest.fixture
async def settings(dsn: str, tmp_path: Path, qdrant: QdrantServer) -> Settings:
    """Of an installation with three containers. The S3 server is away, which stops no start."""
    given = Settings(
        _env_file=None,
        data_dir=tmp_path,
        embed_base_url="http://127.0.0.1:9",
        postgres_dsn=dsn,
        qdrant_url=qdrant.url,
        s3_endpoint="http://127.0.0.1:9",
        s3_access_key="key",
        s3_secret_key="secret",
    )
    async with Stack.open(given, name="gateway") as stack:
        for name in NAMES:
            await create(stack, name)
    return given


async def create(stack: Stack, name: str) -> None:
    manifest = Manifest(id=name, name=name, embedder="openai/test", dims=DIMS)
    await founding.create(
        stack.db,
        stack.vectors,
        stack.blobs,
        stack.embedders,
        manifest,
        principal="local:you",
        request_id=None,
    )


async def test_a_collection_that_cannot_be_used_stops_no_start_and_no_other_collection(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, module.__name__)
    monkeypatch.setattr(module, "ENSURE_PAUSE_SECONDS", 0.02)
    async with Stack.open(settings, name="gateway") as stack:
        coast, fog, lamp = sorted(await stack.vectors.collections())
        for name in (coast, lamp):
            await stack.vectors.drop_collection(name)
        await stack.vectors.create_collection(lamp, DIMS + 1)
    caplog.clear()
    async with Stack.open(settings, name="gateway") as stack:
        assert sorted(await stack.vectors.collections()) == [coast, fog, lamp]
        (line,) = [r for r in caplog.records if r.message == "collections_not_checked"]
        assert f"1 of the collections: vector collection {lamp}" in vars(line)["cause"]
        await stack.vectors.drop_collection(lamp)

        async def mended() -> bool:
            return any(r.message == "collections_checked" for r in caplog.records)

        await eventually(mended, what="the collection")
        assert await stack.vectors.count(lamp) == 0
    lines = [r.message for r in caplog.records if r.message.startswith("collections_")]
    assert lines == ["collections_not_checked", "collections_checked"]


@pytest.mark.parametrize(
    "error", [Misconfigured("Qdrant takes no more collections"), TimedOut("no answer"), KeyError()]
)
async def test_what_goes_wrong_in_the_background_is_logged_and_repeated(
    settings: Settings,
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, module.__name__)
    monkeypatch.setattr(module, "ENSURE_PAUSE_SECONDS", 0.02)
    failing = AsyncMock(side_effect=[TimedOut("frozen"), error, error, []])
    monkeypatch.setattr(QdrantVectorIndex, "collections", failing)
    async with Stack.open(settings, name="worker"):

        async def checked() -> bool:
            return any(r.message == "collections_checked" for r in caplog.records)

        await eventually(checked, what="the check")
    assert failing.await_count == 4
    if isinstance(error, LatentError):
        causes = [
            vars(r)["cause"] for r in caplog.records if r.message == "collections_not_checked"
        ]
        assert causes == ["frozen", error.message]


@pytest.mark.parametrize("text", ["max collections limit", "rate limit"])
async def test_a_limit_of_the_server_stops_no_start(
    settings: Settings, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = AsyncMock(side_effect=Misconfigured(text))
    monkeypatch.setattr(QdrantVectorIndex, "create_collection", refused)
    async with Stack.open(settings, name="worker"):
        assert refused.await_count == len(NAMES)


async def test_a_marker_of_another_holder_stops_a_start(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = AsyncMock(side_effect=MarkerMismatch("belongs to database 1/2"))
    monkeypatch.setattr(QdrantVectorIndex, "create_collection", refused)
    with pytest.raises(MarkerMismatch):
        async with Stack.open(settings, name="worker"):
            pass


async def test_every_search_uses_what_searches_before_it_learnt(settings: Settings) -> None:
    """A scale that each search sampled anew cost it more than all else."""
    async with Stack.open(settings, name="gateway") as stack:
        one, two = stack.search_stores(QueryCache()), stack.search_stores(QueryCache())
        assert one.cosine_scales is two.cosine_scales
        assert one.breakers is two.breakers
        assert one.channel_outages is two.channel_outages
