"""The ``openai`` dialect: ``POST {base}/embeddings``.

The dialect of OpenAI, vLLM, TEI, Infinity, Ollama and of nomic-embed-multimodal-7b's contract.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from latent_core.domain.errors import IngestFailed
from latent_core.domain.vector import Matrix
from latent_core.embedding.unit import unit_rows
from latent_core.embedding.wire import Endpoint, Wire, tokens_told


class EmbeddingsClient:
    """Sends requests to one endpoint."""

    def __init__(self, endpoint: Endpoint, *, connections: int) -> None:
        self._wire = Wire(endpoint, "/embeddings", connections=connections)
        self.tokens_told = 0
        """By all answers together."""

    @property
    def name(self) -> str:
        return self._wire.name

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Matrix:  # noqa: ARG002 - the dialect does not tell them apart
        """Unit vectors of ``texts``, in order.

        ``RateLimited`` and ``Unavailable`` may pass; ``IngestFailed`` and ``Misconfigured`` will not.
        """
        request = {"model": self._wire.endpoint.model, "input": list(texts)}
        answer = await self._wire.ask(request, len(texts))
        rows = self._wire.rows(_vectors(answer, len(texts), self.name))
        self.tokens_told += tokens_told(answer)
        return unit_rows(rows, self.name)

    async def close(self) -> None:
        await self._wire.close()


def _vectors(answer: Any, texts: int, name: str) -> list[Any]:
    """The vectors of an answer in the order of the texts."""
    items = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise IngestFailed(
            f"{name} does not speak the openai dialect: its answer has no list 'data'"
        )
    if len(items) != texts:
        raise IngestFailed(f"{name} answered {len(items)} vectors for {texts} texts")
    order = [item.get("index", place) for place, item in enumerate(items)]
    whole = all(isinstance(index, int) for index in order)
    if not whole or sorted(order) != list(range(texts)):
        raise IngestFailed(f"{name} answered indices that are not 0 to {texts - 1}, each once")
    placed = dict(zip(order, items, strict=True))
    return [placed[index].get("embedding") for index in range(texts)]
