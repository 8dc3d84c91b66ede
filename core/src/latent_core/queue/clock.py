"""The local clock for leases."""

from __future__ import annotations

import time
from typing import Final

# Both clocks advance while the machine sleeps, as the database's does; time.monotonic may stop.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> float:
    """Seconds; only differences mean something."""
    return time.clock_gettime(_CLOCK)
