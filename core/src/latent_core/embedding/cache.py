"""Embedding with a memory: SHA-256 of the text or picture and the space give the vector, if it was ever made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from latent_core.domain.ids import Sha256, content_hash
from latent_core.domain.vector import Matrix, Vector
from latent_core.embedding.batcher import Batcher, Checkpoint
from latent_core.embedding.picture import Picture, Piece, ReadPicture
from latent_core.embedding.port import Metered
from latent_core.registry import embeddings
from latent_core.registry.connection import Database

TEXTS_A_STEP: Final = 1024
"""Looked up together. What was embedded is kept batch by batch: a failure costs the batches under way."""
PICTURES_A_STEP: Final = 16
"""Held in memory, and kept together: a request a picture is slow and dear."""


class Embedded(NamedTuple):
    matrix: Matrix
    """One row a text, in order."""
    hits: int
    """Texts that the embedder was not asked for."""
    tokens: int = 0
    """Of those it was asked for, where they are counted: at a server."""


class CachedEmbedding:
    """Has made what is not known yet, and each text and picture once: texts by the batcher, pictures side by side."""

    def __init__(self, batcher: Batcher, db: Database, read_picture: ReadPicture) -> None:
        self._batcher = batcher
        self._db = db
        self._read = read_picture

    async def embed(
        self, pieces: Sequence[Piece], checkpoint: Checkpoint | None = None
    ) -> Embedded:
        """``checkpoint`` as for ``Batcher.embed``, and between steps."""
        rows = np.empty((len(pieces), self._batcher.embedder.model.dims), np.float32)
        hits = tokens = 0
        for start in range(0, len(pieces), TEXTS_A_STEP):
            if start and checkpoint:
                await checkpoint()
            step = slice(start, start + TEXTS_A_STEP)
            rows[step], known, spent = await self._step(pieces[step], checkpoint)
            hits += known
            tokens += spent
        return Embedded(rows, hits, tokens)

    async def _step(self, pieces: Sequence[Piece], checkpoint: Checkpoint | None) -> Embedded:
        hashes = [_hash(piece) for piece in pieces]
        distinct = dict(zip(hashes, pieces, strict=True))
        async with self._db.transaction() as conn:
            vectors = await embeddings.find(conn, self._space, list(distinct))
        missing = {hash_: piece for hash_, piece in distinct.items() if hash_ not in vectors}
        texts = {hash_: piece for hash_, piece in missing.items() if isinstance(piece, str)}
        pictures = [piece.sha256 for piece in missing.values() if isinstance(piece, Picture)]
        if texts:
            wanted = list(texts)

            async def keep(indices: Sequence[int], rows: Matrix) -> None:
                await self._kept([wanted[index] for index in indices], rows)

            made = await self._batcher.embed(list(texts.values()), checkpoint, keep)
            vectors.update(zip(wanted, made, strict=True))
        for start in range(0, len(pictures), PICTURES_A_STEP):
            if checkpoint:
                await checkpoint()
            some = pictures[start : start + PICTURES_A_STEP]
            images = [await self._read(sha256) for sha256 in some]
            vectors.update(
                await self._kept(some, await self._batcher.embedder.embed_images(images))
            )
        matrix = np.stack([vectors[hash_] for hash_ in hashes])
        tokens = self._tokens(list(texts.values()), len(pictures))
        return Embedded(matrix, len(pieces) - len(missing), tokens)

    @property
    def _space(self) -> str:
        return self._batcher.embedder.model.key

    def _tokens(self, texts: Sequence[str], images: int) -> int:
        embedder = self._batcher.embedder
        return embedder.tokens_of(texts, images) if isinstance(embedder, Metered) else 0

    async def _kept(self, hashes: Sequence[Sha256], made: Matrix) -> dict[Sha256, Vector]:
        async with self._db.transaction() as conn:
            await embeddings.insert(conn, self._space, hashes, made)
        return dict(zip(hashes, made, strict=True))


def _hash(piece: Piece) -> Sha256:
    """No text is a picture, byte by byte: their hashes are never the same."""
    return piece.sha256 if isinstance(piece, Picture) else content_hash(piece)
