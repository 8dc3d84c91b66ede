"""Local models are loaded before a search needs them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from latent_core.db import containers
from latent_core.db.connection import Database
from latent_core.db.spaces import spaces
from latent_core.domain.errors import ModelMissing
from latent_core.domain.manifest.model import Manifest
from latent_core.models.embedding.local import LocalEmbedder
from latent_core.models.embedding.minilm import FP32, built_in
from latent_core.models.embedding.resolve import OfSpace
from latent_core.stack import Stack
from latent_core.wire.refresh import SpaceState
from latent_gateway.model_warmer import RETRY_SECONDS, ModelWarmer
from tests.support.clock import FakeClock


class RecordedEmbedder(LocalEmbedder):
    """Notes each load in the place of doing it."""

    def __init__(self, name: str, loads: list[str], folder: Path) -> None:
        super().__init__(built_in(FP32, folder), threads=1)
        self._name, self._loads = name, loads

    async def warm(self) -> None:
        self._loads.append(self._name)


@dataclass
class Embedders:
    folder: Path
    loads: list[str] = field(default_factory=list)
    missing: set[str] = field(default_factory=set)

    async def opened(self, space: OfSpace) -> RecordedEmbedder:
        assert not space.embedder.startswith("openai/"), "a server has nothing to load"
        if space.embedder in self.missing:
            raise ModelMissing(f"{space.embedder} is not installed")
        return RecordedEmbedder(
            f"{space.embedder} {space.version} {space.dims}", self.loads, self.folder
        )


async def container(db: Database, name: str, embedder: str) -> None:
    async with db.transaction() as conn:
        await containers.insert(conn, Manifest(id=name, name=name, embedder=embedder), name)
        await containers.insert_space(conn, name, embedder, "1", 8)


@pytest.fixture
def embedders(tmp_path: Path) -> Embedders:
    return Embedders(tmp_path)


def warmer_of(database: Database, embedders: Embedders, clock: FakeClock) -> ModelWarmer:
    stack = cast(Stack, SimpleNamespace(db=database, embedders=embedders))
    return ModelWarmer(stack, clock=clock.clock)


async def test_models_of_live_and_unfinished_vectors_are_loaded_once_and_no_others(
    database: Database, embedders: Embedders
) -> None:
    await container(database, "one", "tiny-lamp")
    await container(database, "two", "tiny-lamp")
    await container(database, "far", "openai/test")
    warmer = warmer_of(database, embedders, FakeClock())
    await warmer.load_new()
    assert embedders.loads == ["tiny-lamp 1 8"]

    async with database.transaction() as conn:
        (live,) = await containers.spaces(conn, "one")
        new: dict[str, Any] = {"version": "1", "dims": 8}
        await spaces.insert(conn, "one", embedder="a-new-one", **new)
        gone = await spaces.insert(conn, "two", embedder="dropped", **new)
        await spaces.set_state(conn, gone, SpaceState.DROPPING)
    await warmer.load_new()
    await warmer.load_new()
    assert embedders.loads == ["tiny-lamp 1 8", "a-new-one 1 8"]
    assert live.state is SpaceState.LIVE

    again = warmer_of(database, embedders, FakeClock())
    embedders.loads.clear()
    await again.load_new()
    assert embedders.loads == ["tiny-lamp 1 8", "a-new-one 1 8"]  # searches use the live one now


async def test_the_model_of_a_refresh_is_loaded_when_it_is_requested(
    database: Database, embedders: Embedders
) -> None:
    warmer = warmer_of(database, embedders, FakeClock())
    model = built_in(FP32, embedders.folder).model
    warmer.soon(model)
    warmer.soon(model)
    await warmer.load(model)
    await asyncio.gather(*warmer._tasks)
    assert embedders.loads == [f"{model.embedder} {model.version} {model.dims}"]
    await warmer.close()


async def test_a_model_that_cannot_be_loaded_is_logged_and_tried_again_a_minute_later(
    database: Database, embedders: Embedders, caplog: pytest.LogCaptureFixture
) -> None:
    await container(database, "one", "tiny-lamp")
    embedders.missing.add("tiny-lamp")
    clock = FakeClock()
    warmer = warmer_of(database, embedders, clock)
    await warmer.load_new()
    await warmer.load_new()
    assert [record.message for record in caplog.records] == ["model_not_loaded"]
    embedders.missing.clear()
    await warmer.load_new()
    assert embedders.loads == []
    clock.now += RETRY_SECONDS
    await warmer.load_new()
    assert embedders.loads == ["tiny-lamp 1 8"]
