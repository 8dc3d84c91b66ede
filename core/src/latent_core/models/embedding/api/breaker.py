"""A circuit breaker: a server that fails again and again is left alone for a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

FAILURES: Final = 5
FIRST_PAUSE: Final = 2.0
LONGEST_PAUSE: Final = 60.0


class Breaker:
    """Counts failures in a row. From ``failures`` on nobody is let through for a pause, then one; each time it
    fails the pause doubles. Seconds."""

    def __init__(
        self,
        *,
        failures: int = FAILURES,
        first_pause: float = FIRST_PAUSE,
        longest_pause: float = LONGEST_PAUSE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = failures
        self._first_pause = first_pause
        self._longest_pause = longest_pause
        self._clock = clock
        self._failures = 0
        self._pause = 0.0
        self._closed_until = 0.0

    @property
    def failures(self) -> int:
        """In a row."""
        return self._failures

    def wait(self) -> float:
        """Seconds until somebody may try; 0: the caller may, and the others wait for what it finds."""
        if self._failures < self._limit:
            return 0.0
        now = self._clock()
        if now < self._closed_until:
            return self._closed_until - now
        self._closed_until = now + self._pause
        return 0.0

    def left(self) -> float:
        """Seconds that nobody may try for yet; 0: somebody may. Asking changes nothing."""
        if self._failures < self._limit:
            return 0.0
        return max(0.0, self._closed_until - self._clock())

    def good(self) -> None:
        """The server answered."""
        self._failures = 0
        self._pause = 0.0

    def bad(self) -> None:
        """It did not, or said that it failed."""
        self._failures += 1
        if self._failures < self._limit:
            return
        self._pause = min(self._longest_pause, self._pause * 2 or self._first_pause)
        self._closed_until = self._clock() + self._pause
