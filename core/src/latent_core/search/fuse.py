"""Fusion: several ranked lists of one container become one, with scores in 0..1.

- RRF (Cormack, Clarke, Büttcher, SIGIR 2009): ``sum w / (k + rank)``, ranks from 1, divided by the
  largest sum that the lists could give, never by the best hit of the query.
- weighted: min-max normalised scores, weighted mean.
- DBSF: scores normalised by the mean and sigma of their list, from 3 below it upwards, mean over the lists (docs of
  Qdrant, FACTS §4). The best of a list are often more than 3 above it: they are not cut off there, since by how much
  is what tells a hit that is certain from one that is not.

A list is judged by what is in it after the join on the live generation, so history never shifts a rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, assert_never

import numpy as np

from latent_core.domain.manifest import Fusion, FusionMethod

BELOW: Final = 3.0
ABOVE: Final = 10.0
"""Sigmas around a list's mean. Of a hundred scores none is more than ten above it."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """One channel's candidates, best first; every ord at most once."""

    ords: Sequence[int]
    scores: Sequence[float]


class Fused(NamedTuple):
    ord: int
    score: float
    """0..1"""
    rrf: float
    """The tie-break."""


def fuse(lists: Mapping[str, Ranked], how: Fusion) -> list[Fused]:
    """Fuse the lists that answered, best first; ties by RRF, then by ord."""
    weights = {name: how.weights.get(name, 1.0) for name in lists}
    rrf = _rrf(lists, weights, how.k)
    match how.method:
        case FusionMethod.RRF:
            scores = rrf
        case FusionMethod.WEIGHTED:
            scores = _mean({n: _min_max(r.scores) for n, r in lists.items()}, lists, weights)
        case FusionMethod.DBSF:
            scores = _mean({n: _by_sigma(r.scores) for n, r in lists.items()}, lists, weights)
        case _:
            assert_never(how.method)
    fused = [Fused(ord_, scores.get(ord_, 0.0), rrf[ord_]) for ord_ in rrf]
    return sorted(fused, key=lambda f: (-f.score, -f.rrf, f.ord))


def _rrf(lists: Mapping[str, Ranked], weights: Mapping[str, float], k: int) -> dict[int, float]:
    attainable = sum(weights.values()) / (k + 1)
    sums: dict[int, float] = {}
    for name in sorted(lists):
        for rank, ord_ in enumerate(lists[name].ords, start=1):
            sums[ord_] = sums.get(ord_, 0.0) + weights[name] / (k + rank)
    return (
        {ord_: total / attainable for ord_, total in sums.items()}
        if attainable
        else dict.fromkeys(sums, 0.0)
    )


def _mean(
    normalised: Mapping[str, Sequence[float]],
    lists: Mapping[str, Ranked],
    weights: Mapping[str, float],
) -> dict[int, float]:
    total = sum(weights.values())
    sums: dict[int, float] = {}
    for name in sorted(lists):
        for ord_, score in zip(lists[name].ords, normalised[name], strict=True):
            sums[ord_] = sums.get(ord_, 0.0) + weights[name] * score
    return {ord_: s / total for ord_, s in sums.items()} if total else dict.fromkeys(sums, 0.0)


def _min_max(scores: Sequence[float]) -> list[float]:
    if not scores:
        return []
    low, high = min(scores), max(scores)
    return [(s - low) / (high - low) for s in scores] if high > low else [1.0] * len(scores)


def _by_sigma(scores: Sequence[float]) -> list[float]:
    values = np.asarray(scores, dtype=np.float64)
    sigma = float(values.std()) if len(values) > 1 else 0.0
    deviations = (values - values.mean()) / sigma if sigma else np.zeros(len(values))
    return [float(v) for v in np.clip((deviations + BELOW) / (BELOW + ABOVE), 0.0, 1.0)]
