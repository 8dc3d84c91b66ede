"""Turns: how many searches are at work at once.

A search is mostly work of this machine's processors. Twenty that share two cores are all late, and take longer
together than one after the other; so who comes when all turns are taken waits for one, first come, first served.
What only waits for others (a model or a reranker behind a network) is done outside of a turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from latent_core.cores import cores
from latent_core.domain.errors import RateLimited

MORE_THAN_CORES: Final = 1
"""One waits for a store while the others keep the cores busy."""
SECONDS_TO_COME_BACK: Final = 1


class Turn:
    """The turn of one search."""

    def __init__(self, free: asyncio.Semaphore, seconds: float) -> None:
        self._free = free
        self._seconds = seconds
        self._taken = False

    async def take(self) -> None:
        """``RateLimited`` when none becomes free in time."""
        try:
            async with asyncio.timeout(self._seconds):
                await self._free.acquire()
        except TimeoutError as exc:
            raise RateLimited(
                f"more is searched here than can be answered: no turn came within {self._seconds:g} s",
                retry_after=SECONDS_TO_COME_BACK,
            ) from exc
        self._taken = True

    def give_back(self) -> None:
        if self._taken:
            self._taken = False
            self._free.release()

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[None]:
        """Let others have it while this search waits for somebody far away. It is nearly done then: when no turn comes
        in time, what was found and paid for is not thrown away for want of one."""
        self.give_back()
        yield
        with suppress(RateLimited):
            await self.take()


class Turns:
    """Those of one process. Searches for exact text have turns of their own, so that slow expressions never keep
    the others waiting."""

    def __init__(self, most: int | None = None) -> None:
        """``most`` at once of each sort; by default as many as there are cores, and one more."""
        most = most or cores() + MORE_THAN_CORES
        self._usual = asyncio.Semaphore(most)
        self._exact = asyncio.Semaphore(most)

    @asynccontextmanager
    async def turn(self, seconds: float, *, exact: bool) -> AsyncIterator[Turn]:
        """Wait at most ``seconds`` for a turn, each time one is taken."""
        turn = Turn(self._exact if exact else self._usual, seconds)
        await turn.take()
        try:
            yield turn
        finally:
            turn.give_back()
