"""The limit of questions at a time: each waits for a language model for many seconds, and costs its owner."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from latent_core.domain.errors import RateLimited
from latent_core.runtime.process import part
from latent_gateway.auth.principal import Principal
from latent_gateway.auth.shared_memory import MAX_KEYS, Limit, OpenCounts, SharedMemory

MAX_RUNNING: Final = 8
"""Of one gateway, in all its processes."""
MAX_PER_PRINCIPAL: Final = 2
MAX_WAITING: Final = 16
WAIT_SECONDS: Final = 10.0
RETRY_AFTER_SECONDS: Final = 10


class AskLimiter:
    def __init__(
        self,
        max_running: int = MAX_RUNNING,
        max_per_principal: int = MAX_PER_PRINCIPAL,
        max_waiting: int = MAX_WAITING,
        wait_seconds: float = WAIT_SECONDS,
        *,
        memory: SharedMemory | None = None,
        processes: int = 1,
    ) -> None:
        """Each of the ``processes`` has its part of the slots."""
        self._max_per_principal = max_per_principal
        self._max_waiting = part(max_waiting, processes)
        self._wait_seconds = wait_seconds
        self._free = asyncio.Semaphore(part(max_running, processes))
        self.open = OpenCounts(memory or SharedMemory())
        """Running and waiting, by principal, in all processes."""
        self._waiting = 0

    @asynccontextmanager
    async def slot(self, principal: Principal) -> AsyncIterator[None]:
        """``RateLimited`` if the principal has too many open questions, or if no slot becomes free in time."""
        # All clients of an installation without other tokens share the owner's token.
        limit = None if principal.is_owner else self._max_per_principal
        match self.open.take(principal.name, of_key=limit):
            case Limit.KEY:
                raise _refused(f"{limit} of your questions are being answered")
            case Limit.ALL:
                raise _refused(f"{MAX_KEYS} principals have open questions")
        try:
            await self._acquire()
            try:
                yield
            finally:
                self._free.release()
        finally:
            self.open.give_back(principal.name)

    async def _acquire(self) -> None:
        if self._free.locked() and self._waiting >= self._max_waiting:
            raise _refused(f"{self._max_waiting} others wait for a slot already")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._free.acquire()
        except TimeoutError as exc:
            raise _refused(f"no slot became free within {self._wait_seconds:g} s") from exc
        finally:
            self._waiting -= 1


def _refused(cause: str) -> RateLimited:
    return RateLimited(
        f"Too many concurrent questions: {cause}. Retry in {RETRY_AFTER_SECONDS} s.",
        retry_after=RETRY_AFTER_SECONDS,
    )
