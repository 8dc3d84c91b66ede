"""Vectors of the query's words and image: one embedding per model, shared by all containers."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Final, Protocol

import numpy as np
from typing_extensions import override

from latent_core.db.containers import Container, Space
from latent_core.domain.errors import Issue, IssueCode, LatentError
from latent_core.domain.vector_types import Vector
from latent_core.models.embedding.port import Embedder, UnreachableAware
from latent_core.search.circuit_breaker import CircuitBreakers
from latent_core.search.time_budget import TimeBudget


@dataclass(frozen=True, slots=True)
class EmbeddedQueryImage:
    """A query image for embedders that read pictures."""

    image: bytes
    sha256: str
    words: str
    """The text of the query."""

    @property
    def key(self) -> str:
        """A cache key; no text query contains a NUL."""
        return f"\0{self.sha256}\0{self.words}"


@dataclass(frozen=True, slots=True)
class QueryImage:
    """Text, picture and issue of an ``image_ref``."""

    text: str
    """At most ``MAX_CHARS`` (``ingest/read_image.py``); empty if the image has no words or was not read yet."""
    issue: Issue | None = None
    """Why there is no text, or no picture."""
    picture: EmbeddedQueryImage | None = None
    """For embedders that read pictures."""
    milliseconds: float = 0.0

    @property
    def partial(self) -> bool:
        """Whether the answer is partial because the text of the image is unknown."""
        return self.issue is not None and self.issue.code is not IssueCode.NO_HITS


class SimilarText(Protocol):
    """A stored text that results resemble (``latent_core.search.like``)."""

    @property
    def text(self) -> str: ...

    def vector_in(self, space: Space) -> Vector | None:
        """Its stored vector, if it is comparable with those of ``space``."""
        ...


class EmbedderLookup(Protocol):
    """Returns the embedder of a space; ``Unavailable`` says which setting is missing."""

    async def opened(self, space: Space) -> Embedder: ...


MAX_CACHED_QUERIES: Final = 2048
"""Query vectors to keep: a few megabytes."""
OPPOSITE: Final = 1e-6
"""A shorter sum of two vectors has no direction: they are opposites."""


class QueryCache:
    """Vectors of the latest queries. A vector depends only on the model and the words, so no change of rights or
    content makes it stale."""

    def __init__(self, max_kept: int = MAX_CACHED_QUERIES) -> None:
        self._max_kept = max_kept
        self._vectors: OrderedDict[tuple[str, str], Vector] = OrderedDict()

    def get(self, model: str, query: str) -> Vector | None:
        vector = self._vectors.get((model, query))
        if vector is not None:
            self._vectors.move_to_end((model, query))
        return vector

    def put(self, model: str, query: str, vector: Vector) -> None:
        self._vectors[model, query] = vector
        while len(self._vectors) > self._max_kept:
            self._vectors.popitem(last=False)


@dataclass(frozen=True, slots=True)
class FixedEmbedder(EmbedderLookup):
    """The same embedder for every space."""

    embedder: Embedder

    @override
    async def opened(self, space: Space) -> Embedder:
        return self.embedder


class QueryVectors:
    """Embeds one query at most once per embedding model; as a picture if the model reads pictures."""

    def __init__(
        self,
        embedders: EmbedderLookup,
        cache: QueryCache,
        breakers: CircuitBreakers,
        budget: TimeBudget,
        query: str,
        seen: EmbeddedQueryImage | None = None,
        like: SimilarText | None = None,
    ) -> None:
        """``budget``: of a model behind a network. ``like``: counts as much as the query."""
        self._embedders = embedders
        self._cache = cache
        self._breakers = breakers
        self._budget = budget
        self._query = query
        self._seen = seen
        self._like = like
        self._tasks: dict[str, asyncio.Task[Vector]] = {}
        self.milliseconds = 0.0

    async def of(self, container: Container) -> Vector:
        """The query's vector in the container's live space. A waiter that gives up does not stop the others."""
        embedder = await self._embedders.opened(container.space)
        return await asyncio.shield(self._task(embedder, container))

    async def from_remote(self, containers: Sequence[Container], seconds: float) -> float:
        """Wait up to ``seconds`` for models behind a network; returns the seconds spent. ``of`` raises their errors."""
        begun, tasks = perf_counter(), []
        for container in containers:
            with suppress(LatentError):
                embedder = await self._embedders.opened(container.space)
                if isinstance(embedder, UnreachableAware):
                    tasks.append(self._task(embedder, container))
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
        return perf_counter() - begun

    def _task(self, embedder: Embedder, container: Container) -> asyncio.Task[Vector]:
        key = embedder.model.key
        if key not in self._tasks:
            self._tasks[key] = asyncio.create_task(self._embed(embedder, container))
        return self._tasks[key]

    async def _embed(self, embedder: Embedder, container: Container) -> Vector:
        seen = self._seen if embedder.model.reads_images else None
        if self._like is not None:
            return await self._similar(embedder, container.space, self._like)
        key = self._query if seen is None else seen.key
        kept = self._cache.get(embedder.model.key, key)
        if kept is not None:
            return kept
        begun = perf_counter()
        vector = await self._answer(embedder, seen)
        self.milliseconds += (perf_counter() - begun) * 1000
        self._cache.put(embedder.model.key, key, vector)
        return vector

    async def _similar(self, embedder: Embedder, space: Space, like: SimilarText) -> Vector:
        """The vector of a stored text; with a query, the normalised sum of both."""
        stored = like.vector_in(space)
        if stored is not None and not self._query.strip():
            return stored
        begun = perf_counter()
        vector = await self._called(embedder, lambda: self._with_query(embedder, like, stored))
        self.milliseconds += (perf_counter() - begun) * 1000
        return vector

    async def _with_query(
        self, embedder: Embedder, like: SimilarText, stored: Vector | None
    ) -> Vector:
        vector = await embedder.embed_query(like.text) if stored is None else stored
        if not self._query.strip():
            return vector
        return _between(vector, await embedder.embed_query(self._query))

    async def _answer(self, embedder: Embedder, seen: EmbeddedQueryImage | None) -> Vector:
        if seen is not None:
            return await self._called(embedder, lambda: _image_vector(embedder, seen))
        return await self._called(embedder, lambda: embedder.embed_query(self._query))

    async def _called(self, embedder: Embedder, embed: Callable[[], Awaitable[Vector]]) -> Vector:
        """Embed; a model behind a network is skipped while it does not answer."""
        if not isinstance(embedder, UnreachableAware):
            return await embed()
        breaker = self._breakers.of(f"embedder {embedder.model.key}")
        return await breaker.run(lambda _: embed(), self._budget, self)

    async def close(self) -> None:
        """Cancel unfinished embeddings."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


async def _image_vector(embedder: Embedder, seen: EmbeddedQueryImage) -> Vector:
    """The picture's vector; with words, the normalised sum of both vectors."""
    picture = await embedder.embed_query_image(seen.image)
    if not seen.words.strip():
        return picture
    return _between(picture, await embedder.embed_query(seen.words))


def _between(one: Vector, other: Vector) -> Vector:
    """The normalised sum; ``one`` if they are opposites."""
    total = one + other
    length = float(np.linalg.norm(total))
    return (total / length).astype(np.float32) if length > OPPOSITE else one
