"""Nomic's own API: ``POST {base}/v1/embedding/text``. It adds the prefixes of a task itself, and is told which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from latent_core.domain.errors import IngestFailed
from latent_core.domain.vector import Matrix
from latent_core.embedding.unit import unit_rows
from latent_core.embedding.wire import Endpoint, Wire, tokens_told

DOCUMENT: Final = "search_document"
QUERY: Final = "search_query"


class NomicClient:
    """Sends texts to one endpoint."""

    def __init__(self, endpoint: Endpoint, *, connections: int) -> None:
        self._wire = Wire(endpoint, "/v1/embedding/text", connections=connections)
        self.tokens_told = 0
        """By all answers together."""

    @property
    def name(self) -> str:
        return self._wire.name

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Matrix:
        """Unit vectors of ``texts``, in order; errors as ``Wire.ask`` has them."""
        request = {
            "texts": list(texts),
            "model": self._wire.endpoint.model,
            "task_type": QUERY if query else DOCUMENT,
            "dimensionality": self._wire.endpoint.dims,
            # A chunk is made to fit the window: what does not is not to become a blurred mean.
            "long_text_mode": "truncate",
        }
        answer = await self._wire.ask(request, len(texts))
        rows = self._wire.rows(_vectors(answer, len(texts), self.name))
        self.tokens_told += tokens_told(answer)
        return unit_rows(rows, self.name)

    async def close(self) -> None:
        await self._wire.close()


def _vectors(answer: Any, texts: int, name: str) -> list[Any]:
    vectors = answer.get("embeddings") if isinstance(answer, dict) else None
    if not isinstance(vectors, list):
        raise IngestFailed(
            f"{name} does not speak Nomic's dialect: its answer has no list 'embeddings'"
        )
    if len(vectors) != texts:
        raise IngestFailed(f"{name} answered {len(vectors)} vectors for {texts} texts")
    return vectors
