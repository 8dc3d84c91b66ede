"""The plan of a search: which channels run on which containers, how deep and until when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, assert_never

from latent_core.domain.errors import Forbidden, Invalid
from latent_core.domain.manifest import Freshness, SearchMode
from latent_core.domain.query import Detail, SearchRequest
from latent_core.registry.conditions import Condition
from latent_core.registry.containers import Container
from latent_core.rerank.resolve import Provider
from latent_gateway.search.exact import ExactQuery, Matcher
from latent_gateway.search.filters import read_filters
from latent_gateway.search.paging import offset_of
from latent_gateway.search.rerank import head_size

DEPTH: Final = 100
"""Candidates a channel gives at first (CONTRACT "Retrieval")."""
MAX_DEPTH: Final = DEPTH * 2**14

VECTOR: Final = "vector"
BM25: Final = "bm25"
EXACT: Final = "exact"
EXACT_SECONDS: Final = 2.5
"""A container's deadline when texts have to be read: two seconds for its channels."""


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """What is done in one container."""

    container: Container
    mode: SearchMode
    channels: tuple[str, ...]
    condition: Condition
    """What the filter asks of its chunks."""

    @property
    def freshness(self) -> Freshness:
        return self.container.manifest.retrieval.freshness


@dataclass(frozen=True, slots=True)
class RerankPlan:
    """What is reranked, and by whom."""

    head: int
    """Candidates; 0 for none."""
    provider: Provider


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done for one request. ``deadline_seconds`` is each container's own."""

    query: str
    containers: tuple[ContainerPlan, ...]
    filters: dict[str, Any]
    """The filter as it was understood."""
    matcher: Matcher | None
    """What hits must hold as it is written."""
    rerank: RerankPlan
    offset: int
    """Hits of the pages before."""
    top_k: int
    neighbours: int
    detail: Detail
    max_chars: int | None
    explain: bool
    dedup: bool
    deadline_seconds: float
    diagnostics: bool


def make_plan(
    request: SearchRequest,
    containers: Mapping[str, Container],
    wanted: Sequence[str],
    deadline_seconds: float,
) -> Plan:
    """Plan a search over ``wanted`` (ids that the principal may read, each once)."""
    exact = _exact(request)
    worded = bool(request.query.strip())
    if not worded and not exact:
        raise Invalid(
            "the query is empty: give it at least one word, or must_terms, regexes or path_like"
        )
    if request.image_ref is not None:
        raise Forbidden("search by image is not offered yet; describe the picture in words")
    chosen = [containers[c] for c in wanted]
    filters = read_filters(request.filters, [c.manifest for c in chosen])
    plans = tuple(
        _container_plan(
            c, request.mode or c.manifest.retrieval.mode_default, condition, worded, bool(exact)
        )
        for c, condition in zip(chosen, filters.conditions, strict=True)
    )
    shown = request.diagnostics
    return Plan(
        query=request.query,
        containers=plans,
        filters=filters.shown,
        matcher=Matcher(exact) if exact else None,
        rerank=_rerank(request, plans) if worded else RerankPlan(0, "none"),
        offset=offset_of(request),
        top_k=request.top_k,
        neighbours=request.neighbours,
        detail=request.detail,
        max_chars=request.max_chars,
        explain=request.explain,
        dedup=request.dedup,
        deadline_seconds=max(deadline_seconds, EXACT_SECONDS) if exact else deadline_seconds,
        diagnostics=request.explain
        or (
            any(c.manifest.retrieval.debug.return_diagnostics for c in chosen)
            if shown is None
            else shown
        ),
    )


def _rerank(request: SearchRequest, plans: Sequence[ContainerPlan]) -> RerankPlan:
    """The longest head any of the containers asks for, by the reranker of the first that does."""
    asking = [
        (head_size(p.mode, p.container.manifest.retrieval.rerank, request.asked_rerank_k), p)
        for p in plans
    ]
    head = max((size for size, _ in asking), default=0)
    first = next((p for size, p in asking if size), None)
    provider = first.container.manifest.retrieval.rerank.provider if first else "none"
    return RerankPlan(head, provider)


def _exact(request: SearchRequest) -> ExactQuery:
    return ExactQuery(
        tuple(dict.fromkeys(request.must_terms)),
        tuple(dict.fromkeys(request.regexes)),
        request.path_like,
        request.ignore_case,
    )


def _container_plan(
    container: Container, mode: SearchMode, condition: Condition, worded: bool, exact: bool
) -> ContainerPlan:
    channels = (*(_channels(mode) if worded else ()), *((EXACT,) if exact else ()))
    return ContainerPlan(container, mode, channels, condition)


def _channels(mode: SearchMode) -> tuple[str, ...]:
    match mode:
        case SearchMode.SEMANTIC:
            return (VECTOR,)
        case SearchMode.LEXICAL:
            return (BM25,)
        case SearchMode.HYBRID | SearchMode.RERANK:
            return (BM25, VECTOR)
        case SearchMode.MULTIVECTOR | SearchMode.CROSSMODAL:
            raise Forbidden(
                f"mode '{mode.value}' is not offered yet; use hybrid, semantic, lexical or rerank",
                mode=mode.value,
            )
        case _:
            assert_never(mode)
