"""Whether a service answers calls, which decides whether a timeout counts as an attempt."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

from latent_core.domain.errors import UpstreamTimeout

HEALTHY_SECONDS: Final = 60.0
"""Seconds after a successful call during which a service counts as healthy."""


class ServiceHealth:
    """The time of the last successful call of this process to one service at one address. One per client.

    Threads may share it.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._succeeded_at = -math.inf

    def succeeded(self) -> None:
        """A call was answered without an error."""
        self._succeeded_at = self._clock()

    def timeout(self, message: str) -> UpstreamTimeout:
        """The error for a timeout; it counts as an attempt while other calls succeed."""
        healthy = self._clock() - self._succeeded_at <= HEALTHY_SECONDS
        return UpstreamTimeout(message, counts_as_attempt=healthy)
