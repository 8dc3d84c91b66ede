"""The limit of questions at a time: each waits for a language model for many seconds, and costs its owner."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from latent_core.domain.errors import RateLimited
from latent_gateway.auth.principal import Principal

MAX_RUNNING: Final = 8
"""Of one gateway."""
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
    ) -> None:
        self._max_per_principal = max_per_principal
        self._max_waiting = max_waiting
        self._wait_seconds = wait_seconds
        self._free = asyncio.Semaphore(max_running)
        self._open: Counter[str] = Counter()
        """Running and waiting, by principal."""
        self._waiting = 0

    @asynccontextmanager
    async def slot(self, principal: Principal) -> AsyncIterator[None]:
        """``RateLimited`` if the principal has too many open questions, or if no slot becomes free in time."""
        # All clients of an installation without other tokens share the owner's token.
        if not principal.is_owner and self._open[principal.name] >= self._max_per_principal:
            raise _refused(f"{self._max_per_principal} of your questions are being answered")
        self._open[principal.name] += 1
        try:
            await self._acquire()
            try:
                yield
            finally:
                self._free.release()
        finally:
            self._open[principal.name] -= 1
            if not self._open[principal.name]:
                del self._open[principal.name]

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
