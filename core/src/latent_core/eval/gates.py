"""Gates that fail an evaluation or stop a refresh: thresholds, loss of quality, rise of latency."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Final

from latent_core.domain.golden import GoldenQuery, Thresholds
from latent_core.eval.metrics import GAIN_DEPTH, QueryFigures, folded
from latent_core.wire.evaluation import Means
from latent_core.wire.search import Hit

MIN_RECALL: Final = 0.5
MAX_FALL: Final = 0.02
"""Largest allowed relative loss of nDCG@10 or recall@20 since the last run."""
MAX_P95_RISE: Final = 0.20
NOTICEABLE_MS: Final = 5.0
"""A smaller rise of the p95 is noise, whatever its share."""

NDCG: Final = "ndcg@10"
RECALL: Final = "recall@20"
LATENCY: Final = "latency"
METRICS: Final = (NDCG, RECALL, LATENCY)


def means_of(figures: Sequence[QueryFigures], latencies_ms: Sequence[float]) -> Means:
    """Means over all queries (at least one)."""
    n = len(figures)
    return Means(
        ndcg_at_10=math.fsum(f.ndcg for f in figures) / n,
        recall_at_20=math.fsum(f.recall_20 for f in figures) / n,
        recall_at_100=math.fsum(f.recall_100 for f in figures) / n,
        mrr=math.fsum(f.reciprocal_rank for f in figures) / n,
        zero_hit_rate=sum(f.hits == 0 for f in figures) / n,
        p50_ms=percentile(latencies_ms, 0.50),
        p95_ms=percentile(latencies_ms, 0.95),
    )


def threshold_failures(thresholds: Thresholds, means: Means) -> list[str]:
    """Thresholds that are not met."""
    failed: list[str] = []
    if thresholds.ndcg_at_10 is not None and means.ndcg_at_10 < thresholds.ndcg_at_10:
        failed.append(f"nDCG@10 {means.ndcg_at_10:.3f} is below {thresholds.ndcg_at_10:g}")
    if thresholds.recall_at_20 is not None and means.recall_at_20 < thresholds.recall_at_20:
        failed.append(f"recall@20 {means.recall_at_20:.3f} is below {thresholds.recall_at_20:g}")
    limit = thresholds.p95_latency_ms
    if limit is not None and means.p95_ms > limit:
        failed.append(f"p95 latency {means.p95_ms:.1f} ms is over {limit:g} ms")
    return failed


def regressions(means: Means, last: Means, metrics: Collection[str] = METRICS) -> list[str]:
    """The ``metrics`` that became worse than in the ``last`` run by more than the limit."""
    found: list[str] = []
    if NDCG in metrics and means.ndcg_at_10 < last.ndcg_at_10 * (1 - MAX_FALL):
        fall = f"from {last.ndcg_at_10:.3f} to {means.ndcg_at_10:.3f}"
        found.append(f"nDCG@10 fell {fall}, more than {MAX_FALL:.0%}")
    if LATENCY in metrics and is_slower(means.p95_ms, last.p95_ms):
        rise = f"from {last.p95_ms:.1f} to {means.p95_ms:.1f} ms"
        found.append(f"p95 latency rose {rise}, more than {MAX_P95_RISE:.0%}")
    if RECALL in metrics and means.recall_at_20 < last.recall_at_20 * (1 - MAX_FALL):
        fall = f"from {last.recall_at_20:.3f} to {means.recall_at_20:.3f}"
        found.append(f"Recall@20 fell {fall}, more than {MAX_FALL:.0%}")
    return found


def is_slower(p95_ms: float, before_ms: float) -> bool:
    """Whether the p95 rose by more than the limit."""
    return p95_ms > max(before_ms * (1 + MAX_P95_RISE), before_ms + NOTICEABLE_MS)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of ``values`` do not exceed (nearest rank)."""
    if not values:
        raise ValueError("no values")
    return sorted(values)[max(math.ceil(share * len(values)), 1) - 1]


def query_failures(query: GoldenQuery, hits: Sequence[Hit], figures: QueryFigures) -> list[str]:
    """The rules of a golden query that its answer breaks."""
    if not hits:
        return ["no hit"]
    failures: list[str] = []
    if query.min_score is not None and figures.ndcg < query.min_score:
        failures.append(f"nDCG@10 {figures.ndcg:.3f} is below min_score {query.min_score:g}")
    if figures.recall_20 < MIN_RECALL:
        failures.append(f"recall@20 {figures.recall_20:.3f} is below {MIN_RECALL:g}")
    top = hits[:GAIN_DEPTH]
    texts = [folded(hit.text or hit.snippet) for hit in top]
    titled = [folded(f"{hit.title}\n{hit.text or hit.snippet}") for hit in top]
    failures += [
        f"keyword not in the first ten: {w}" for w in _missing(query.expect_keywords, texts)
    ]
    failures += [f"not in the first ten: {w}" for w in _missing(query.expect, titled)]
    return failures


def _missing(expected: Sequence[str], texts: Sequence[str]) -> list[str]:
    return [string for string in expected if not any(folded(string) in text for text in texts)]
