"""The limit of concurrent searches of one process.

A search is mostly CPU work. Twenty searches on two cores are all late and take longer together than one after the
other, so a search waits for a free slot, in order of arrival. While it waits for a remote model or reranker, it holds
no slot.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from latent_core.domain.errors import RateLimited
from latent_core.runtime.cores import cores

MORE_THAN_CORES: Final = 1
"""One search can wait for a store while the others keep the cores busy."""
RETRY_AFTER_SECONDS: Final = 1


class SearchSlot:
    """The slot of one search."""

    def __init__(self, free: asyncio.Semaphore, seconds: float) -> None:
        self._free = free
        self._seconds = seconds
        self._held = False

    async def acquire(self) -> None:
        """``RateLimited`` when none becomes free in time."""
        try:
            async with asyncio.timeout(self._seconds):
                await self._free.acquire()
        except TimeoutError as exc:
            raise RateLimited(
                f"Too many concurrent searches: no slot became free within {self._seconds:g} s. "
                f"Retry in {RETRY_AFTER_SECONDS} s.",
                retry_after=RETRY_AFTER_SECONDS,
            ) from exc
        self._held = True

    def release(self) -> None:
        if self._held:
            self._held = False
            self._free.release()

    @asynccontextmanager
    async def released(self) -> AsyncIterator[None]:
        """Release the slot inside the block and acquire it again afterwards. The search is nearly done by then: if no
        slot becomes free in time, it continues without one."""
        self.release()
        yield
        with suppress(RateLimited):
            await self.acquire()


class SearchLimiter:
    """The slots of one process. Searches for exact text have slots of their own, so that slow expressions never delay
    the others."""

    def __init__(self, limit: int | None = None) -> None:
        """``limit`` per kind of search; by default the number of cores plus one."""
        limit = limit or cores() + MORE_THAN_CORES
        self._usual = asyncio.Semaphore(limit)
        self._exact = asyncio.Semaphore(limit)

    @asynccontextmanager
    async def slot(self, seconds: float, *, exact: bool) -> AsyncIterator[SearchSlot]:
        """Acquire a slot; every acquisition waits at most ``seconds``."""
        slot = SearchSlot(self._exact if exact else self._usual, seconds)
        await slot.acquire()
        try:
            yield slot
        finally:
            slot.release()
