"""Rate limits of remote embedders (per process, or shared through Postgres) and their estimated token use."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

from latent_core.db import embed_usage
from latent_core.db.connection import Database
from latent_core.domain.errors import LatentError, LimitReached, ReadOnlyStore, StoreFull

SECONDS_PER_MINUTE: Final = 60.0
_INSTANT: Final = 1e-6  # less is a rounding error, and no time to sleep


class Rate(Protocol):
    """A limit that all users of the same key share."""

    burst: int
    """The maximum number of texts per ``take``."""

    async def take(self, texts: int, *, urgent: bool = False, within: float) -> None:
        """Wait until ``texts`` may be sent. ``LimitReached`` when that is later than ``within`` seconds."""
        ...

    async def pause(self, seconds: float) -> None:
        """Stop all users of the limit for this long, because the server asked for it."""
        ...


@dataclass(eq=False, slots=True)
class _Waiter:
    texts: int
    ready: asyncio.Event = field(default_factory=asyncio.Event)


class TextRate:
    """A token bucket for one minute's texts. First come, first served; queries go before documents."""

    def __init__(
        self,
        per_minute: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """``clock`` returns monotonic seconds."""
        self.burst = max(1, per_minute)
        self._per_second = self.burst / SECONDS_PER_MINUTE
        self._clock = clock
        self._sleep = sleep
        self._level = float(self.burst)
        self._as_of = clock()
        self._paused_until = self._as_of
        self._urgent: deque[_Waiter] = deque()
        self._patient: deque[_Waiter] = deque()

    async def take(self, texts: int, *, urgent: bool = False, within: float) -> None:
        """Wait until ``texts`` may be sent. ``LimitReached`` at once when that is later than ``within`` seconds.

        At most ``burst`` texts can be taken at a time.
        """
        if texts > self.burst:
            raise ValueError(f"{texts} texts are more than the bucket holds ({self.burst})")
        waiter = _Waiter(texts)
        line = self._urgent if urgent else self._patient
        line.append(waiter)
        try:
            self._refuse_if_late(urgent, within)
            await self._wait(waiter)
            self._level -= texts
        finally:
            line.remove(waiter)
            self._call_next()

    async def pause(self, seconds: float) -> None:
        self._paused_until = max(self._paused_until, self._clock() + seconds)

    async def _wait(self, waiter: _Waiter) -> None:
        while True:
            if self._first() is not waiter:
                waiter.ready.clear()
                await waiter.ready.wait()
            elif (seconds := self._until(waiter.texts)) > 0:
                await self._sleep(seconds)
            else:
                return

    def _refuse_if_late(self, urgent: bool, within: float) -> None:
        ahead = sum(w.texts for w in self._urgent)
        if not urgent:
            ahead += sum(w.texts for w in self._patient)
        seconds = self._until(ahead)
        if seconds > within:
            raise used_up(self.burst, seconds)

    def _until(self, texts: int) -> float:
        """Seconds until the bucket holds this many texts."""
        now = self._clock()
        refill = (now - self._as_of) * self._per_second
        self._level, self._as_of = min(float(self.burst), self._level + refill), now
        seconds = max(self._paused_until - now, (texts - self._level) / self._per_second)
        return seconds if seconds > _INSTANT else 0.0

    def _first(self) -> _Waiter | None:
        line = self._urgent or self._patient
        return line[0] if line else None

    def _call_next(self) -> None:
        if first := self._first():
            first.ready.set()


def used_up(per_minute: int, seconds: float) -> LimitReached:
    return LimitReached(
        f"the embedder's limit of {per_minute} texts a minute is used up for {seconds:.0f} s:"
        " try again later, or raise LLC_EMBED_RATE_LIMIT_PER_MIN or the provider's rate",
        retry_after=seconds,
    )


TOKENS_AN_IMAGE: Final = 1000
"""Used until the server reports tokens: about what models like Qwen2.5-VL read per page."""


class CostEstimate:
    """Estimates tokens from our own counts (text pieces, pictures) and the ratio that the server reported so far."""

    def __init__(self) -> None:
        self._pieces = self._of_texts = 0
        self._images = self._of_images = 0

    def add_texts(self, pieces: int, reported: int) -> None:
        self._pieces += pieces
        self._of_texts += reported

    def add_images(self, images: int, reported: int) -> None:
        self._images += images
        self._of_images += reported

    def tokens(self, pieces: int, images: int) -> int:
        return _measured(pieces, self._of_texts, self._pieces, 1) + _measured(
            images, self._of_images, self._images, TOKENS_AN_IMAGE
        )


def _measured(counted: int, reported: int, sent: int, each: int) -> int:
    return round(counted * reported / sent) if reported and sent else counted * each


logger = logging.getLogger(__name__)

SPARE_SHARE: Final = 0.1
"""Documents leave this share of a full bucket, so that a query does not wait for it to fill."""
LONGEST_SLEEP: Final = 5.0
"""Then the bucket is read again: another process may have paused it or left."""


class SharedTextRate:
    """Implements ``Rate``. Within a process, documents are served in order and queries go first."""

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
        self._bucket = embed_usage.Bucket(name, float(self.burst), self.burst / SECONDS_PER_MINUTE)
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
            # A query is not counted while Postgres accepts no writes: no documents are embedded meanwhile.
            with suppress(ReadOnlyStore, StoreFull):
                await self._take(texts, 0.0, until)
            return
        async with self._in_line(within):
            await self._take(texts, min(SPARE_SHARE * self.burst, self.burst - texts), until)

    async def pause(self, seconds: float) -> None:
        """Other processes see it at once, or, if the database is unreachable, when we next use the bucket."""
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
            # Jitter, so that the same process does not always come first.
            await self._sleep(min(LONGEST_SLEEP, seconds + self._jitter(0.0, 0.1 * seconds)))

    async def _ask(self, texts: int, spare: float) -> float:
        pause = max(0.0, self._pause_until - self._clock())
        async with self._db.single() as conn:
            return await embed_usage.take_from_bucket(
                conn, self._bucket, texts, spare=spare, pause=pause
            )
