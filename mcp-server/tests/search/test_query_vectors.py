"""Vectors of the query: one embedding a model, and what is waited for before a search takes its turn."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from latent_core.domain.errors import Unavailable
from latent_core.domain.vector import Vector
from latent_core.embedding.port import EmbeddingModel
from latent_gateway.search.embed import QueryCache, QueryVectors

SOON = 0.01
LONG = 30.0


class Here:
    """An embedder in this process."""

    def __init__(self) -> None:
        self.model = EmbeddingModel("local", "1", 2, 256)
        self.asked: list[str] = []
        self.answers = asyncio.Event()

    async def embed_query(self, text: str) -> Vector:
        self.asked.append(text)
        await self.answers.wait()
        return np.array([1, 0], np.float32)


class Far(Here):
    """One behind a network."""

    def raise_if_away(self) -> None:
        pass


def vectors_of(embedder: Any) -> tuple[QueryVectors, Any]:
    embedders: Any = SimpleNamespace(for_space=lambda _space: embedder)
    return QueryVectors(embedders, QueryCache(), "pumps"), SimpleNamespace(space=None)


async def test_a_model_far_away_is_waited_for_before_the_search_and_asked_once() -> None:
    far = Far()
    vectors, container = vectors_of(far)
    waiting = asyncio.create_task(vectors.from_afar([container, container], LONG))
    await asyncio.sleep(0)
    assert not waiting.done()
    far.answers.set()
    await waiting
    assert (await vectors.of(container)).tolist() == [1, 0]
    assert far.asked == ["pumps"]
    await vectors.close()


async def test_a_model_that_takes_longer_is_left_to_its_channel() -> None:
    far = Far()
    vectors, container = vectors_of(far)
    assert await vectors.from_afar([container], SOON) >= SOON
    far.answers.set()
    assert (await vectors.of(container)).tolist() == [1, 0]
    assert far.asked == ["pumps"]
    await vectors.close()


async def test_a_model_of_this_process_is_not_waited_for() -> None:
    here = Here()
    vectors, container = vectors_of(here)
    await vectors.from_afar([container], LONG)
    assert here.asked == []


async def test_a_model_that_is_not_configured_fails_its_channel_alone() -> None:
    def unknown(_space: object) -> Any:
        raise Unavailable("OPENAI_API_KEY is missing")

    embedders: Any = SimpleNamespace(for_space=unknown)
    vectors, container = QueryVectors(embedders, QueryCache(), "pumps"), SimpleNamespace(space=None)
    await vectors.from_afar([container], LONG)
    with pytest.raises(Unavailable, match="missing"):
        await vectors.of(container)
