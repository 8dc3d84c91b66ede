"""Whether a service answers calls, which decides whether a timeout counts as an attempt, and what is logged."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import Final

from latent_core.domain.errors import ConnectionClosed, UpstreamTimeout

logger = logging.getLogger(__name__)

HEALTHY_SECONDS: Final = 60.0
"""Seconds after a successful call during which a service counts as healthy."""


class ServiceHealth:
    """The time of the last successful call of this process to one service at one address. One per client.

    Threads may share it.
    """

    def __init__(self, service: str = "", *, clock: Callable[[], float] = time.monotonic) -> None:
        self._service = service
        self._clock = clock
        self._succeeded_at = -math.inf
        self._unreachable = 0

    def succeeded(self) -> None:
        """A call was answered without an error."""
        self._succeeded_at = self._clock()
        if self._unreachable:
            calls, self._unreachable = self._unreachable, 0
            logger.info("service_reachable", extra={"service": self._service, "lost_calls": calls})

    def unreachable(self, cause: str) -> None:
        """A call could not be made. Only the first one since the last success is logged."""
        self._unreachable += 1
        if self._unreachable == 1:
            logger.warning("service_unreachable", extra={"service": self._service, "cause": cause})

    def timeout(self, message: str) -> UpstreamTimeout:
        """The error for a timeout; it counts as an attempt while other calls succeed."""
        healthy = self._clock() - self._succeeded_at <= HEALTHY_SECONDS
        return UpstreamTimeout(message, counts_as_attempt=healthy)

    def closed(self, message: str, cause: str) -> ConnectionClosed:
        """The error for a connection that the service closed without an answer. It counts as an attempt if it is the
        first since the last answered call: this request may have ended the service. Those after it met an outage."""
        first = self._unreachable == 0
        self.unreachable(cause)
        return ConnectionClosed(message, counts_as_attempt=first)
