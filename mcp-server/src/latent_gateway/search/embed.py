"""Vectors of the query: one embedding a model, however many containers share it."""

from __future__ import annotations

import asyncio
from time import perf_counter

from latent_core.domain.vector import Vector
from latent_core.registry.containers import Container
from latent_gateway.search.stores import Embedders


class QueryVectors:
    """Embeds one query at most once for each embedding model."""

    def __init__(self, embedders: Embedders, query: str) -> None:
        self._embedders = embedders
        self._query = query
        self._tasks: dict[str, asyncio.Task[Vector]] = {}
        self.milliseconds = 0.0

    async def of(self, container: Container) -> Vector:
        """The query's vector in the container's live space. A waiter that gives up does not stop the others."""
        embedder = self._embedders.for_space(container.space)
        key = embedder.model.key
        if key not in self._tasks:
            self._tasks[key] = asyncio.create_task(self._embed(container))
        return await asyncio.shield(self._tasks[key])

    async def _embed(self, container: Container) -> Vector:
        begun = perf_counter()
        vector = await self._embedders.for_space(container.space).embed_query(self._query)
        self.milliseconds += (perf_counter() - begun) * 1000
        return vector

    async def close(self) -> None:
        """End what nobody waits for any more."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
