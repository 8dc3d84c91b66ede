"""What a reranker gains and costs in one container: its default mode with and without, query by query."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from latent_core.db.containers import Container
from latent_core.domain.errors import Unavailable
from latent_core.domain.golden import GoldenQuery
from latent_core.domain.manifest.model import Rerank, SearchMode
from latent_core.eval.datasets import judged
from latent_core.eval.gates import percentile
from latent_core.eval.metrics import QueryFigures
from latent_core.eval.reporting import paired_interval
from latent_core.eval.timed_search import TimedSearch
from latent_core.models.rerank.resolve import Rerankers
from latent_core.search.readable import Readable
from latent_core.wire.evaluation import (
    MAX_RERANKED,
    JudgedQuery,
    RerankFigures,
    RerankReport,
    Setup,
)
from latent_core.wire.search import MAX_TOP_K, SearchResponse

STAGE: Final = "rerank"
"""``details.stage`` of the issue of a search whose hits were reranked in part or not at all."""

OnQuery = Callable[[], Awaitable[None]]
TimedSearches = Callable[[Readable, Setup, str], Awaitable[TimedSearch]]
Query = GoldenQuery | JudgedQuery


def reranked_queries(queries: Sequence[Query]) -> Sequence[Query]:
    return queries[:MAX_RERANKED]


def missing_reranker(rerankers: Rerankers, container: Container) -> str | None:
    """Why the container's reranker is not there and how to get one; None if it is."""
    try:
        rerankers.named(container.manifest.retrieval.rerank.provider)
    except Unavailable as error:
        return error.message
    return None


async def compare_reranking(
    search: TimedSearches, container: Readable, queries: Sequence[Query], on_query: OnQuery
) -> RerankReport:
    """The container's default mode with and without its reranker; both searches of a query are timed once.

    The first search of all and the first one of each query are not measured: they load models and fill caches, which
    would count for one side only. Each search has its own deadline.
    """
    setup = _setup(container)
    plain, reranked = _with(container, enabled=False), _with(container, enabled=True)
    without, with_reranker = _Side(), _Side()
    partial: list[str] = []
    await search(reranked, setup, queries[0].query)
    for query in queries:
        await search(plain, setup, query.query)
        without.add(query, await search(plain, setup, query.query))
        timed = await search(reranked, setup, query.query)
        with_reranker.add(query, timed)
        if (why := _shortfall(timed.response)) is not None:
            partial.append(why)
        await on_query()
    before, after = without.figures(), with_reranker.figures()
    gain = paired_interval(with_reranker.ndcgs(), without.ndcgs())
    return RerankReport(
        setup=setup.name,
        queries=len(queries),
        without=before,
        reranked=after,
        gain=gain,
        partial=len(partial),
        cause=partial[0] if partial else "",
        summary=_summary(before, after),
    )


@dataclass(slots=True)
class _Side:
    answers: list[QueryFigures] = field(default_factory=list)
    latencies_ms: list[float] = field(default_factory=list)

    def add(self, query: Query, timed: TimedSearch) -> None:
        self.answers.append(judged(query, timed.response.hits).figures)
        self.latencies_ms.append(timed.milliseconds)

    def ndcgs(self) -> list[float]:
        return [one.ndcg for one in self.answers]

    def figures(self) -> RerankFigures:
        n = len(self.answers)
        return RerankFigures(
            ndcg_at_10=math.fsum(self.ndcgs()) / n,
            recall_at_20=math.fsum(one.recall_20 for one in self.answers) / n,
            hit_at_1=math.fsum(one.hit_1 for one in self.answers) / n,
            p50_ms=percentile(self.latencies_ms, 0.50),
            p95_ms=percentile(self.latencies_ms, 0.95),
        )


def _setup(container: Container) -> Setup:
    """The container's default; mode rerank is hybrid search with a reranker."""
    retrieval = container.manifest.retrieval
    mode = retrieval.mode_default
    return Setup(
        mode=SearchMode.HYBRID if mode is SearchMode.RERANK else mode, fusion=retrieval.fusion
    )


def _with(container: Readable, *, enabled: bool) -> Readable:
    """The container with reranking on or off. All hits are kept, and not only ``top_k_out``: recall@20 then shows the
    order of the reranker and not the length of the answer."""
    retrieval = container.manifest.retrieval
    how: Rerank = retrieval.rerank.model_copy(update={"enabled": enabled, "top_k_out": MAX_TOP_K})
    manifest = container.manifest.model_copy(
        update={"retrieval": retrieval.model_copy(update={"rerank": how})}
    )
    return replace(container, manifest=manifest)


def _shortfall(response: SearchResponse) -> str | None:
    """Why the answer is incomplete or its head not fully reranked; None if all is well."""
    for issue in response.issues:
        if issue.details.get("stage") == STAGE:
            return issue.message
    if not response.partial:
        return None
    return response.issues[0].message if response.issues else "the answer was incomplete"


def _summary(before: RerankFigures, after: RerankFigures) -> str:
    quality = f"nDCG@10 {_share(before.ndcg_at_10)} → {_share(after.ndcg_at_10)}"
    return f"reranking: {quality}, {after.p95_ms - before.p95_ms:+.0f} ms at p95"


def _share(value: float) -> str:
    """Two digits without the leading zero: .61."""
    return f"{value:.2f}".removeprefix("0")
