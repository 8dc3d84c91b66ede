"""Whether a service answers calls: it decides what a timeout says of the request that ran into it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

from latent_core.domain.errors import UpstreamTimeout

HEALTHY_SECONDS: Final = 60.0
"""After a successful call a service is believed to be healthy for this long."""


class ServiceHealth:
    """When a call to one service at one address last succeeded, as this process knows it. Each client has one.

    Threads may share it.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._succeeded_at = -math.inf

    def succeeded(self) -> None:
        """A call was answered without an error."""
        self._succeeded_at = self._clock()

    def timeout(self, message: str) -> UpstreamTimeout:
        """The error of a call that was not answered in time: while other calls succeed, it counts as an attempt."""
        healthy = self._clock() - self._succeeded_at <= HEALTHY_SECONDS
        return UpstreamTimeout(message, counts_as_attempt=healthy)
