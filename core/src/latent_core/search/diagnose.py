"""Diagnostics: how an answer was computed (CONTRACT "Hit, Diagnostics")."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from latent_core.bm25.names import is_name
from latent_core.domain.manifest.model import Fusion, FusionMethod
from latent_core.search.constraints import PROSE_WORDS, has_quotes, quoted
from latent_core.search.container_search import ContainerCandidates
from latent_core.search.merge import merged
from latent_core.search.plan import BM25, EXACT, SUMMARIES, VECTOR, ContainerPlan, SearchPlan
from latent_core.search.ranking import SearchOrder
from latent_core.search.shares import influence
from latent_core.wire.search import ContainerStatus, Diagnostics, Hit, StageScore

CHANNELS = (BM25, VECTOR, EXACT, SUMMARIES)
SHOWN = 50
"""Candidates that the diagnostics list per channel and container."""


def diagnose(
    plan: SearchPlan,
    order: SearchOrder,
    retrieved: Sequence[ContainerCandidates],
    hits: Sequence[Hit],
    timings: Mapping[str, float],
) -> Diagnostics:
    """Scores by stage, timings, filters and the status of each container."""
    stages = {channel: _scores(channel, retrieved) for channel in CHANNELS}
    slowest = {
        channel: max((r.status.timings_ms.get(channel, 0.0) for r in retrieved), default=0.0)
        for channel in CHANNELS
    }
    candidates = sum(len(r.documents) for r in retrieved)
    influences = _influences(retrieved)
    return Diagnostics(
        stage_scores=stages,
        timings_ms={**timings, **slowest, "rerank": order.milliseconds},
        candidates_before_rerank=candidates,
        candidates_after_rerank=order.reranked or candidates,
        freshness_factor=_freshness(plan, hits),
        plan=in_words(plan, order, influences) if plan.explain else [],
        influence=influences,
        applied_filters=plan.filters,
        container_status=[_status(r) for r in retrieved],
        terms={
            r.plan.container.id: [term for term in r.terms if not is_name(term)]
            for r in retrieved
            if not r.plan.container.is_empty
        },
    )


def _status(retrieved: ContainerCandidates) -> ContainerStatus:
    lengths = {name: len(ranked.keys) for name, ranked in sorted(retrieved.lists.items())}
    return retrieved.status.model_copy(update={"list_lengths": lengths})


def _freshness(plan: SearchPlan, hits: Sequence[Hit]) -> float | None:
    """Of the first hit, where its container counts it."""
    counting = {part.container.id for part in plan.containers if part.freshness.enabled}
    first = next(iter(hits), None)
    if first is None or first.container_id not in counting or not first.base_score:
        return None
    return round(first.freshness, 6)


def _scores(channel: str, retrieved: Sequence[ContainerCandidates]) -> list[StageScore]:
    return [
        StageScore(
            container_id=r.plan.container.id,
            chunk_no=chunk_no,
            doc_id=r.documents[chunk_no],
            rank=rank,
            score=score,
        )
        for r in retrieved
        if (ranked := r.lists.get(channel))
        for rank, (chunk_no, score) in enumerate(
            zip(ranked.keys[:SHOWN], ranked.scores[:SHOWN], strict=True), start=1
        )
    ]


WORDS = {
    BM25: "words (BM25)",
    VECTOR: "meaning (vectors)",
    EXACT: "exact terms, expressions or paths",
    SUMMARIES: "summaries",
}


def in_words(
    plan: SearchPlan, order: SearchOrder, influences: Mapping[str, Mapping[str, float]]
) -> list[str]:
    """One sentence per step, in the order of the steps."""
    return list(_steps(plan, order, influences))


def _steps(
    plan: SearchPlan, order: SearchOrder, influences: Mapping[str, Mapping[str, float]]
) -> Iterator[str]:
    if plan.by_image:
        yield "The query includes the text of the image, as far as it is known."
    if plan.like is not None:
        words = ", ".join(plan.like.terms)
        yield f"Compared with document {plan.like.doc_id}: its vector, and the words {words}."
    for part in plan.containers:
        yield _container(part, influences.get(part.container.id, {}))
    if len(plan.containers) > 1:
        yield (
            "Each container's hits keep their own order. Their places among those of the others come from scores that "
            "compare: BM25 by the statistics of all containers, and cosines."
        )
    if plan.min_score is not None:
        yield f"Only chunks with a relevance of {plan.min_score:g} or more."
    if plan.filters:
        yield f"Only chunks that pass the filter: {plan.filters}."
    phrases = quoted(plan.query)
    for phrase in phrases:
        yield f'Only chunks that contain "{phrase}" in this form: no stems, but any case, accents and punctuation.'
    if not phrases and has_quotes(plan.query):
        yield f"The quotes have no effect: the query has more than {PROSE_WORDS} words outside them."
    if plan.matcher is not None:
        yield f"Only chunks with exact matches: {_exact(plan)}."
    if plan.rerank.head:
        scope = (
            f"{order.reranked} of them"
            if order.issue is None and order.reranked
            else "none of them (see the issues)"
        )
        yield f"The reranker received the first {plan.rerank.head} candidates and ordered {scope}."
    if any(part.freshness.enabled for part in plan.containers):
        yield "Each score was multiplied by 1 + the freshness of its source."
    yield (
        "One hit per document; its other chunks are listed under it."
        if plan.dedup
        else "All chunks."
    )


def _influences(retrieved: Sequence[ContainerCandidates]) -> dict[str, dict[str, float]]:
    """Of each channel on the order, for containers whose channels are fused by ``auto``."""
    fused = [
        r
        for r in retrieved
        if r.plan.fusion.method is FusionMethod.AUTO and len(r.plan.channels) > 1
    ]
    if not fused:
        return {}
    lists = merged(retrieved)
    found: dict[str, dict[str, float]] = {}
    for r in fused:
        scores = {name: lists[name].scores for name in r.lists}
        shares = influence(scores, r.plan.fusion.weights)
        found[r.plan.container.id] = {name: round(share, 4) for name, share in shares.items()}
    return found


def _container(part: ContainerPlan, influence_of: Mapping[str, float]) -> str:
    if part.container.is_empty:
        return f"'{part.container.id}' holds no text or image yet."
    found = ", ".join(WORDS[channel] for channel in part.channels)
    fused = _fusion(part.fusion)
    if influence_of:
        fused += f" ({', '.join(f'{WORDS[c]} {share:.0%}' for c, share in influence_of.items())})"
    how = f", fused by {fused}" if len(part.channels) > 1 else ""
    among = ", only chunks with an image" if part.pictured else ""
    seen = " The image itself was embedded as the query." if part.by_picture else ""
    return f"'{part.container.id}' was searched by {found}{how}{among}.{seen}"


def _fusion(how: Fusion) -> str:
    weights = f" with weights {how.weights}" if how.weights else ""
    return (f"RRF (k={how.k})" if how.method is FusionMethod.RRF else how.method.value) + weights


def _exact(plan: SearchPlan) -> str:
    if plan.matcher is None:
        return ""
    query = plan.matcher.query
    parts = [
        f"all of {list(query.must_terms)}" if query.must_terms else "",
        f"one of {list(query.regexes)}" if query.regexes else "",
        f"path like {query.path_like}" if query.path_like else "",
    ]
    return ", ".join(filter(None, parts))
