"""Before a switch: the container's golden queries on both spaces (docs/adr/0009), asked of the search service.

As a hybrid search without extras: rerank, freshness and display order are the same for both spaces.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Final

from latent_core.db.containers import Container
from latent_core.domain.errors import LatentError, Unavailable
from latent_core.domain.evaluation import Means, Setup
from latent_core.domain.golden import GoldenQuery, GoldenSet
from latent_core.domain.hit import Hit
from latent_core.domain.manifest.model import Display, Freshness, Manifest, Rerank, SearchMode
from latent_core.domain.refresh import GateReport, SpaceFigures
from latent_core.eval.gates import (
    LATENCY,
    NDCG,
    means_of,
    regressions,
    threshold_failures,
)
from latent_core.eval.metrics import QueryFigures, of_golden
from latent_core.eval.run import timed_search
from latent_core.ingest.stage import Checkpoint
from latent_core.search.plan import SearchTarget
from latent_core.search.readable import Readable
from latent_core.search.service import SearchService

ROUNDS: Final = 3
"""A query's time is its shortest of so many: what else the machine does is no matter of the space."""
SEARCH_SECONDS: Final = 10.0
"""The deadline of one search: nobody waits for it, and an answer that is not whole says nothing."""


class _OldEmbedderFails(Exception):
    """The embedder of the old space does not answer: a reason to change it."""


@dataclass(frozen=True, slots=True)
class RefreshGates:
    """Asks one container. ``service`` is this job's own: its query cache holds what was embedded last."""

    service: SearchService
    container: Container

    async def compare(
        self,
        golden: GoldenSet,
        old: SearchTarget | None,
        new: SearchTarget,
        checkpoint: Checkpoint,
    ) -> GateReport:
        """Both spaces by the same queries; without ``old`` the thresholds alone decide."""
        after, before = await self._both(golden, old, new, checkpoint)
        means = after.means()
        thresholds = golden.thresholds.filled(self.container.manifest.eval.thresholds)
        failures = threshold_failures(thresholds, means)
        if before is not None:
            failures += regressions(means, before.means(), (NDCG, LATENCY))
        return GateReport(
            queries=len(golden.queries),
            old=None if before is None else _measured(before.means()),
            new=_measured(means),
            failures=failures,
        )

    async def _both(
        self,
        golden: GoldenSet,
        old: SearchTarget | None,
        new: SearchTarget,
        checkpoint: Checkpoint,
    ) -> tuple[_QueryRun, _QueryRun | None]:
        """Of the new space, and of the old one unless its embedder does not answer."""
        if old is not None:
            try:
                after, before = await self._run(golden, (new, old), checkpoint, optional=old)
            except _OldEmbedderFails:
                pass  # whatever else goes wrong is tried again by the job
            else:
                return after, before
        (after,) = await self._run(golden, (new,), checkpoint)
        return after, None

    async def _run(
        self,
        golden: GoldenSet,
        targets: Sequence[SearchTarget],
        checkpoint: Checkpoint,
        *,
        optional: SearchTarget | None = None,
    ) -> list[_QueryRun]:
        """A run per space. Each query is asked of one right after the other: what slows the machine slows all."""
        runs = [_QueryRun() for _ in targets]
        for query in golden.queries:
            shortest = [math.inf] * len(targets)
            hits: list[list[Hit]] = [[] for _ in targets]
            for _ in range(ROUNDS):
                for place, target in enumerate(targets):
                    await checkpoint()
                    embed_ms = await self._embed(query, target, target is optional)
                    hits[place], search_ms = await self._search(query, target)
                    shortest[place] = min(shortest[place], embed_ms + search_ms)
            for run, found, milliseconds in zip(runs, hits, shortest, strict=True):
                run.figures.append(of_golden(query, found))
                run.latencies_ms.append(milliseconds)
        return runs

    async def _embed(self, query: GoldenQuery, target: SearchTarget, optional: bool) -> float:
        """Milliseconds. The vector is in the service's cache afterwards. Here, and not in the search, because what keeps
        an embedder from answering decides what becomes of the job, and a search only reports it."""
        begun = perf_counter()
        try:
            vector = await target.embedder.embed_query(query.query)
        except LatentError as error:
            if optional:
                raise _OldEmbedderFails from error
            raise
        self.service.stores.queries.put(target.embedder.model.key, query.query, vector)
        return (perf_counter() - begun) * 1000

    async def _search(self, query: GoldenQuery, target: SearchTarget) -> tuple[list[Hit], float]:
        """Hits, best first, and milliseconds."""
        manifest = _without_extras(self.container.manifest)
        setup = Setup(mode=SearchMode.HYBRID, fusion=manifest.retrieval.fusion)
        container = Readable(replace(self.container, manifest=manifest))
        timed = await timed_search(self.service, container, setup, query.query, target)
        if timed.response.partial:
            causes = "; ".join(issue.message for issue in timed.response.issues)
            raise Unavailable(f"a golden query was not answered in full: {causes}")
        return timed.response.hits, timed.milliseconds


@dataclass(frozen=True, slots=True)
class _QueryRun:
    figures: list[QueryFigures] = field(default_factory=list)
    latencies_ms: list[float] = field(default_factory=list)

    def means(self) -> Means:
        return means_of(self.figures, self.latencies_ms)


def _measured(means: Means) -> SpaceFigures:
    return SpaceFigures(
        ndcg_at_10=round(means.ndcg_at_10, 4),
        recall_at_20=round(means.recall_at_20, 4),
        p50_ms=round(means.p50_ms, 2),
        p95_ms=round(means.p95_ms, 2),
    )


def _without_extras(manifest: Manifest) -> Manifest:
    retrieval = manifest.retrieval.model_copy(update={"rerank": Rerank(), "freshness": Freshness()})
    return manifest.model_copy(update={"retrieval": retrieval, "display": Display()})
