"""Embeds documents, both texts and images: one cache and one batcher per model, shared by all jobs of the worker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

import numpy as np

from latent_core.db import embed_usage
from latent_core.db.connection import Database
from latent_core.db.containers import Space
from latent_core.db.embed_usage import EmbedUsage
from latent_core.db.spaces.embedding_claims import Claimant
from latent_core.domain.findings import RefusedInputs
from latent_core.domain.ids import JobId, Sha256
from latent_core.domain.vector_types import Matrix
from latent_core.ingest.stage import Checkpoint
from latent_core.models.embedding.batcher import Batcher
from latent_core.models.embedding.cache import CachedEmbedding
from latent_core.models.embedding.picture import Piece, ReadPicture, StoredImage, pieces
from latent_core.models.embedding.port import Embedder, TroubleAware
from latent_core.stack import Stack
from latent_core.telemetry.metrics import Metrics
from latent_workers.chunk.counting import WordCounter

A_MILLION: Final = 1_000_000
MAX_WARNED: Final = 1000
TEXTS_PER_STEP: Final = 256
"""Texts of one job between two lease checks and progress updates."""


def picture_reader(stack: Stack) -> ReadPicture:
    """Reads pictures from the bucket of their container."""

    async def read(picture: StoredImage) -> bytes:
        return await (await stack.blobs_of(picture.container_id)).get(picture.sha256)

    return read


class SpaceEmbedders(Protocol):
    async def opened(self, space: Space) -> Embedder: ...

    def for_space(self, space: Space) -> Embedder:
        """Blocking, until ``opened`` has returned once."""
        ...


class DocumentEmbedding:
    """Vectors of texts and images. What has been embedded before, in any container, is not embedded again."""

    def __init__(
        self,
        embedders: SpaceEmbedders,
        db: Database,
        metrics: Metrics,
        read_picture: ReadPicture,
        *,
        claimant: Claimant | None = None,
        price_of: Callable[[str], float] = lambda _: 0.0,
    ) -> None:
        """``claimant`` is this worker. ``price_of`` returns the price of a million tokens of an embedder."""
        self._embedders = embedders
        self._db = db
        self._metrics = metrics
        self._read_picture = read_picture
        self._claimant = claimant or Claimant()
        self._price_of = price_of
        self._cached: dict[str, CachedEmbedding] = {}
        self._counters: dict[str, WordCounter] = {}
        self._batchers: list[Batcher] = []
        self._warned: set[JobId] = set()
        """Jobs that have the warning about their embedder."""

    async def close(self) -> None:
        """Close the batchers when no job uses them any more; the stack owns the embedders."""
        for batcher in self._batchers:
            await batcher.close()

    def new_trouble(self, space: Space, job_id: JobId) -> str | None:
        """What is wrong with all vectors of the embedder's server; once per job, None if nothing is known to be."""
        embedder = self._embedders.for_space(space)
        trouble = embedder.trouble if isinstance(embedder, TroubleAware) else None
        if trouble is None or job_id in self._warned:
            return None
        if len(self._warned) >= MAX_WARNED:
            self._warned.clear()
        self._warned.add(job_id)
        return trouble

    def counter(self, space: Space) -> WordCounter:
        """Counts tokens as the space's embedder does; kept, because it caches words. Blocking until it was opened."""
        embedder = self._embedders.for_space(space)
        key = embedder.model.key
        if key not in self._counters:
            self._counters[key] = WordCounter(embedder.tokenizer)
        return self._counters[key]

    def window(self, space: Space) -> int:
        """Tokens per text of the space's embedder. Blocking until it was opened."""
        return self._embedders.for_space(space).model.window

    def pieces(self, space: Space, text: str, picture: str | None) -> list[Piece]:
        """The inputs of the space's embedder for a chunk; ``picture`` is the hash of its page image. Blocking."""
        model = self._embedders.for_space(space).model
        image = None if picture is None else StoredImage(Sha256(picture), space.container_id)
        return pieces(text, image, self.counter(space), model)

    async def embed(
        self,
        space: Space,
        texts: Sequence[Piece],
        checkpoint: Checkpoint,
        on_progress: Callable[[int], Awaitable[None]],
        *,
        job_id: JobId | None = None,
        refused_inputs: RefusedInputs | None = None,
    ) -> Matrix:
        """One row per text or image. ``on_progress`` gets the number of finished rows. Requests to a server are
        counted for ``job_id``.

        With ``refused_inputs``, an image or a text that the embedder refuses gets a row of zeros, which must not be
        stored.
        """
        cached = await self._for(space)
        parts: list[Matrix] = []
        for start in range(0, len(texts), TEXTS_PER_STEP):
            await checkpoint()
            step = texts[start : start + TEXTS_PER_STEP]
            vectors, hits, tokens = await cached.embed(step, checkpoint, refused_inputs)
            self._metrics.cached_texts.labels(space.embedder).inc(hits)
            self._metrics.embedded_texts.labels(space.embedder).inc(len(step) - hits)
            spent = tokens or self._counted(space, step, len(step) - hits)
            self._metrics.embedded_tokens.labels(space.embedder).inc(spent)
            if tokens and job_id is not None:
                await self._note(space, job_id, len(step) - hits, tokens)
            parts.append(vectors)
            await on_progress(start + len(step))
        return np.concatenate(parts) if parts else np.empty((0, space.dims), dtype=np.float32)

    def _counted(self, space: Space, given: Sequence[Piece], requested_count: int) -> float:
        """Tokens of those texts of a step that a local model had to embed; the share of new ones if some were
        cached."""
        texts = [piece for piece in given if isinstance(piece, str)]
        return (
            sum(self.counter(space).count(texts)) * requested_count / len(given)
            if requested_count
            else 0
        )

    async def _note(self, space: Space, job_id: JobId, texts: int, tokens: int) -> None:
        """Counted whatever the outcome of the job: the requests are paid for."""
        usage = EmbedUsage(texts, tokens, tokens / A_MILLION * self._price_of(space.embedder))
        async with self._db.single() as conn:
            await embed_usage.add(
                conn,
                job_id=job_id,
                container_id=space.container_id,
                embedder=space.embedder,
                usage=usage,
            )

    async def _for(self, space: Space) -> CachedEmbedding:
        embedder = await self._embedders.opened(space)
        key = embedder.model.key
        if key not in self._cached:
            self._batchers.append(Batcher(embedder))
            self._cached[key] = CachedEmbedding(
                self._batchers[-1], self._db, self._read_picture, self._claimant
            )
        return self._cached[key]
