"""Nomic's own API: ``POST {base}/v1/embedding/text`` and ``/image``.

The request names the task, and the server adds its prefixes. A vision model shares the space of the text model of
the same version: ``nomic-embed-vision-v1.5`` sends its texts to ``nomic-embed-text-v1.5``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from latent_core.domain.manifest.model import VISION
from latent_core.models.embedding.api.wire import (
    EmbeddingEndpoint,
    EmbeddingResponse,
    EmbeddingWire,
    answered,
    listed,
)
from latent_core.models.embedding.picture import media_type

DOCUMENT: Final = "search_document"
QUERY: Final = "search_query"
IMAGES: Final = 8
_DIALECT: Final = "Nomic's dialect"


class NomicClient:
    def __init__(self, endpoint: EmbeddingEndpoint, *, connections: int) -> None:
        self._wire = EmbeddingWire(endpoint, "/v1/embedding/text", connections=connections)

    @property
    def name(self) -> str:
        return self._wire.name

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> EmbeddingResponse:
        request = {
            "texts": list(texts),
            "model": self._wire.endpoint.model,
            "task_type": QUERY if query else DOCUMENT,
            "dimensionality": self._wire.endpoint.dims,
            # Chunks are cut to fit the window; the mean of a longer text's parts would be a poor vector.
            "long_text_mode": "truncate",
        }
        answer = await self._wire.ask(request, len(texts))
        return answered(
            self._wire, answer, listed(self._wire, answer, "embeddings", len(texts), _DIALECT)
        )

    async def close(self) -> None:
        await self._wire.close()


class NomicVisionClient:
    """Sends pictures to a vision model, and texts to its text model."""

    images_a_request = IMAGES

    def __init__(self, endpoint: EmbeddingEndpoint, *, connections: int) -> None:
        twin = replace(endpoint, model=endpoint.model.replace(VISION, "-text-"))
        self._texts = NomicClient(twin, connections=connections)
        self._wire = EmbeddingWire(endpoint, "/v1/embedding/image", connections=connections)

    @property
    def name(self) -> str:
        return self._wire.name

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> EmbeddingResponse:
        return await self._texts.embed(texts, query=query)

    async def embed_images(self, images: Sequence[bytes]) -> EmbeddingResponse:
        files = [
            ("images", (f"{place}.{kind.rpartition('/')[2]}", image, kind))
            for place, image in enumerate(images)
            for kind in (media_type(image),)
        ]
        answer = await self._wire.ask_form({"model": self._wire.endpoint.model}, files, len(images))
        vectors = listed(self._wire, answer, "embeddings", len(images), _DIALECT)
        return answered(self._wire, answer, vectors)

    async def close(self) -> None:
        await self._wire.close()
        await self._texts.close()
