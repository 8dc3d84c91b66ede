"""Explain: what a search did, in words."""

from __future__ import annotations

from collections.abc import Iterator

from latent_core.domain.manifest import Fusion, FusionMethod
from latent_core.search.constraints import quoted
from latent_core.search.order import Order
from latent_core.search.plan import BM25, EXACT, VECTOR, ContainerPlan, Plan

WORDS = {
    BM25: "words (BM25)",
    VECTOR: "meaning (vectors)",
    EXACT: "exact terms, expressions or paths",
}


def in_words(plan: Plan, order: Order) -> list[str]:
    """One sentence a step, in the order of the steps."""
    return list(_steps(plan, order))


def _steps(plan: Plan, order: Order) -> Iterator[str]:
    if plan.by_image:
        yield "What the image says, as far as it is known, was asked for with the query."
    for part in plan.containers:
        yield _container(part)
    if plan.filters:
        yield f"Only chunks that pass the filter: {plan.filters}."
    for phrase in quoted(plan.query):
        yield f'Only chunks that say "{phrase}".'
    if plan.matcher is not None:
        yield f"Only chunks that match what was asked for as it is written: {_exact(plan)}."
    if plan.rerank.head:
        said = f"{order.reranked} candidates" if order.issue is None else "nothing (see the issues)"
        yield f"Of the first {plan.rerank.head} candidates the reranker ordered {said}."
    if any(part.freshness.enabled for part in plan.containers):
        yield "Scores were multiplied by one plus the freshness of their source."
    yield "One hit a document; others of it are listed under it." if plan.dedup else "All chunks."


def _container(part: ContainerPlan) -> str:
    found = ", ".join(WORDS[channel] for channel in part.channels)
    fused = _fusion(part.fusion)
    how = f", fused by {fused}" if len(part.channels) > 1 else ""
    among = " among what has an image" if part.pictured else ""
    seen = " The picture itself was asked with." if part.by_picture else ""
    return f"'{part.container.id}' was searched by {found}{how}{among}.{seen}"


def _fusion(how: Fusion) -> str:
    weights = f" with weights {how.weights}" if how.weights else ""
    return (f"RRF (k={how.k})" if how.method is FusionMethod.RRF else how.method.value) + weights


def _exact(plan: Plan) -> str:
    if plan.matcher is None:
        return ""
    query = plan.matcher.query
    parts = [
        f"all of {list(query.must_terms)}" if query.must_terms else "",
        f"one of {list(query.regexes)}" if query.regexes else "",
        f"path like {query.path_like}" if query.path_like else "",
    ]
    return ", ".join(filter(None, parts))
