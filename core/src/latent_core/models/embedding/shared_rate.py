"""How many texts a minute may be sent by all processes together: a token bucket in Postgres."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from latent_core.db import rates
from latent_core.db.connection import Database
from latent_core.domain.errors import LatentError
from latent_core.models.embedding.rate import SECONDS_PER_MINUTE, used_up

logger = logging.getLogger(__name__)

SPARE_SHARE: Final = 0.1
"""Of a full bucket documents leave this much, so that a query need not wait for it to fill."""
LONGEST_SLEEP: Final = 5.0
"""Then the bucket is asked again: somebody may have paused it, or gone away."""


class SharedTextRate:
    """Implements ``Rate``. In a process documents are served in the order they come; queries pass them by."""

    def __init__(
        self,
        db: Database,
        per_minute: int,
        name: str,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self.burst = max(1, per_minute)
        self._db = db
        self._bucket = rates.Bucket(name, float(self.burst), self.burst / SECONDS_PER_MINUTE)
        self._sleep = sleep
        self._clock = clock
        self._jitter = jitter
        self._line = asyncio.Lock()
        self._pause_until = 0.0

    async def take(self, texts: int, *, urgent: bool = False, within: float) -> None:
        if texts > self.burst:
            raise ValueError(f"{texts} texts are more than the bucket holds ({self.burst})")
        until = self._clock() + within
        if urgent:
            await self._take(texts, 0.0, until)
            return
        async with self._in_line(within):
            await self._take(texts, min(SPARE_SHARE * self.burst, self.burst - texts), until)

    async def pause(self, seconds: float) -> None:
        """The others hear of it at once; without the database, when we ask the bucket next."""
        self._pause_until = max(self._pause_until, self._clock() + seconds)
        try:
            await self._ask(0, 0.0)
        except LatentError as exc:
            logger.warning("embedder_pause_not_shared", extra={"cause": exc.message})

    @asynccontextmanager
    async def _in_line(self, within: float) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(within):
                await self._line.acquire()
        except TimeoutError as exc:
            raise used_up(self.burst, within) from exc
        try:
            yield
        finally:
            self._line.release()

    async def _take(self, texts: int, spare: float, until: float) -> None:
        while seconds := await self._ask(texts, spare):
            left = until - self._clock()
            if seconds > left:
                raise used_up(self.burst, seconds)
            # Not all at the same moment: whoever asks first would always be the same.
            await self._sleep(min(LONGEST_SLEEP, seconds + self._jitter(0.0, 0.1 * seconds)))

    async def _ask(self, texts: int, spare: float) -> float:
        pause = max(0.0, self._pause_until - self._clock())
        async with self._db.single() as conn:
            return await rates.take(conn, self._bucket, texts, spare=spare, pause=pause)
