"""The clock leases are judged by locally."""

from __future__ import annotations

import time
from typing import Final

# Both go on while the machine sleeps, as the database's clock does; time.monotonic may stand still.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> float:
    """Seconds; only differences mean something."""
    return time.clock_gettime(_CLOCK)
