"""Scores as shares of what their channel can give, for fusion method ``auto`` (docs/adr/0031-fusion-auto.md).

- Keywords: the share of the best score. 0 means no word in common, so it is a true zero.
- Vectors: where the cosine lies between the lowest one of the list and 1, the cosine of a text with itself. Thus an
  embedder whose cosines are all high has the same shares as one whose cosines are spread out.
- Summaries: their relevance, which is a share.
- Exact matches: the second one counts less than the first, or long chunks would always lead.

A channel whose scores fall off steeply from its best one decides more than a channel whose scores are all alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from latent_core.search.plan import EXACT, SUMMARIES, VECTOR

HEAD: Final = 100
"""Scores of a list that count. With a fixed number a deeper round keeps the order of the rounds before it."""
WEIGHTS: Final[Mapping[str, float]] = {VECTOR: 1.5}
"""Times the weights of the manifest. A best keyword score has share 1 always, a cosine of 1 is rare."""
MISSING: Final = 0.5
"""Times the lowest keyword score of the list: what a candidate has that is not in it, between that score and 0."""


class ChannelShares(NamedTuple):
    shares: list[float]
    """0..1, of the first ``HEAD`` candidates, in the order of the list."""
    missing: float
    """Of all other candidates."""


def weight_of(name: str, weights: Mapping[str, float]) -> float:
    """The weight of a channel; ``weights`` are those of the manifest or the request."""
    return weights.get(name, 1.0) * WEIGHTS.get(name, 1.0)


def shares_of(name: str, scores: Sequence[float]) -> ChannelShares:
    """``scores`` are those of channel ``name``, best first."""
    head = scores[:HEAD]
    if not head:
        return ChannelShares([], 0.0)
    if name == VECTOR:
        low = min(head)
        # Rounding puts the cosine of equal texts above 1.
        shares = [min(1.0, (s - low) / (1 - low)) if low < 1 else 0.0 for s in head]
        return ChannelShares(shares, 0.0)
    if name == SUMMARIES:
        return ChannelShares(list(head), 0.0)
    values = [max(s, 0.0) for s in head]
    if name == EXACT:
        values = [s / (s + 1) for s in values]
    high = max(values)
    shares = [s / high if high else 0.0 for s in values]
    return ChannelShares(shares, MISSING * min(shares))


def influence(
    scores: Mapping[str, Sequence[float]], weights: Mapping[str, float]
) -> dict[str, float]:
    """How far each channel can move a candidate, as shares of 1; empty if none can."""
    spans: dict[str, float] = {}
    for name, its in scores.items():
        shares, missing = shares_of(name, its)
        spans[name] = weight_of(name, weights) * (max(shares, default=missing) - missing)
    total = sum(spans.values())
    return {name: span / total for name, span in spans.items()} if total else {}
