"""Vectors of the query: one embedding a model, and what is waited for before a search takes its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from latent_core.domain.errors import Unavailable
from latent_core.domain.vector_types import Vector
from latent_core.models.embedding.port import EmbeddingModel
from latent_core.search.circuit_breaker import CircuitBreakers
from latent_core.search.embed import QueryCache, QueryVectors
from latent_core.search.time_budget import TimeBudget

SOON = 0.01
LONG = 30.0


class InProcessEmbedder:
    """An embedder in this process."""

    def __init__(self) -> None:
        self.model = EmbeddingModel("local", "1", 2, 256)
        self.embedded: list[str] = []
        self.answers = asyncio.Event()

    async def embed_query(self, text: str) -> Vector:
        self.embedded.append(text)
        await self.answers.wait()
        return np.array([1, 0], np.float32)


class RemoteEmbedderStub(InProcessEmbedder):
    """One behind a network."""

    def raise_if_unreachable(self) -> None:
        pass


def vectors_of(embedder: Any) -> tuple[QueryVectors, Any]:
    return looked_up(lambda _space: embedder), SimpleNamespace(space=None)


def looked_up(for_space: Callable[[Any], Any]) -> QueryVectors:
    async def opened(space: Any) -> Any:
        return for_space(space)

    embedders: Any = SimpleNamespace(opened=opened)
    budget = TimeBudget.start(LONG)
    return QueryVectors(embedders, QueryCache(), CircuitBreakers(), budget, "pumps")


async def test_a_remote_model_is_awaited_before_the_search_and_called_once() -> None:
    far = RemoteEmbedderStub()
    vectors, container = vectors_of(far)
    waiting = asyncio.create_task(vectors.from_remote([container, container], LONG))
    await asyncio.sleep(0)
    assert not waiting.done()
    far.answers.set()
    await waiting
    assert (await vectors.of(container)).tolist() == [1, 0]
    assert far.embedded == ["pumps"]
    await vectors.close()


async def test_a_model_that_takes_longer_is_left_to_its_channel() -> None:
    far = RemoteEmbedderStub()
    vectors, container = vectors_of(far)
    assert await vectors.from_remote([container], SOON) >= SOON
    far.answers.set()
    assert (await vectors.of(container)).tolist() == [1, 0]
    assert far.embedded == ["pumps"]
    await vectors.close()


async def test_a_model_of_this_process_is_not_waited_for() -> None:
    here = InProcessEmbedder()
    vectors, container = vectors_of(here)
    await vectors.from_remote([container], LONG)
    assert here.embedded == []


async def test_a_model_that_is_not_configured_fails_its_channel_alone() -> None:
    def unknown(_space: object) -> Any:
        raise Unavailable("OPENAI_API_KEY is missing")

    vectors, container = looked_up(unknown), SimpleNamespace(space=None)
    await vectors.from_remote([container], LONG)
    with pytest.raises(Unavailable, match="missing"):
        await vectors.of(container)
