"""Models of providers that become other ones under the same name, and the window that all processes keep."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from latent_core.db.connection import Database
from latent_core.domain.errors import LatentError, OtherModel
from latent_core.domain.manifest.model import Manifest
from latent_core.models.embedding.api.identity import (
    CHECK_SECONDS,
    TEXT,
    ModelIdentity,
    StoredReferences,
)
from latent_core.models.embedding.api.remote import RemoteEmbedder
from latent_core.models.embedding.batcher import Batcher
from latent_core.models.embedding.cache import CachedEmbedding
from latent_core.models.embedding.picture import StoredImage
from latent_core.models.embedding.port import EmbeddingModel
from latent_core.models.embedding.resolve import EmbedderRegistry
from latent_core.models.providers.entry import Kind
from latent_core.settings import Settings
from tests.support.clock import FakeClock
from tests.support.hashed_embedder import HashedWords
from tests.support.queue import sql
from tests.support.servers.provider_server import MODEL, ProviderServer

DIMS: Final = 16
NAME: Final = f"work/{MODEL}"
LONG: Final = " ".join(f"word{n}" for n in range(60))


class Processes:
    """Processes of one installation, each with its own settings of the provider ``work``."""

    def __init__(self, db: Database, folder: Path) -> None:
        self._db = db
        self._folder = folder
        self.registries: list[EmbedderRegistry] = []

    def start(self, server: ProviderServer) -> EmbedderRegistry:
        file = self._folder / f"providers-{len(self.registries)}.yaml"
        entry = f"{{name: work, kind: {server.kind.value}, base_url: '{server.base_url}'}}"
        file.write_text(f"providers:\n- {entry}\n", encoding="utf-8")
        settings = Settings(_env_file=None, providers=file)
        registry = EmbedderRegistry(settings, self._folder / "models")
        registry.keep_references_in(StoredReferences(self._db))
        self.registries.append(registry)
        return registry

    def open(self, server: ProviderServer, version: str | None = None) -> RemoteEmbedder:
        """The embedder of a space in a new process."""
        return embedder_of(self.start(server), version)


def embedder_of(registry: EmbedderRegistry, version: str | None = None) -> RemoteEmbedder:
    manifest = Manifest(id="c", name="C", embedder=NAME, dims=DIMS, embedder_version=version)
    embedder = registry.for_space(registry.model_of(manifest))
    assert isinstance(embedder, RemoteEmbedder)
    return embedder


@pytest.fixture
async def processes(database: Database, tmp_path: Path) -> AsyncIterator[Processes]:
    running = Processes(database, tmp_path)
    yield running
    for registry in running.registries:
        await registry.close()


@pytest.fixture
async def server() -> AsyncIterator[ProviderServer]:
    async with ProviderServer(Kind.OPENAI, dims=DIMS) as running:
        yield running


def times_compared(server: ProviderServer) -> int:
    return sum(TEXT in request.texts for request in server.requests)


async def test_each_process_compares_once_and_the_same_model_elsewhere_is_the_same(
    processes: Processes, server: ProviderServer
) -> None:
    first = processes.open(server)
    expected = await first.embed_documents(["lamp oil"])
    for text in ("storm", "boat"):
        await first.embed_query(text)
        await first.embed_documents([text])
    assert times_compared(server) == 1
    async with ProviderServer(Kind.TEI, dims=DIMS) as moved:
        second = processes.open(moved)
        assert np.allclose(await second.embed_documents(["lamp oil"]), expected, atol=1e-6)
        await second.embed_query("storm")
        assert times_compared(moved) == 1


async def test_another_model_makes_no_vectors_and_answers_no_queries_under_the_old_version(
    processes: Processes, server: ProviderServer
) -> None:
    await processes.open(server).embed_documents(["lamp oil"])
    server.other_model = True
    registry = processes.start(server)
    embedder = embedder_of(registry)
    with pytest.raises(OtherModel, match=f"model behind {NAME} is another one") as caught:
        await embedder.embed_documents(["lamp oil"])
    assert f"latent refresh CONTAINER --to {NAME} --version " in caught.value.message
    with pytest.raises(OtherModel):
        await embedder.embed_query("lamp oil")
    assert registry.lacking(NAME, "1") == caught.value.message
    assert registry.lacking(NAME) is None

    version = caught.value.message.partition("--version ")[2].split()[0]
    renewed = embedder_of(registry, version)
    (row,) = await renewed.embed_documents(["lamp oil"])
    assert np.allclose(row, server.vectors(["lamp oil"])[0], atol=1e-6)

    server.other_model = False
    await embedder.embed_documents(["lamp oil"])
    assert registry.lacking(NAME, "1") is None
    with pytest.raises(OtherModel):
        await processes.open(server, version).embed_query("lamp oil")


async def test_vectors_of_the_former_model_are_not_taken_from_the_cache(
    processes: Processes, server: ProviderServer, database: Database
) -> None:
    async def cached(embedder: RemoteEmbedder) -> Any:
        batcher = Batcher(embedder)
        try:
            return await CachedEmbedding(batcher, database, no_pictures).embed(["lamp oil"])
        finally:
            await batcher.close()

    assert (await cached(processes.open(server))).hits == 0
    assert (await cached(processes.open(server))).hits == 1
    server.other_model = True
    with pytest.raises(OtherModel):
        await cached(processes.open(server))
    renewed = await cached(processes.open(server, "2"))
    assert renewed.hits == 0
    assert np.allclose(renewed.matrix, server.vectors(["lamp oil"]), atol=1e-6)


async def no_pictures(picture: StoredImage) -> bytes:
    raise AssertionError(f"nothing has drawn {picture.sha256}")


async def test_processes_that_begin_at_the_same_time_keep_one_reference(
    processes: Processes, server: ProviderServer, database: Database
) -> None:
    embedders = [processes.open(server) for _ in range(4)]
    calls = [embedder.embed_documents([f"text {n}"]) for n, embedder in enumerate(embedders)]
    await asyncio.gather(*calls)
    rows = await sql(database, "SELECT space, text, max_tokens FROM embedder_references")
    assert [tuple(row.values()) for row in rows] == [(f"{NAME}@1/{DIMS}", TEXT, 0)]


async def test_a_running_process_compares_again_after_a_while(database: Database) -> None:
    time, words = FakeClock(), HashedWords(DIMS)
    turned = [False]

    async def embed(text: str) -> Any:
        (row,) = words.vectors([text])
        return row[::-1] if turned[0] else row

    async def whole() -> int:
        return 0

    model = EmbeddingModel(NAME, "1", DIMS, 512)
    references = StoredReferences(database)
    identity = ModelIdentity(model, references, embed, whole, clock=time.clock)
    await identity.confirm()
    turned[0] = True
    await identity.confirm()
    await time.sleep(CHECK_SECONDS)
    with pytest.raises(OtherModel):
        await identity.confirm()
    turned[0] = False
    await identity.confirm()
    assert identity.other is None


@pytest.mark.parametrize("kind", [Kind.OLLAMA, Kind.TEI, Kind.VLLM])
async def test_the_window_of_the_first_use_cuts_texts_in_every_process(
    processes: Processes, kind: Kind
) -> None:
    async with ProviderServer(kind, dims=DIMS, facts=34) as server:
        expected = await processes.open(server).embed_documents([LONG])
        assert not np.allclose(expected, server.vectors([LONG]), atol=1e-3)
        for reported in (None, 12, 1000):
            server.facts = reported
            again = await processes.open(server).embed_documents([LONG])
            assert np.allclose(again, expected, atol=1e-6)


async def test_a_window_that_cannot_be_read_now_is_not_decided_without_it(
    processes: Processes, database: Database
) -> None:
    async with ProviderServer(Kind.TEI, dims=DIMS, facts=34) as server:
        server.facts_fail = True
        embedder = processes.open(server)
        assert (await embedder.embed_query("lamp")).shape == (DIMS,)
        with pytest.raises(LatentError, match="500"):
            await embedder.embed_documents([LONG])
        (row,) = await sql(database, "SELECT max_tokens FROM embedder_references")
        assert row["max_tokens"] is None
        server.facts_fail = False
        first = await embedder.embed_documents([LONG])
        assert np.allclose(await processes.open(server).embed_documents([LONG]), first, atol=1e-6)
        (row,) = await sql(database, "SELECT max_tokens FROM embedder_references")
        assert row["max_tokens"] == 32
