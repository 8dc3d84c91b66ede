"""One log line when calls begin to fail and one when they succeed again, however many calls fail between them."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Final

QUIET_SECONDS: Final = 1.0
"""Without a failure, before a success ends an outage: in a partial one, calls fail and succeed by turns."""


class OutageLog:
    """The outages of one kind of call. ``failed`` and ``recovered`` are the names of the two log events, ``details``
    are fields of both.

    Threads may share it: the worst that a race costs is a second line.
    """

    def __init__(
        self,
        logger: logging.Logger,
        *,
        failed: str,
        recovered: str,
        details: Mapping[str, str] | None = None,
    ) -> None:
        self._logger: Final = logger
        self._details: Final = dict(details or {})
        self._failed: Final = failed
        self._recovered: Final = recovered
        self._since: float | None = None
        self._failed_at = 0.0
        self._failures = 0

    @property
    def active(self) -> bool:
        """Whether an outage has begun and not ended."""
        return self._since is not None

    def failed(self, cause: str) -> None:
        """A call failed. Logs the cause of the first one."""
        self.begun(cause)
        self._failures += 1
        self._failed_at = time.monotonic()

    def begun(self, cause: str) -> None:
        """An outage was noticed without a failed call."""
        if self._since is None:
            self._since, self._failures = time.monotonic(), 0
            self._logger.warning(self._failed, extra=self._details | {"cause": cause})

    def succeeded(self) -> None:
        """A call succeeded. Logs the length of the outage if that ends one."""
        since, now = self._since, time.monotonic()
        if since is not None and now - self._failed_at >= QUIET_SECONDS:
            self._since = None
            self._logger.info(
                self._recovered,
                extra=self._details
                | {"failures": self._failures, "seconds": round(now - since, 1)},
            )
