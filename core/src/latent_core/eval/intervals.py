"""Bootstrap intervals of means over queries: how much a metric depends on the choice of queries.

Percentile bootstrap (Efron 1979); of a difference the queries are drawn in pairs (Sakai, SIGIR 2006), since
the same query is easy or hard for both. Seeded: equal values give equal intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from latent_core.domain.evaluation import Interval

SAMPLES: Final = 2000
LEVEL: Final = 0.95
SEED: Final = 7801
VALUES_PER_DRAW: Final = 4_000_000
"""Limit per draw: 32 MB."""


def mean_interval(values: Sequence[float]) -> Interval:
    """The mean of ``values`` with its interval."""
    if not values:
        raise ValueError("no values")
    data = np.asarray(values, dtype=np.float64)
    rng = np.random.default_rng(SEED)
    step = max(1, VALUES_PER_DRAW // len(data))
    means = np.concatenate(
        [
            data[rng.integers(0, len(data), size=(min(step, SAMPLES - done), len(data)))].mean(
                axis=1
            )
            for done in range(0, SAMPLES, step)
        ]
    )
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(value=float(data.mean()), low=float(low), high=float(high))


def paired_interval(ours: Sequence[float], theirs: Sequence[float]) -> Interval:
    """The mean of ``ours - theirs``, query by query, with its interval."""
    if len(ours) != len(theirs):
        raise ValueError("pairs are missing")
    return mean_interval([a - b for a, b in zip(ours, theirs, strict=True)])
