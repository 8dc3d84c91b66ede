"""Embed documents, their texts and pictures: one cache and one micro-batcher for each model, shared by all jobs of the worker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

import numpy as np

from latent_core.domain.ids import JobId
from latent_core.domain.left_out import LeftOut
from latent_core.domain.vector import Matrix
from latent_core.embedding.batcher import Batcher
from latent_core.embedding.cache import CachedEmbedding
from latent_core.embedding.picture import Piece, ReadPicture, pieces
from latent_core.embedding.port import Embedder
from latent_core.ingest.stage import Checkpoint
from latent_core.observability import Metrics
from latent_core.registry import embed_usage
from latent_core.registry.connection import Database
from latent_core.registry.containers import Space
from latent_core.registry.embed_usage import Usage
from latent_workers.chunk.counting import WordCounter

A_MILLION: Final = 1_000_000
TEXTS_A_STEP: Final = 256
"""Texts of one job between two looks at its lease and two notes of its progress."""


class Embedders(Protocol):
    def for_space(self, space: Space) -> Embedder: ...


class DocumentEmbedding:
    """Vectors of what documents say and show; what was embedded before, in whatever container, is not embedded again."""

    def __init__(
        self,
        embedders: Embedders,
        db: Database,
        metrics: Metrics,
        read_picture: ReadPicture,
        *,
        price_per_million: float = 0.0,
    ) -> None:
        """``price_per_million`` tokens of the remote embedder."""
        self._embedders = embedders
        self._db = db
        self._metrics = metrics
        self._read_picture = read_picture
        self._price = price_per_million
        self._cached: dict[str, CachedEmbedding] = {}
        self._counters: dict[str, WordCounter] = {}
        self._batchers: list[Batcher] = []

    async def close(self) -> None:
        """End the batchers, when no job uses them any more; the embedders belong to the stack."""
        for batcher in self._batchers:
            await batcher.close()

    def counter(self, space: Space) -> WordCounter:
        """Counts tokens as the space's embedder does; kept, since it remembers words."""
        embedder = self._embedders.for_space(space)
        key = embedder.model.key
        if key not in self._counters:
            self._counters[key] = WordCounter(embedder.tokenizer)
        return self._counters[key]

    def pieces(self, space: Space, text: str, picture: str | None) -> list[Piece]:
        """What the space's embedder is sent of a chunk. Blocking."""
        model = self._embedders.for_space(space).model
        return pieces(text, picture, self.counter(space), model)

    async def embed(
        self,
        space: Space,
        texts: Sequence[Piece],
        checkpoint: Checkpoint,
        told: Callable[[int], Awaitable[None]],
        *,
        job_id: JobId | None = None,
        left_out: LeftOut | None = None,
    ) -> Matrix:
        """One row a text or picture. ``told`` hears how many are done; what a server is sent is counted for ``job_id``.

        With ``left_out`` a picture that cannot be embedded has a row of zeros, which nobody may store.
        """
        cached = self._for(space)
        parts: list[Matrix] = []
        for start in range(0, len(texts), TEXTS_A_STEP):
            await checkpoint()
            step = texts[start : start + TEXTS_A_STEP]
            vectors, hits, tokens = await cached.embed(step, checkpoint, left_out)
            self._metrics.cached_texts.labels(space.embedder).inc(hits)
            self._metrics.embedded_texts.labels(space.embedder).inc(len(step) - hits)
            spent = tokens or self._counted(space, step, len(step) - hits)
            self._metrics.embedded_tokens.labels(space.embedder).inc(spent)
            if tokens and job_id is not None:
                await self._note(space, job_id, len(step) - hits, tokens)
            parts.append(vectors)
            await told(start + len(step))
        return np.concatenate(parts) if parts else np.empty((0, space.dims), dtype=np.float32)

    def _counted(self, space: Space, given: Sequence[Piece], asked: int) -> float:
        """Tokens of those texts of a step that a local model was asked for; their share, where some were known."""
        texts = [piece for piece in given if isinstance(piece, str)]
        return sum(self.counter(space).count(texts)) * asked / len(given) if asked else 0

    async def _note(self, space: Space, job_id: JobId, texts: int, tokens: int) -> None:
        """Whatever becomes of the job: it is paid for."""
        usage = Usage(texts, tokens, tokens / A_MILLION * self._price)
        async with self._db.single() as conn:
            await embed_usage.add(
                conn,
                job_id=job_id,
                container_id=space.container_id,
                embedder=space.embedder,
                usage=usage,
            )

    def _for(self, space: Space) -> CachedEmbedding:
        embedder = self._embedders.for_space(space)
        key = embedder.model.key
        if key not in self._cached:
            self._batchers.append(Batcher(embedder))
            self._cached[key] = CachedEmbedding(self._batchers[-1], self._db, self._read_picture)
        return self._cached[key]
