"""Embedding with a cache: the key is the SHA-256 of the text or picture and the embedding space."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Final, NamedTuple

import numpy as np

from latent_core.db.connection import Database
from latent_core.db.spaces import embedding_cache
from latent_core.db.spaces.embedding_claims import Claimant
from latent_core.domain.errors import LatentError
from latent_core.domain.findings import RefusedInputs
from latent_core.domain.ids import Sha256
from latent_core.domain.vector_types import Matrix, Vector
from latent_core.models.embedding.batcher import Batcher, Checkpoint, RefusedTexts
from latent_core.models.embedding.claims import EmbeddingClaims
from latent_core.models.embedding.in_flight import InFlight
from latent_core.models.embedding.picture import Piece, ReadPicture, StoredImage, hash_of
from latent_core.models.embedding.port import IdentityAware, TokenMetered, images_a_request
from latent_core.runtime.tasks import all_or_first_failure

TEXTS_PER_STEP: Final = 1024
"""Looked up together. Vectors are stored batch by batch: a failure loses only the batches in flight."""
FIRST_PAUSE: Final = 0.1
"""Before vectors that another process makes are looked up again; doubled each time, up to …"""
LONGEST_PAUSE: Final = 2.0
MAX_WAIT_SECONDS: Final = 900.0
"""After this time, vectors of another process are made here, too: it is slow or stuck."""
PICTURES_AT_ONCE: Final = 16
"""Held in memory. Each answer is stored at once: requests with pictures are slow and expensive."""


class EmbeddingBatch(NamedTuple):
    matrix: Matrix
    """One row per text or picture, in order; zeros for a skipped one."""
    hits: int
    """Texts and pictures found in the cache."""
    tokens: int = 0
    """Tokens of the others, if the embedder counts them (a server does)."""


class _MadeVectors(NamedTuple):
    vectors: dict[Sha256, Vector]
    """Without those of skipped pictures."""
    requested: int
    """Texts and pictures that this process embedded."""
    tokens: int


class CachedEmbedding:
    """Embeds each text and picture that is not cached once, also if several processes need it at the same time: texts
    through the batcher, pictures concurrently."""

    def __init__(
        self,
        batcher: Batcher,
        db: Database,
        read_picture: ReadPicture,
        claimant: Claimant | None = None,
    ) -> None:
        """``claimant`` is this process: by default another one each time."""
        self._batcher = batcher
        self._db = db
        self._read = read_picture
        self._in_flight = InFlight()
        self._claims = EmbeddingClaims(db, batcher.embedder.model.key, claimant or Claimant())

    async def embed(
        self,
        pieces: Sequence[Piece],
        checkpoint: Checkpoint | None = None,
        refused_inputs: RefusedInputs | None = None,
    ) -> EmbeddingBatch:
        """``checkpoint`` as for ``Batcher.embed``, also between steps and before pictures are sent. ``refused_inputs``
        counts embedded pictures and collects failed ones, and refused texts; without it each of them ends the call.
        Cached vectors are of the same model as new ones: ``OtherModel`` if the embedder has another one now."""
        embedder = self._batcher.embedder
        if isinstance(embedder, IdentityAware):
            await embedder.refuse_other_model()
        rows = np.empty((len(pieces), self._batcher.embedder.model.dims), np.float32)
        hits = tokens = 0
        for start in range(0, len(pieces), TEXTS_PER_STEP):
            if start and checkpoint:
                await checkpoint()
            step = slice(start, start + TEXTS_PER_STEP)
            rows[step], known, spent = await self._step(pieces[step], checkpoint, refused_inputs)
            hits += known
            tokens += spent
        return EmbeddingBatch(rows, hits, tokens)

    async def _step(
        self,
        pieces: Sequence[Piece],
        checkpoint: Checkpoint | None,
        refused_inputs: RefusedInputs | None,
    ) -> EmbeddingBatch:
        """Texts that a concurrent call embeds are not requested again: they count as hits."""
        hashes = [hash_of(piece) for piece in pieces]
        distinct = dict(zip(hashes, pieces, strict=True))
        vectors: dict[Sha256, Vector] = {}
        hits = tokens = 0
        left = distinct
        while left:
            async with self._in_flight.claimed(left) as claim:
                made = await self._made(claim.own, checkpoint, refused_inputs)
                claim.resolve(made.vectors)
            vectors |= made.vectors
            hits += sum(piece_hash in claim.own for piece_hash in hashes) - made.requested
            tokens += made.tokens
            others = await self._in_flight.wait(claim.others, checkpoint)
            hits += sum(piece_hash in others for piece_hash in hashes)
            vectors |= others
            # Those of a call that failed: this one embeds them itself.
            left = {hash_: left[hash_] for hash_ in claim.others if hash_ not in others}
        none = np.zeros(self._batcher.embedder.model.dims, np.float32)
        matrix = np.stack([vectors.get(hash_, none) for hash_ in hashes])
        return EmbeddingBatch(matrix, hits, tokens)

    async def _made(
        self,
        distinct: Mapping[Sha256, Piece],
        checkpoint: Checkpoint | None,
        refused_inputs: RefusedInputs | None,
    ) -> _MadeVectors:
        vectors = await self._found(distinct, refused_inputs)
        missing = {hash_: piece for hash_, piece in distinct.items() if hash_ not in vectors}
        requested = tokens = 0
        pause, until = FIRST_PAUSE, monotonic() + MAX_WAIT_SECONDS
        while missing:
            async with self._claims.held(missing, all_of_them=monotonic() > until) as own:
                # What others stored before they released it, too.
                found = await self._found(missing, refused_inputs)
                mine = {h: piece for h, piece in missing.items() if h in own and h not in found}
                made = await self._requested(mine, checkpoint, refused_inputs)
            vectors |= found | made.vectors
            requested += made.requested
            tokens += made.tokens
            # The rest is embedded by other processes now.
            missing = {h: p for h, p in missing.items() if h not in found and h not in own}
            if missing:
                await asyncio.sleep(pause)
                if checkpoint:
                    await checkpoint()
                pause = FIRST_PAUSE if own or found else min(2 * pause, LONGEST_PAUSE)
        return _MadeVectors(vectors, requested, tokens)

    async def _found(
        self, distinct: Mapping[Sha256, Piece], refused_inputs: RefusedInputs | None
    ) -> dict[Sha256, Vector]:
        """The vectors that are stored."""
        async with self._db.reading() as conn:
            vectors = await embedding_cache.find(conn, self._space, list(distinct))
        if refused_inputs is not None:
            refused_inputs.take(sum(isinstance(distinct[hash_], StoredImage) for hash_ in vectors))
        return vectors

    async def _requested(
        self,
        distinct: Mapping[Sha256, Piece],
        checkpoint: Checkpoint | None,
        refused_inputs: RefusedInputs | None,
    ) -> _MadeVectors:
        """Embed all of them, and store their vectors."""
        vectors: dict[Sha256, Vector] = {}
        texts = {hash_: piece for hash_, piece in distinct.items() if isinstance(piece, str)}
        pictures = [piece for piece in distinct.values() if isinstance(piece, StoredImage)]
        if texts:
            texts_by_hash = list(texts)

            async def keep(indices: Sequence[int], rows: Matrix) -> None:
                await self._kept([texts_by_hash[index] for index in indices], rows)

            refused: RefusedTexts | None = None if refused_inputs is None else {}
            made = await self._batcher.embed(list(texts.values()), checkpoint, keep, refused)
            for index, hash_ in enumerate(texts_by_hash):
                if not refused or index not in refused:
                    vectors[hash_] = made[index]
                elif refused_inputs is not None:
                    refused_inputs.add_text(hash_, refused[index])
        seen = await self._pictures(pictures, checkpoint, refused_inputs)
        vectors |= seen
        tokens = self._tokens(list(texts.values()), len(seen))
        return _MadeVectors(vectors, len(distinct), tokens)

    async def _pictures(
        self,
        pictures: Sequence[StoredImage],
        checkpoint: Checkpoint | None,
        refused_inputs: RefusedInputs | None,
    ) -> dict[Sha256, Vector]:
        """Vectors of the pictures, without skipped ones; some requests run concurrently."""
        batch_size = images_a_request(self._batcher.embedder)
        waiting = deque(
            pictures[at : at + batch_size] for at in range(0, len(pictures), batch_size)
        )
        seen: dict[Sha256, Vector] = {}

        async def work() -> None:
            while waiting:
                some = waiting.popleft()
                if checkpoint:
                    await checkpoint()
                seen.update(await self._seen(some, refused_inputs))

        await all_or_first_failure(
            [work() for _ in range(min(len(waiting), max(1, PICTURES_AT_ONCE // batch_size)))]
        )
        return seen

    async def _seen(
        self, pictures: Sequence[StoredImage], refused_inputs: RefusedInputs | None
    ) -> dict[Sha256, Vector]:
        """The vectors of one request, stored. A refused request is sent again picture by picture to find the cause."""
        images: dict[Sha256, bytes] = {}
        try:
            for picture in pictures:
                images[picture.sha256] = await self._read(picture)
            rows = await self._batcher.embedder.embed_images(list(images.values()))
        except LatentError as error:
            if refused_inputs is None or not refused_inputs.concerns(error):
                raise
            if len(pictures) == 1:
                refused_inputs.add(pictures[0].sha256, error)
                return {}
        else:
            if refused_inputs is not None:
                refused_inputs.take(len(images))
            return await self._kept(list(images), rows)
        images.clear()
        seen: dict[Sha256, Vector] = {}
        for picture in pictures:
            seen |= await self._seen([picture], refused_inputs)
        return seen

    @property
    def _space(self) -> str:
        return self._batcher.embedder.model.key

    def _tokens(self, texts: Sequence[str], images: int) -> int:
        embedder = self._batcher.embedder
        return embedder.tokens_of(texts, images) if isinstance(embedder, TokenMetered) else 0

    async def _kept(self, hashes: Sequence[Sha256], made: Matrix) -> dict[Sha256, Vector]:
        async with self._db.single() as conn:
            await embedding_cache.insert(conn, self._space, hashes, made)
        return dict(zip(hashes, made, strict=True))
