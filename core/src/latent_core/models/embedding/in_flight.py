"""Vectors that are being made: concurrent calls for the same text request it once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from latent_core.domain.ids import Sha256
from latent_core.domain.vector_types import Vector

P = TypeVar("P")
SECONDS_BETWEEN_CHECKS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Claim(Generic[P]):
    """What one call makes itself, and what others make."""

    own: dict[Sha256, P]
    others: dict[Sha256, asyncio.Future[Vector]]
    promises: dict[Sha256, asyncio.Future[Vector]]

    def resolve(self, vectors: Mapping[Sha256, Vector]) -> None:
        for hash_, promise in self.promises.items():
            if hash_ in vectors and not promise.done():
                promise.set_result(vectors[hash_])


class InFlight:
    """Belongs to one event loop. A call first makes what it has claimed and then waits, so calls cannot block each
    other in a circle."""

    def __init__(self) -> None:
        self._promises: dict[Sha256, asyncio.Future[Vector]] = {}

    @asynccontextmanager
    async def claimed(self, pieces: Mapping[Sha256, P]) -> AsyncIterator[Claim[P]]:
        """Claim those that no other call makes. At the end, waiting calls get what was resolved and make the rest."""
        others = {hash_: self._promises[hash_] for hash_ in pieces if hash_ in self._promises}
        own = {hash_: piece for hash_, piece in pieces.items() if hash_ not in others}
        loop = asyncio.get_running_loop()
        promises: dict[Sha256, asyncio.Future[Vector]] = {h: loop.create_future() for h in own}
        self._promises |= promises
        try:
            yield Claim(own, others, promises)
        finally:
            for hash_, promise in promises.items():
                del self._promises[hash_]
                promise.cancel()  # no effect on a resolved one

    async def wait(
        self,
        others: Mapping[Sha256, asyncio.Future[Vector]],
        checkpoint: Callable[[], Awaitable[None]] | None,
    ) -> dict[Sha256, Vector]:
        """The vectors that other calls made. ``checkpoint`` is called while they work, and may end the wait."""
        waiting: Iterable[asyncio.Future[Vector]] = others.values()
        while waiting := [promise for promise in waiting if not promise.done()]:
            await asyncio.wait(waiting, timeout=SECONDS_BETWEEN_CHECKS)
            if checkpoint:
                await checkpoint()
        return {
            hash_: promise.result() for hash_, promise in others.items() if not promise.cancelled()
        }
