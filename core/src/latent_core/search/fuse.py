"""Fusion: the ranked lists of several channels become one, with scores in 0..1.

- RRF (Cormack, Clarke, Büttcher, SIGIR 2009): ``sum w / (k + rank)``, ranks from 1, divided by the
  largest sum that the lists could give, never by the best hit of the query.
- weighted: min-max normalised scores, weighted mean.
- DBSF: scores normalised by the mean and sigma of their list, from 3 below it upwards, mean over the lists (docs of
  Qdrant, FACTS §4). The best scores are often more than 3 sigma above the mean. They are not clipped there, because
  that distance separates certain hits from uncertain ones.
- auto: shares of what each channel can give (``latent_core.search.shares``), weighted mean.

A search of several containers has one list per channel (``latent_core.search.merge``), so a container whose best hit is
poor has no hit of rank 1.

Lists are fused after the join on the live generation, so dead chunks never shift a rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar, assert_never

import numpy as np

from latent_core.domain.manifest.model import Fusion, FusionMethod
from latent_core.search.shares import shares_of, weight_of

BELOW: Final = 3.0
ABOVE: Final = 10.0
"""Sigmas around a list's mean. Of a hundred scores none is more than ten above it."""


Key = TypeVar("Key", int, tuple[str, int])
"""A candidate: its chunk_no in a container, or container and chunk_no."""


@dataclass(frozen=True, slots=True)
class RankedList(Generic[Key]):
    """One channel's candidates, best first; each once."""

    keys: Sequence[Key]
    scores: Sequence[float]
    common: Sequence[float] | None = None
    """Scores that compare between the containers of the search, if ``scores`` do not; by another order, maybe."""


class FusedCandidate(NamedTuple, Generic[Key]):
    key: Key
    score: float
    """0..1"""
    rrf: float
    """The tie-break."""


def fuse(lists: Mapping[str, RankedList[Key]], how: Fusion) -> list[FusedCandidate[Key]]:
    """Fuse the lists that answered, best first; ties by RRF, then by key."""
    scores, rrf = scores_of(lists, how)
    fused = [FusedCandidate(key, score, rrf[key]) for key, score in scores.items()]
    return sorted(fused, key=lambda f: (-f.score, -f.rrf, f.key))


def scores_of(
    lists: Mapping[str, RankedList[Key]], how: Fusion
) -> tuple[dict[Key, float], dict[Key, float]]:
    """The score of every candidate, 0..1, and its RRF, which breaks ties."""
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
    return scores, rrf


def _rrf(
    lists: Mapping[str, RankedList[Key]], weights: Mapping[str, float], k: int
) -> dict[Key, float]:
    attainable = sum(weights.values()) / (k + 1)
    sums: dict[Key, float] = {}
    for name in sorted(lists):
        for rank, key in enumerate(lists[name].keys, start=1):
            sums[key] = sums.get(key, 0.0) + weights[name] / (k + rank)
    return (
        {key: total / attainable for key, total in sums.items()}
        if attainable
        else dict.fromkeys(sums, 0.0)
    )


def _mean(
    normalised: Mapping[str, Sequence[float]],
    lists: Mapping[str, RankedList[Key]],
    weights: Mapping[str, float],
) -> dict[Key, float]:
    total = sum(weights.values())
    sums: dict[Key, float] = {}
    for name in sorted(lists):
        for key, score in zip(lists[name].keys, normalised[name], strict=True):
            sums[key] = sums.get(key, 0.0) + weights[name] * score
    return {key: s / total for key, s in sums.items()} if total else dict.fromkeys(sums, 0.0)


def _auto(lists: Mapping[str, RankedList[Key]], weights: Mapping[str, float]) -> dict[Key, float]:
    sums = {key: 0.0 for ranked in lists.values() for key in ranked.keys}
    total = sum(weights.values())
    if not total:
        return sums
    floor = 0.0
    for name in sorted(lists):
        shares, missing = shares_of(name, lists[name].scores)
        floor += weights[name] * missing
        for key, share in zip(lists[name].keys, shares, strict=False):
            sums[key] += weights[name] * (share - missing)
    return {key: (floor + above) / total for key, above in sums.items()}


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
