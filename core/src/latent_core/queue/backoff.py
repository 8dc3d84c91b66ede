"""How long a failed job waits before it is tried again."""

from __future__ import annotations

from random import random
from typing import Final

BASE_SECONDS: Final = 2.0
CAP_SECONDS: Final = 600.0
PAUSE_CAP_SECONDS: Final = 120.0
"""Of a job that waits for a service outside: when that is back, the queue is to move soon."""


def backoff_seconds(
    attempts: int, *, draw: float | None = None, min_seconds: float = 0.0, cap: float = CAP_SECONDS
) -> float:
    """Full jitter: anything from ``min_seconds`` up to base * 2^attempts, capped; ``draw`` is 0..1, random unless given.

    Jitter over the whole range, since jobs that failed together (a service went away) must not come back together.
    """
    ceiling = min(cap, BASE_SECONDS * 2.0 ** min(attempts, 32))
    return max(min_seconds, (random() if draw is None else draw) * ceiling)
