"""When a call is sent again: the gateway cannot be reached, the connection broke, or it answered 503.

Bounded in number and time, with jitter, so that many clients do not come at once when a gateway is back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from random import uniform
from typing import Final

from latent_client.errors import GatewayUnreachable
from latent_core.domain.errors import Unavailable

MAX_ATTEMPTS: Final = 8
RETRY_SECONDS: Final = 60.0
"""From the first failure of a call to its last attempt, unless the client's own timeout is shorter."""
FIRST_PAUSE: Final = 0.25
LONGEST_PAUSE: Final = 8.0
JITTER: Final = 0.25
ABSENT_PAUSES: Final = (0.1, 0.3)
"""Before the first answer of a gateway, it is more likely not started than restarted: an error says so at once."""


@dataclass(frozen=True, slots=True)
class RetryNotice:
    """A call is sent again after ``seconds``."""

    error: Unavailable
    seconds: float
    attempt: int
    """Of the next one, from 2."""
    absent: bool
    """The gateway has never answered: if this attempt fails, so does the call, within half a second."""


OnRetry = Callable[[RetryNotice], None]


class Retries:
    """The attempts of one call. ``answered``: the gateway has answered this client before."""

    def __init__(self, seconds: float, *, answered: bool) -> None:
        self._seconds = min(seconds, RETRY_SECONDS)
        self._until: float | None = None
        self._answered = answered
        self._attempts = 1

    def after(self, error: Unavailable) -> RetryNotice | None:
        """The next attempt after this failure, or None when the call has failed."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + self._seconds
        absent = isinstance(error, GatewayUnreachable) and not self._answered
        attempts = len(ABSENT_PAUSES) + 1 if absent else MAX_ATTEMPTS
        if self._attempts >= attempts:
            return None
        seconds = ABSENT_PAUSES[self._attempts - 1] if absent else self._pause(error)
        if now + seconds > self._until:
            return None
        self._attempts += 1
        return RetryNotice(error, seconds, self._attempts, absent)

    def _pause(self, error: Unavailable) -> float:
        """Seconds, at least as many as the gateway asked for."""
        own = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (self._attempts - 1))
        given = error.details.get("retry_after")
        floor = float(given) if isinstance(given, int | float) else 0.0
        return max(own, floor) * uniform(1.0, 1.0 + JITTER)
