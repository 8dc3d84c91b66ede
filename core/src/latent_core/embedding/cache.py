"""Embedding with a memory: SHA-256 of the text and the space give the vector, if it was ever made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from latent_core.domain.ids import Sha256, content_hash
from latent_core.domain.vector import Matrix
from latent_core.embedding.batcher import Batcher, Checkpoint
from latent_core.embedding.port import Metered
from latent_core.registry import embeddings
from latent_core.registry.connection import Database

TEXTS_A_STEP: Final = 1024
"""Looked up together. What was embedded is kept batch by batch: a failure costs the batches under way."""


class Embedded(NamedTuple):
    matrix: Matrix
    """One row a text, in order."""
    hits: int
    """Texts that the embedder was not asked for."""
    tokens: int = 0
    """Of those it was asked for, where they are counted: at a server."""


class CachedEmbedding:
    """Sends to the batcher what is not known yet, and each text once."""

    def __init__(self, batcher: Batcher, db: Database) -> None:
        self._batcher = batcher
        self._db = db

    async def embed(self, texts: Sequence[str], checkpoint: Checkpoint | None = None) -> Embedded:
        """``checkpoint`` as for ``Batcher.embed``, and between steps."""
        rows = np.empty((len(texts), self._batcher.embedder.model.dims), np.float32)
        hits = tokens = 0
        for start in range(0, len(texts), TEXTS_A_STEP):
            if start and checkpoint:
                await checkpoint()
            step = slice(start, start + TEXTS_A_STEP)
            rows[step], known, spent = await self._step(texts[step], checkpoint)
            hits += known
            tokens += spent
        return Embedded(rows, hits, tokens)

    async def _step(self, texts: Sequence[str], checkpoint: Checkpoint | None) -> Embedded:
        space = self._batcher.embedder.model.key
        hashes = [content_hash(text) for text in texts]
        distinct = dict(zip(hashes, texts, strict=True))
        async with self._db.transaction() as conn:
            vectors = await embeddings.find(conn, space, list(distinct))
        missing = [hash_ for hash_ in distinct if hash_ not in vectors]
        asked = [distinct[hash_] for hash_ in missing]
        if missing:

            async def keep(indices: Sequence[int], rows: Matrix) -> None:
                await self._keep(space, [missing[index] for index in indices], rows)

            made = await self._batcher.embed(asked, checkpoint, keep)
            vectors.update(zip(missing, made, strict=True))
        matrix = np.stack([vectors[hash_] for hash_ in hashes])
        return Embedded(matrix, len(texts) - len(missing), self._tokens(asked))

    def _tokens(self, asked: Sequence[str]) -> int:
        embedder = self._batcher.embedder
        return embedder.tokens_of(asked) if isinstance(embedder, Metered) else 0

    async def _keep(self, space: str, hashes: Sequence[Sha256], made: Matrix) -> None:
        async with self._db.transaction() as conn:
            await embeddings.insert(conn, space, hashes, made)
