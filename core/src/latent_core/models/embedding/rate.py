"""How many texts a minute may be sent."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from latent_core.domain.errors import LimitReached

SECONDS_PER_MINUTE: Final = 60.0
_INSTANT: Final = 1e-6  # less is a rounding error, and no time to sleep


class Rate(Protocol):
    """A limit that all who use the same key share."""

    burst: int
    """The most texts that can be taken at a time."""

    async def take(self, texts: int, *, urgent: bool = False, within: float) -> None:
        """Wait until ``texts`` may be sent. ``LimitReached`` when that is later than ``within`` seconds."""
        ...

    async def pause(self, seconds: float) -> None:
        """Nobody who shares the limit sends anything for so long: the server asked for it."""
        ...


@dataclass(eq=False, slots=True)
class _Waiter:
    texts: int
    ready: asyncio.Event = field(default_factory=asyncio.Event)


class TextRate:
    """A token bucket that holds a minute's texts. First come, first served; queries go before documents."""

    def __init__(
        self,
        per_minute: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """``clock`` answers seconds and never goes back."""
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
        """Seconds until the bucket holds so many texts."""
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
    """What a caller is told who would come too late."""
    return LimitReached(
        f"the embedder's limit of {per_minute} texts a minute is used up for {seconds:.0f} s:"
        " try again later, or raise LLC_EMBED_RATE_LIMIT_PER_MIN",
        retry_after=seconds,
    )
