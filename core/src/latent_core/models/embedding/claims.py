"""Texts and pictures that this process embeds now, of all processes of an installation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Final

from latent_core.db.connection import Database
from latent_core.db.spaces import embedding_claims
from latent_core.db.spaces.embedding_claims import Claimant
from latent_core.domain.errors import LatentError
from latent_core.domain.ids import Sha256
from latent_core.runtime.tasks import ended

logger = logging.getLogger(__name__)

RENEWALS_PER_LAPSE: Final = 4


class EmbeddingClaims:
    """Belongs to one process and one space."""

    def __init__(self, db: Database, space: str, claimant: Claimant) -> None:
        self._db = db
        self._space = space
        self._claimant = claimant

    @asynccontextmanager
    async def held(
        self, hashes: Collection[Sha256], *, all_of_them: bool = False
    ) -> AsyncIterator[set[Sha256]]:
        """Those of ``hashes`` that no other process embeds, claimed until the block ends. Within it, the caller only
        embeds, and never waits for other claims, so processes cannot block each other in a circle. With ``all_of_them``, the others are given without a claim."""
        async with self._db.single() as conn:
            own = await embedding_claims.claim(conn, self._space, self._claimant, hashes)
        if not own:
            yield set(hashes) if all_of_them else own
            return
        renewals = asyncio.create_task(self._renew(own), name="embedding claims")
        try:
            yield set(hashes) if all_of_them else own
        finally:
            await ended(renewals)
            await self._release(own)

    async def _renew(self, own: Collection[Sha256]) -> None:
        while True:
            await asyncio.sleep(self._claimant.lapse_seconds / RENEWALS_PER_LAPSE)
            try:
                async with self._db.single() as conn:
                    await embedding_claims.renew(conn, self._space, self._claimant, own)
            except LatentError as exc:
                logger.warning("embedding_claims_not_renewed", extra={"cause": exc.message})

    async def _release(self, own: Collection[Sha256]) -> None:
        """What cannot be released lapses."""
        try:
            async with self._db.single() as conn:
                await embedding_claims.release(conn, self._space, self._claimant, own)
        except LatentError as exc:
            logger.warning("embedding_claims_not_released", extra={"cause": exc.message})
