"""From judged answers to a report: means, bootstrap intervals, gates, comparison, suggestion."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Final

import numpy as np

from latent_core.domain.golden import Thresholds
from latent_core.domain.manifest.model import Fusion, FusionMethod, SearchMode
from latent_core.eval.datasets import QueryResult
from latent_core.eval.gates import (
    LATENCY,
    METRICS,
    is_slower,
    means_of,
    percentile,
    regressions,
    threshold_failures,
)
from latent_core.wire.evaluation import (
    Comparison,
    EvalRequest,
    Interval,
    KeptRun,
    Setup,
    SetupReport,
    Suggestion,
)

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


SHOWN_FAILURES: Final = 50
"""Limit of failed queries listed for a judged set."""
RRF_CONSTANTS: Final = (10, 60)
BM25_WEIGHTS: Final = (0.3, 0.5, 0.7)


def report(
    setup: Setup,
    answers: Sequence[QueryResult],
    latencies_ms: Sequence[float],
    thresholds: Thresholds,
    last: KeptRun | None,
    *,
    golden: bool,
    partial: int,
    metrics: Collection[str] = METRICS,
) -> SetupReport:
    """The report of ``setup``. Each golden query is a gate; for a judged set only the means are.

    ``latencies_ms``: one value per query. ``metrics``: those compared with the ``last`` run.
    """
    means = means_of([a.figures for a in answers], latencies_ms)
    gates = threshold_failures(thresholds, means)
    if last is not None:
        gates += regressions(means, last.means, metrics)
    failed = [a.verdict for a in answers if a.verdict.failures]
    if golden and failed:
        gates.append(f"{len(failed)} of {len(answers)} queries fail")
    if partial:
        gates.append(
            f"{partial} of {len(answers)} answers were partial. Run it again when all services respond in time."
        )
    return SetupReport(
        setup=setup,
        name=setup.name,
        queries=len(answers),
        means=means,
        ndcg=mean_interval([a.figures.ndcg for a in answers]),
        partial=partial,
        gates=gates,
        compared=_compared(answers, last),
        verdicts=[a.verdict for a in answers] if golden else failed[:SHOWN_FAILURES],
    )


def latency_fails(latencies_ms: Sequence[float], last: KeptRun, metrics: Collection[str]) -> bool:
    """Whether these latencies fail the latency gate."""
    return LATENCY in metrics and is_slower(percentile(latencies_ms, 0.95), last.means.p95_ms)


def is_baseline(request: EvalRequest, reports: Sequence[SetupReport]) -> bool:
    """Whether the next run is compared with this one. A run with partial answers is no baseline."""
    if any(one.partial for one in reports):
        return False
    return request.save or (all(one.passed for one in reports) and not request.compare)


def suggestion(
    current: Sequence[QueryResult], tried: Sequence[tuple[Setup, Sequence[QueryResult]]]
) -> Suggestion:
    """The best of ``tried`` by nDCG@10, and whether it is significantly better than the current setup."""
    ours = {a.id: a.figures.ndcg for a in current}
    ranked = sorted(tried, key=lambda pair: (-_ndcg(pair[1]), pair[0].name))
    best, answers = ranked[0]
    over = paired_interval([a.figures.ndcg for a in answers], [ours[a.id] for a in answers])
    return Suggestion(
        best=best,
        name=best.name,
        ndcg_at_10=_ndcg(answers),
        over_current=over,
        worth_it=over.low > 0,
        tried=[(setup.name, _ndcg(found)) for setup, found in ranked],
    )


def candidates() -> list[Setup]:
    """Fusion setups to try."""
    weights = [{"bm25": w, "vector": round(1 - w, 2)} for w in BM25_WEIGHTS]
    fusions = [Fusion(k=k, weights=w) for k in RRF_CONSTANTS for w in weights]
    fusions += [
        Fusion(method=method, weights=w)
        for method in (FusionMethod.WEIGHTED, FusionMethod.DBSF)
        for w in weights
    ]
    fusions += [
        Fusion(method=FusionMethod.AUTO, weights={} if w["bm25"] == w["vector"] else w)
        for w in weights
    ]
    return [Setup(mode=SearchMode.HYBRID, fusion=fusion) for fusion in fusions]


def _ndcg(answers: Sequence[QueryResult]) -> float:
    return math.fsum(a.figures.ndcg for a in answers) / len(answers)


def _compared(answers: Sequence[QueryResult], last: KeptRun | None) -> Comparison | None:
    if last is None:
        return None
    pairs = [
        (a.figures.ndcg, last.ndcg_by_query[a.id]) for a in answers if a.id in last.ndcg_by_query
    ]
    if not pairs:
        return None
    ours, theirs = zip(*pairs, strict=True)
    return Comparison(of=f"the run of {last.created_at}", ndcg_at_10=paired_interval(ours, theirs))
