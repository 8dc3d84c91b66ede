"""The delay before a failed job is retried."""

from __future__ import annotations

from random import random
from typing import Final

BASE_SECONDS: Final = 2.0
CAP_SECONDS: Final = 600.0
PAUSE_CAP_SECONDS: Final = 120.0
"""For jobs that wait for an external service: short, so the queue moves soon after the service recovers."""


def backoff_seconds(
    attempts: int, *, draw: float | None = None, min_seconds: float = 0.0, cap: float = CAP_SECONDS
) -> float:
    """Full jitter: from ``min_seconds`` up to base * 2^attempts, capped. ``draw`` is 0..1, random by default.

    The jitter covers the whole range so that jobs that failed together (an outage) are not retried together.
    """
    ceiling = min(cap, BASE_SECONDS * 2.0 ** min(attempts, 32))
    return max(min_seconds, (random() if draw is None else draw) * ceiling)
