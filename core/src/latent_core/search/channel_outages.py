"""The log of channels whose services answer searches with errors: a line when it begins and one when it ends, per kind of error."""

from __future__ import annotations

import logging

from latent_core.domain.errors import LatentError
from latent_core.telemetry.outage import OutageLog

logger = logging.getLogger(__name__)


class ChannelOutages:
    """Of one process. Services that do not answer at all are logged by their circuit breakers."""

    def __init__(self) -> None:
        self._outages: dict[str, dict[str, OutageLog]] = {}
        """By channel, then by the class of the error."""

    def failed(self, channel: str, container_id: str, error: LatentError) -> None:
        """``channel`` failed in a container. The first failure is logged with its cause."""
        kind = type(error).__name__
        outages = self._outages.setdefault(channel, {})
        if kind not in outages:
            outages[kind] = OutageLog(
                logger,
                failed="channel_failed",
                recovered="channel_recovered",
                details={"channel": channel, "error": kind},
            )
        outages[kind].failed(f"container '{container_id}': {error.message}")

    def succeeded(self, channel: str) -> None:
        """``channel`` succeeded in a container."""
        for outage in self._outages.get(channel, {}).values():
            outage.succeeded()
