"""Pictures at Nomic's own API: ``POST {base}/v1/embedding/image``.

A vision model shares the space of the text model of the same version: ``nomic-embed-vision-v1.5`` sends its texts to
``nomic-embed-text-v1.5``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from typing_extensions import override

from latent_core.domain.manifest.model import VISION
from latent_core.models.embedding.api.dialects import TextClient, plain
from latent_core.models.embedding.api.wire import (
    EmbeddingEndpoint,
    EmbeddingResponse,
    EmbeddingWire,
    answered,
)
from latent_core.models.embedding.picture import media_type
from latent_core.models.providers.entry import Kind

IMAGES: Final = 8
_VECTORS: Final = plain("Nomic's dialect", "embeddings")


class NomicVisionClient(TextClient):
    """Sends pictures to a vision model, and texts to its text model."""

    images_a_request = IMAGES

    def __init__(self, endpoint: EmbeddingEndpoint, *, connections: int) -> None:
        twin = replace(endpoint, model=endpoint.model.replace(VISION, "-text-"))
        super().__init__(Kind.NOMIC, twin, connections=connections)
        self._images = EmbeddingWire(
            endpoint, "/v1/embedding/image", connections=connections, own_api=True
        )

    @property
    @override
    def name(self) -> str:
        return self._images.name

    async def embed_images(self, images: Sequence[bytes]) -> EmbeddingResponse:
        files = [
            ("images", (f"{place}.{kind.rpartition('/')[2]}", image, kind))
            for place, image in enumerate(images)
            for kind in (media_type(image),)
        ]
        answer = await self._images.ask_form(
            {"model": self._images.endpoint.model}, files, len(images)
        )
        return answered(self._images, answer, _VECTORS(self._images, answer, len(images)))

    @override
    async def close(self) -> None:
        await super().close()
        await self._images.close()
