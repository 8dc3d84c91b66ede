"""Diagnostics: how an answer came about (CONTRACT "Hit, Diagnostics")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from latent_core.domain.hit import Hit
from latent_core.domain.query import Diagnostics, StageScore
from latent_core.search.explain import in_words
from latent_core.search.order import Order
from latent_core.search.plan import BM25, EXACT, VECTOR, Plan
from latent_core.search.retrieve import Retrieved

CHANNELS = (BM25, VECTOR, EXACT)
SHOWN = 50
"""Candidates a channel and container that the diagnostics list."""


def diagnose(
    plan: Plan,
    order: Order,
    retrieved: Sequence[Retrieved],
    hits: Sequence[Hit],
    timings: Mapping[str, float],
) -> Diagnostics:
    """Scores by stage, timings, filters and what became of each container."""
    stages = {channel: _scores(channel, retrieved) for channel in CHANNELS}
    slowest = {
        channel: max((r.status.timings_ms.get(channel, 0.0) for r in retrieved), default=0.0)
        for channel in CHANNELS
    }
    candidates = sum(len(r.documents) for r in retrieved)
    return Diagnostics(
        stage_scores=stages,
        timings_ms={**timings, **slowest, "rerank": order.milliseconds},
        candidates_before_rerank=candidates,
        candidates_after_rerank=order.reranked or candidates,
        freshness_factor=_freshness(plan, hits),
        plan=in_words(plan, order) if plan.explain else [],
        applied_filters=plan.filters,
        container_status=[r.status for r in retrieved],
        terms={r.plan.container.id: r.terms for r in retrieved},
    )


def _freshness(plan: Plan, hits: Sequence[Hit]) -> float | None:
    """Of the first hit, where its container counts it."""
    counting = {part.container.id for part in plan.containers if part.freshness.enabled}
    first = next(iter(hits), None)
    if first is None or first.container_id not in counting or not first.base_score:
        return None
    return round(first.freshness, 6)


def _scores(channel: str, retrieved: Sequence[Retrieved]) -> list[StageScore]:
    return [
        StageScore(
            container_id=r.plan.container.id,
            ord=ord_,
            doc_id=r.documents[ord_],
            rank=rank,
            score=score,
        )
        for r in retrieved
        if (ranked := r.lists.get(channel))
        for rank, (ord_, score) in enumerate(
            zip(ranked.ords[:SHOWN], ranked.scores[:SHOWN], strict=True), start=1
        )
    ]
