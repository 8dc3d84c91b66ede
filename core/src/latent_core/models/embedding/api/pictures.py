"""Pictures at ``POST {base}/embeddings`` in the dialects of vLLM and Jina."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from latent_core.models.embedding.api.dialects import TextClient, by_index
from latent_core.models.embedding.api.wire import EmbeddingEndpoint, EmbeddingResponse, answered
from latent_core.models.embedding.picture import as_data_url
from latent_core.models.providers.entry import Kind

JINA_IMAGES: Final = 8
TOKENS_PER_IMAGE: Final = "Describe the image."
"""The prompt that models of the ColPali family were trained with. It affects vectors, so it must not change."""


class _PictureClient(TextClient):
    async def _sent(self, request: dict[str, Any], count: int) -> EmbeddingResponse:
        answer = await self.wire.ask({"model": self.wire.endpoint.model, **request}, count)
        return answered(self.wire, answer, by_index(self.wire, answer, count))


class VllmClient(_PictureClient):
    """A picture is a chat message, one per request."""

    images_a_request = 1

    def __init__(self, endpoint: EmbeddingEndpoint, *, connections: int) -> None:
        super().__init__(Kind.VLLM, endpoint, connections=connections)

    async def embed_images(self, images: Sequence[bytes]) -> EmbeddingResponse:
        (image,) = images
        content = [
            {"type": "image_url", "image_url": {"url": as_data_url(image)}},
            {"type": "text", "text": TOKENS_PER_IMAGE},
        ]
        messages = [{"role": "user", "content": content}]
        return await self._sent({"messages": messages, "encoding_format": "float"}, 1)


class JinaClient(_PictureClient):
    """Texts and pictures are objects in one list."""

    images_a_request = JINA_IMAGES

    def __init__(self, endpoint: EmbeddingEndpoint, *, connections: int, task: bool = True) -> None:
        super().__init__(Kind.JINA, endpoint, connections=connections, task=task)

    async def embed_images(self, images: Sequence[bytes]) -> EmbeddingResponse:
        return await self._sent(
            {"input": [{"image": as_data_url(image)} for image in images]}, len(images)
        )
