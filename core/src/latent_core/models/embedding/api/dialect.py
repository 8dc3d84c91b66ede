"""What clients of embedders over HTTP have in common, whatever their dialect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from latent_core.domain.errors import IngestFailed
from latent_core.domain.vector import Matrix
from latent_core.models.embedding.api.wire import EmbeddingWire, reported_tokens
from latent_core.models.embedding.normalise import unit_rows


class EmbeddingResponse(NamedTuple):
    rows: Matrix
    """Unit vectors, in the order of what was sent."""
    tokens: int
    """What the server says it cost; 0 when it says nothing."""


class DialectClient(Protocol):
    """One dialect at one endpoint. ``RateLimited`` and ``Unavailable`` may pass; ``IngestFailed`` and
    ``Invalid`` will not."""

    @property
    def name(self) -> str: ...

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> EmbeddingResponse: ...

    async def close(self) -> None: ...


class ImageClient(DialectClient, Protocol):
    """A dialect that takes pictures, too."""

    images_a_request: int

    async def embed_images(self, images: Sequence[bytes]) -> EmbeddingResponse: ...


def answered(wire: EmbeddingWire, answer: Any, vectors: Sequence[Any]) -> EmbeddingResponse:
    """``vectors`` of an answer, of the width that the manifest says and of unit length."""
    return EmbeddingResponse(unit_rows(wire.rows(vectors), wire.name), reported_tokens(answer))


def listed(wire: EmbeddingWire, answer: Any, key: str, expected: int, dialect: str) -> list[Any]:
    """The list that stands under ``key``, an item for each that was asked for."""
    items = answer.get(key) if isinstance(answer, dict) else None
    if not isinstance(items, list):
        raise IngestFailed(f"{wire.name} does not speak {dialect}: its answer has no list '{key}'")
    if len(items) != expected:
        raise IngestFailed(f"{wire.name} answered {len(items)} vectors for {expected} texts")
    return items
