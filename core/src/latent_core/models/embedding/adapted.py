"""An embedder whose vectors go through a drift adapter: the new model asks, the old collection answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from latent_core.db.connection import Database
from latent_core.db.spaces import drift_adapters
from latent_core.domain.errors import Unavailable
from latent_core.domain.vector import Matrix, Vector
from latent_core.models.embedding.drift import DriftAdapter
from latent_core.models.embedding.port import (
    IN_FLIGHT,
    MAX_TEXTS,
    Embedder,
    EmbeddingModel,
    RemoteEmbedderLimits,
    Tokenizer,
    UnreachableAware,
    images_a_request,
)


class Adapters(Protocol):
    """Where adapters are kept."""

    async def get(self, adapter_id: int) -> DriftAdapter:
        """``Unavailable`` when it is not there."""
        ...


class StoredAdapters:
    """Those in Postgres; each is read once a process."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._kept: dict[int, DriftAdapter] = {}

    async def get(self, adapter_id: int) -> DriftAdapter:
        if adapter_id not in self._kept:
            async with self._db.transaction() as conn:
                data = await drift_adapters.read(conn, adapter_id)
            if data is None:
                raise Unavailable(f"drift adapter {adapter_id} is not stored (any more)")
            self._kept[adapter_id] = await asyncio.to_thread(DriftAdapter.from_bytes, data)
        return self._kept[adapter_id]


class AdaptedEmbedder:
    """``Embedder`` of the new model with vectors of the old space."""

    def __init__(self, inner: Embedder, adapter_id: int, dims: int, adapters: Adapters) -> None:
        """``dims`` are those of the old space."""
        self._inner = inner
        self._adapter_id = adapter_id
        self._adapters = adapters
        of = inner.model
        # Another version: its vectors must never be taken for the model's own, nor these for its.
        self._model = EmbeddingModel(
            of.embedder, f"{of.version}+drift{adapter_id}", dims, of.window, of.reads_images
        )

    @property
    def model(self) -> EmbeddingModel:
        return self._model

    @property
    def tokenizer(self) -> Tokenizer:
        return self._inner.tokenizer

    @property
    def texts_a_request(self) -> int:
        return (
            self._inner.texts_a_request
            if isinstance(self._inner, RemoteEmbedderLimits)
            else MAX_TEXTS
        )

    @property
    def requests_at_a_time(self) -> int:
        return (
            self._inner.requests_at_a_time
            if isinstance(self._inner, RemoteEmbedderLimits)
            else IN_FLIGHT
        )

    @property
    def images_a_request(self) -> int:
        return images_a_request(self._inner)

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        adapter = await self._adapters.get(self._adapter_id)
        return adapter.adapt_queries(await self._inner.embed_documents(texts))

    def raise_if_unreachable(self) -> None:
        if isinstance(self._inner, UnreachableAware):
            self._inner.raise_if_unreachable()

    async def embed_query(self, text: str) -> Vector:
        adapter = await self._adapters.get(self._adapter_id)
        return adapter.adapt_query(await self._inner.embed_query(text))

    async def embed_images(self, images: Sequence[bytes]) -> Matrix:
        adapter = await self._adapters.get(self._adapter_id)
        return adapter.adapt_queries(await self._inner.embed_images(images))

    async def embed_query_image(self, image: bytes) -> Vector:
        adapter = await self._adapters.get(self._adapter_id)
        return adapter.adapt_query(await self._inner.embed_query_image(image))

    async def close(self) -> None:
        """The inner embedder belongs to whoever opened it."""
