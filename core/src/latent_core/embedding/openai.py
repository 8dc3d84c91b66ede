"""``openai/<model>``: an embedder over HTTP, with its limits kept and its trouble waited out."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from latent_core.domain.errors import RateLimited, Unavailable
from latent_core.domain.vector import Matrix, Vector
from latent_core.embedding.openai_wire import EmbeddingsClient, Endpoint
from latent_core.embedding.pieces import PieceTokenizer
from latent_core.embedding.port import EmbeddingModel
from latent_core.embedding.rate import TextRate
from latent_core.embedding.together import all_or_first_failure

QUERY_CONNECTIONS: Final = 4


@dataclass(frozen=True, slots=True)
class Patience:
    """How large requests are, and how long trouble is waited out. Seconds."""

    texts: int = 64
    characters: int = 400_000
    """Of one request, unless one text alone is longer."""
    requests: int = 4
    """Under way at a time, for documents."""
    attempts: int = 5
    first_wait: float = 0.5
    longest_wait: float = 30.0
    """Longer than this the queue waits, not we."""
    turn: float = 600.0
    """For documents to come within the rate limit …"""
    query_turn: float = 10.0
    """… and for a query."""


class OpenAiEmbedder:
    """Implements ``Embedder``. Its tokenizer is a stand-in: see ``pieces.py``."""

    def __init__(
        self,
        model: EmbeddingModel,
        endpoint: Endpoint,
        rate: TextRate,
        *,
        patience: Patience = Patience(),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """``rate`` is shared by all who use the same key; ``jitter(a, b)`` answers a number between them."""
        self._model = model
        self._rate = rate
        self._patience = patience
        self._sleep = sleep
        self._jitter = jitter
        self._client = EmbeddingsClient(endpoint, connections=patience.requests + QUERY_CONNECTIONS)
        self._tokenizer = PieceTokenizer()
        self._free = asyncio.Semaphore(patience.requests)

    @property
    def model(self) -> EmbeddingModel:
        return self._model

    @property
    def tokenizer(self) -> PieceTokenizer:
        return self._tokenizer

    async def embed_query(self, text: str) -> Vector:
        rows = await self._persist([text], urgent=True)
        vector: Vector = rows[0]
        return vector

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        rows = np.empty((len(texts), self._model.dims), np.float32)

        async def one(part: slice) -> None:
            async with self._free:
                rows[part] = await self._persist(texts[part], urgent=False)

        await all_or_first_failure([one(part) for part in self._parts(texts)])
        return rows

    def _parts(self, texts: Sequence[str]) -> Iterator[slice]:
        """Requests: none over the limits, unless one text alone is."""
        most = min(self._patience.texts, self._rate.burst)
        start, characters = 0, 0
        for index, text in enumerate(texts):
            full = index - start == most or characters + len(text) > self._patience.characters
            if full and index > start:
                yield slice(start, index)
                start, characters = index, 0
            characters += len(text)
        if start < len(texts):
            yield slice(start, len(texts))

    async def _persist(self, texts: Sequence[str], *, urgent: bool) -> Matrix:
        """Send a request until it succeeds, fails for good, or patience ends."""
        within = self._patience.query_turn if urgent else self._patience.turn
        for attempt in range(1, self._patience.attempts):
            await self._rate.take(len(texts), urgent=urgent, within=within)
            try:
                return await self._client.embed(texts)
            except RateLimited as exc:
                seconds = self._backoff(attempt, exc.details.get("retry_after"))
                if seconds > self._patience.longest_wait:
                    raise
                self._rate.pause(seconds)
            except Unavailable:
                await self._sleep(self._backoff(attempt, None))
        await self._rate.take(len(texts), urgent=urgent, within=within)
        return await self._client.embed(texts)

    def _backoff(self, attempt: int, asked: float | None) -> float:
        """Full jitter, or what the server asks for and a little more, so that not all come back at once."""
        ceiling = min(self._patience.longest_wait, self._patience.first_wait * 2 ** (attempt - 1))
        if asked is None:
            return self._jitter(0.0, ceiling)
        return asked + self._jitter(0.0, min(1.0, asked * 0.1))

    async def close(self) -> None:
        await self._client.close()
