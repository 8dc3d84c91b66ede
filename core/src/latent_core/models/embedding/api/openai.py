"""Clients of ``POST {base}/embeddings`` in the dialects ``openai``, ``vllm`` and ``jina``, and the OpenAI embedder."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from latent_core.domain.errors import IngestFailed
from latent_core.models.embedding.api.remote import (
    QUERY_CONNECTIONS,
    Breaker,
    RemoteEmbedder,
    RetryPolicy,
)
from latent_core.models.embedding.api.wire import (
    EmbeddingEndpoint,
    EmbeddingResponse,
    EmbeddingWire,
    answered,
    listed,
)
from latent_core.models.embedding.picture import as_data_url
from latent_core.models.embedding.port import EmbeddingModel, prefixes_of
from latent_core.models.embedding.rate import Rate

JINA_IMAGES: Final = 8
TOKENS_PER_IMAGE: Final = "Describe the image."
"""The prompt that models of the ColPali family were trained with. It affects vectors, so it must not change."""


class _EmbeddingsEndpoint:
    def __init__(self, endpoint: EmbeddingEndpoint, *, connections: int) -> None:
        self._wire = EmbeddingWire(endpoint, "/embeddings", connections=connections)

    @property
    def name(self) -> str:
        return self._wire.name

    async def close(self) -> None:
        await self._wire.close()

    async def _sent(self, request: dict[str, Any], count: int) -> EmbeddingResponse:
        answer = await self._wire.ask({"model": self._wire.endpoint.model, **request}, count)
        return answered(self._wire, answer, _vectors(self._wire, answer, count))


class EmbeddingsClient(_EmbeddingsEndpoint):
    async def embed(self, texts: Sequence[str], *, query: bool = False) -> EmbeddingResponse:  # noqa: ARG002 - the dialect does not distinguish queries
        return await self._sent({"input": list(texts)}, len(texts))


class VllmClient(EmbeddingsClient):
    """A picture is a chat message, one per request."""

    images_a_request = 1

    async def embed_images(self, images: Sequence[bytes]) -> EmbeddingResponse:
        (image,) = images
        content = [
            {"type": "image_url", "image_url": {"url": as_data_url(image)}},
            {"type": "text", "text": TOKENS_PER_IMAGE},
        ]
        messages = [{"role": "user", "content": content}]
        return await self._sent({"messages": messages, "encoding_format": "float"}, 1)


class JinaClient(_EmbeddingsEndpoint):
    """Texts and pictures are objects in one list."""

    images_a_request = JINA_IMAGES

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> EmbeddingResponse:  # noqa: ARG002 - as above
        return await self._sent({"input": [{"text": text} for text in texts]}, len(texts))

    async def embed_images(self, images: Sequence[bytes]) -> EmbeddingResponse:
        return await self._sent(
            {"input": [{"image": as_data_url(image)} for image in images]}, len(images)
        )


def _vectors(wire: EmbeddingWire, answer: Any, count: int) -> list[Any]:
    """The vectors of a response in the order of the inputs."""
    items = listed(wire, answer, "data", count, "the openai dialect")
    if not all(isinstance(item, dict) for item in items):
        raise IngestFailed(
            f"{wire.name} does not speak the openai dialect: its response has no list 'data' of objects"
        )
    order = [item.get("index", place) for place, item in enumerate(items)]
    whole = all(isinstance(index, int) for index in order)
    if not whole or sorted(order) != list(range(count)):
        raise IngestFailed(f"{wire.name} returned indices that are not 0 to {count - 1}, each once")
    placed = dict(zip(order, items, strict=True))
    return [placed[index].get("embedding") for index in range(count)]


class OpenAiEmbedder(RemoteEmbedder):
    """Adds the prefixes that the model expects."""

    def __init__(
        self,
        model: EmbeddingModel,
        endpoint: EmbeddingEndpoint,
        rate: Rate,
        *,
        retry_policy: RetryPolicy = RetryPolicy(),
        breaker: Breaker | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        super().__init__(
            model,
            EmbeddingsClient(endpoint, connections=retry_policy.requests + QUERY_CONNECTIONS),
            rate,
            retry_policy=retry_policy,
            prefixes=prefixes_of(endpoint.model),
            breaker=breaker,
            sleep=sleep,
            jitter=jitter,
        )
