"""Freshness: a young source counts for more, by its container's manifest (CONTRACT "Retrieval")."""

from __future__ import annotations

import math
from datetime import datetime

from latent_core.domain.manifest import Freshness

SECONDS_A_DAY = 86_400.0


def factor(
    how: Freshness, now: datetime, modified: datetime | None, first_fetched: datetime | None
) -> float:
    """``exp(-lambda * age)``, 0..1; 0 where the manifest does not ask for it, or no time is known.

    The age in days is the source's own, else that of its first fetch: never that of a re-ingest. What
    is dated in the future is as young as can be.
    """
    since = modified or first_fetched
    if not how.enabled or since is None:
        return 0.0
    days = max(0.0, (now - since).total_seconds() / SECONDS_A_DAY)
    return math.exp(-how.decay_lambda * days)


def boosted(score: float, freshness: float) -> float:
    """``score * (1 + factor)``: at most twice the score."""
    return score * (1.0 + freshness)
