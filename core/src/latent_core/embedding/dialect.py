"""What clients of embedders over HTTP have in common, whatever their dialect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from latent_core.domain.errors import IngestFailed
from latent_core.domain.vector import Matrix
from latent_core.embedding.unit import unit_rows
from latent_core.embedding.wire import Wire, tokens_told


class Answer(NamedTuple):
    rows: Matrix
    """Unit vectors, in the order of what was sent."""
    tokens: int
    """What the server says it cost; 0 when it says nothing."""


class Client(Protocol):
    """One dialect at one endpoint. ``RateLimited`` and ``Unavailable`` may pass; ``IngestFailed`` and
    ``Invalid`` will not."""

    @property
    def name(self) -> str: ...

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Answer: ...

    async def close(self) -> None: ...


class ImageClient(Client, Protocol):
    """A dialect that takes pictures, too."""

    images_a_request: int

    async def embed_images(self, images: Sequence[bytes]) -> Answer: ...


def answered(wire: Wire, answer: Any, vectors: Sequence[Any]) -> Answer:
    """``vectors`` of an answer, of the width that the manifest says and of unit length."""
    return Answer(unit_rows(wire.rows(vectors), wire.name), tokens_told(answer))


def listed(wire: Wire, answer: Any, key: str, asked: int, dialect: str) -> list[Any]:
    """The list that stands under ``key``, an item for each that was asked for."""
    items = answer.get(key) if isinstance(answer, dict) else None
    if not isinstance(items, list):
        raise IngestFailed(f"{wire.name} does not speak {dialect}: its answer has no list '{key}'")
    if len(items) != asked:
        raise IngestFailed(f"{wire.name} answered {len(items)} vectors for {asked} texts")
    return items
