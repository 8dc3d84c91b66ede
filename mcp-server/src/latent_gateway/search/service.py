"""One search from request to answer: plan → retrieve → fuse → dedup → hydrate → render."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from latent_core.domain.errors import Issue, IssueCode
from latent_core.domain.hit import Hit
from latent_core.domain.query import Diagnostics, SearchRequest, SearchResponse
from latent_core.observability import Metrics
from latent_gateway.auth.access import Readable
from latent_gateway.search.dedup import Candidate, Group, group
from latent_gateway.search.diagnose import diagnose
from latent_gateway.search.embed import QueryVectors
from latent_gateway.search.fuse import fuse
from latent_gateway.search.hydrate import hydrate
from latent_gateway.search.plan import Plan, make_plan
from latent_gateway.search.render import Links, render
from latent_gateway.search.retrieve import ContainerSearch, Retrieved
from latent_gateway.search.stores import Stores

SLACK: Final = 5
"""More candidates than asked for: some may vanish between the join and the hydration."""
MAX_ROUNDS: Final = 12
GRACE_SECONDS: Final = 0.2
"""What a container may take beyond its channels' deadline, for its joins."""


class Timings:
    """Milliseconds a stage."""

    def __init__(self) -> None:
        self._begun = perf_counter()
        self.stages: dict[str, float] = {}

    def lap(self, stage: str) -> None:
        now = perf_counter()
        self.stages[stage] = round(self.stages.get(stage, 0.0) + (now - self._begun) * 1000, 3)
        self._begun = now


@dataclass
class SearchService:
    """Answers searches over containers that the principal has been shown to be allowed to read."""

    stores: Stores
    links: Links
    deadline_seconds: float
    metrics: Metrics

    async def search(
        self, request: SearchRequest, readable: Mapping[str, Readable]
    ) -> SearchResponse:
        timings = Timings()
        plan = make_plan(request, readable, list(readable), self.deadline_seconds)
        vectors = QueryVectors(self.stores.embedders, plan.query)
        searches = [ContainerSearch(self.stores, plan, part, vectors) for part in plan.containers]
        timings.lap("plan")
        try:
            hits, retrieved = await self._rounds(plan, searches, timings)
        finally:
            await vectors.close()
        timings.stages["embed"] = round(vectors.milliseconds, 3)
        answer = _answer(plan, hits, retrieved, timings)
        self._measure(retrieved, answer.timings)
        return answer

    def _measure(self, retrieved: Sequence[Retrieved], milliseconds: Mapping[str, float]) -> None:
        self.metrics.candidates.inc(sum(r.status.candidates for r in retrieved))
        self.metrics.stale.inc(sum(r.status.stale for r in retrieved))
        for stage, spent in milliseconds.items():
            self.metrics.search_seconds.labels(stage).observe(spent / 1000)

    async def _rounds(
        self, plan: Plan, searches: Sequence[ContainerSearch], timings: Timings
    ) -> tuple[list[Hit], list[Retrieved]]:
        """Retrieve and hydrate until ``top_k`` is filled or nothing is left (DESIGN §7.2)."""
        wanted = plan.top_k + SLACK
        hits: list[Hit] = []
        retrieved: list[Retrieved] = []
        for _ in range(MAX_ROUNDS):
            retrieved = await asyncio.gather(*(_bounded(s, wanted, plan) for s in searches))
            timings.lap("retrieve")
            groups = group([c for r in retrieved for c in _candidates(r)], by_document=plan.dedup)
            timings.lap("fuse")
            hits = await self._hits(plan, groups, retrieved)
            timings.lap("hydrate")
            if len(hits) >= plan.top_k or all(s.finished for s in searches):
                break
            wanted *= 2
        return hits, retrieved

    async def _hits(
        self, plan: Plan, groups: Sequence[Group], retrieved: Sequence[Retrieved]
    ) -> list[Hit]:
        """The best groups that are still visible, rendered; what vanished meanwhile is made up for by the next."""
        hits: list[Hit] = []
        start = 0
        while len(hits) < plan.top_k and start < len(groups):
            head = groups[start : start + plan.top_k - len(hits)]
            start += len(head)
            found = await hydrate(self.stores.db, head)
            hits += render(head, found, retrieved, self.links)
        return hits


async def _bounded(search: ContainerSearch, wanted: int, plan: Plan) -> Retrieved:
    try:
        async with asyncio.timeout(plan.deadline_seconds + GRACE_SECONDS):
            return await search.run(wanted)
    except TimeoutError:
        result, container = search.result, search.result.plan.container.id
        result.status.ok = False
        result.issues.append(
            Issue(
                code=IssueCode.TIMEOUT,
                message=f"container '{container}' did not answer within {plan.deadline_seconds:g} s",
                details={"container_id": container},
            )
        )
        return result


def _candidates(retrieved: Retrieved) -> list[Candidate]:
    fused = fuse(retrieved.lists, retrieved.plan.container.manifest.retrieval.fusion)
    container = retrieved.plan.container.id
    return [Candidate(container, f.ord, retrieved.documents[f.ord], f.score) for f in fused]


def _answer(
    plan: Plan, hits: list[Hit], retrieved: Sequence[Retrieved], timings: Timings
) -> SearchResponse:
    timings.lap("render")
    issues = [issue for r in retrieved for issue in r.issues]
    if not hits and not issues:
        issues.append(
            Issue(code=IssueCode.NO_HITS, message="nothing in these containers matches the query")
        )
    diagnostics: Diagnostics | None = (
        diagnose(plan, retrieved, timings.stages) if plan.diagnostics else None
    )
    return SearchResponse(
        hits=hits,
        diagnostics=diagnostics,
        partial=any(r.issues for r in retrieved),
        issues=issues,
        timings=timings.stages,
        exhausted=[r.plan.container.id for r in retrieved if r.status.exhausted],
    )
