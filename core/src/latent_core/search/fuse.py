"""Fusion: several ranked lists of one container become one, with scores in 0..1.

- RRF (Cormack, Clarke, Büttcher, SIGIR 2009): ``sum w / (k + rank)``, ranks from 1, divided by the
  largest sum that the lists could give, never by the best hit of the query.
- weighted: min-max normalised scores, weighted mean.
- DBSF: scores normalised by the mean and sigma of their list, from 3 below it upwards, mean over the lists (docs of
  Qdrant, FACTS §4). The best scores are often more than 3 sigma above the mean. They are not clipped there, because
  that distance separates certain hits from uncertain ones.
- auto: shares of what each channel can give (``latent_core.search.shares``), weighted mean.

Every container's best hit has rank 1 in its own lists. So in a search of several containers the cosines of one
embedding model are ranked together (``ranked_together``); BM25 scores depend on the container's own word counts.

Lists are fused after the join on the live generation, so dead chunks never shift a rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, assert_never

import numpy as np

from latent_core.domain.manifest.model import Fusion, FusionMethod
from latent_core.search.shares import shares_of, weight_of

BELOW: Final = 3.0
ABOVE: Final = 10.0
"""Sigmas around a list's mean. Of a hundred scores none is more than ten above it."""


@dataclass(frozen=True, slots=True)
class RankedList:
    """One channel's candidates, best first; each chunk_no at most once."""

    chunk_nos: Sequence[int]
    scores: Sequence[float]
    ranks: Sequence[int] | None = None
    """Ranks among the candidates of several containers, from 1; None: their places in this list."""


class FusedCandidate(NamedTuple):
    chunk_no: int
    score: float
    """0..1"""
    rrf: float
    """The tie-break."""


def fuse(lists: Mapping[str, RankedList], how: Fusion) -> list[FusedCandidate]:
    """Fuse the lists that answered, best first; ties by RRF, then by chunk_no."""
    weights = {name: how.weights.get(name, 1.0) for name in lists}
    rrf = _rrf(lists, weights, how.k)
    match how.method:
        case FusionMethod.RRF:
            scores = rrf
        case FusionMethod.WEIGHTED:
            scores = _mean({n: _min_max(r.scores) for n, r in lists.items()}, lists, weights)
        case FusionMethod.DBSF:
            scores = _mean({n: _by_sigma(r.scores) for n, r in lists.items()}, lists, weights)
        case FusionMethod.AUTO:
            scores = _auto(lists, {name: weight_of(name, how.weights) for name in lists})
        case _:
            assert_never(how.method)
    fused = [FusedCandidate(chunk_no, scores.get(chunk_no, 0.0), rrf[chunk_no]) for chunk_no in rrf]
    return sorted(fused, key=lambda f: (-f.score, -f.rrf, f.chunk_no))


def ranked_together(lists: Sequence[RankedList]) -> list[RankedList]:
    """The lists with ranks among all their candidates, for lists whose scores can be compared."""
    if len(lists) < 2:
        return list(lists)
    falling = np.sort(-np.concatenate([np.asarray(one.scores, np.float64) for one in lists]))
    return [
        replace(
            one,
            ranks=(1 + np.searchsorted(falling, -np.asarray(one.scores, np.float64))).tolist(),
        )
        for one in lists
    ]


def _rrf(lists: Mapping[str, RankedList], weights: Mapping[str, float], k: int) -> dict[int, float]:
    attainable = sum(weights.values()) / (k + 1)
    sums: dict[int, float] = {}
    for name in sorted(lists):
        ranked = lists[name]
        ranks = ranked.ranks or range(1, len(ranked.chunk_nos) + 1)
        for rank, chunk_no in zip(ranks, ranked.chunk_nos, strict=True):
            sums[chunk_no] = sums.get(chunk_no, 0.0) + weights[name] / (k + rank)
    return (
        {chunk_no: total / attainable for chunk_no, total in sums.items()}
        if attainable
        else dict.fromkeys(sums, 0.0)
    )


def _mean(
    normalised: Mapping[str, Sequence[float]],
    lists: Mapping[str, RankedList],
    weights: Mapping[str, float],
) -> dict[int, float]:
    total = sum(weights.values())
    sums: dict[int, float] = {}
    for name in sorted(lists):
        for chunk_no, score in zip(lists[name].chunk_nos, normalised[name], strict=True):
            sums[chunk_no] = sums.get(chunk_no, 0.0) + weights[name] * score
    return (
        {chunk_no: s / total for chunk_no, s in sums.items()} if total else dict.fromkeys(sums, 0.0)
    )


def _auto(lists: Mapping[str, RankedList], weights: Mapping[str, float]) -> dict[int, float]:
    sums = {chunk_no: 0.0 for ranked in lists.values() for chunk_no in ranked.chunk_nos}
    total = sum(weights.values())
    if not total:
        return sums
    floor = 0.0
    for name in sorted(lists):
        shares, missing = shares_of(name, lists[name].scores)
        floor += weights[name] * missing
        for chunk_no, share in zip(lists[name].chunk_nos, shares, strict=False):
            sums[chunk_no] += weights[name] * (share - missing)
    return {chunk_no: (floor + above) / total for chunk_no, above in sums.items()}


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
