"""Diagnostics: how an answer came about (CONTRACT "Hit, Diagnostics")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from latent_core.domain.query import Diagnostics, StageScore
from latent_gateway.search.filters import shown
from latent_gateway.search.plan import BM25, VECTOR, Plan
from latent_gateway.search.retrieve import Retrieved

SHOWN = 50
"""Candidates a channel and container that the diagnostics list."""


def diagnose(
    plan: Plan, retrieved: Sequence[Retrieved], timings: Mapping[str, float]
) -> Diagnostics:
    """Scores by stage, timings, filters and what became of each container."""
    stages = {channel: _scores(channel, retrieved) for channel in (BM25, VECTOR)}
    slowest = {
        channel: max((r.status.timings_ms.get(channel, 0.0) for r in retrieved), default=0.0)
        for channel in (BM25, VECTOR)
    }
    candidates = sum(len(r.documents) for r in retrieved)
    return Diagnostics(
        stage_scores=stages,
        timings_ms={**timings, **slowest, "rerank": 0.0},
        candidates_before_rerank=candidates,
        candidates_after_rerank=candidates,
        applied_filters=shown(plan.condition),
        container_status=[r.status for r in retrieved],
        terms={r.plan.container.id: r.terms for r in retrieved},
    )


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
