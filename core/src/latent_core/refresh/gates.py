"""Compare both spaces by the container's golden queries before a switch (docs/adr/0009).

The queries run as plain hybrid searches: rerank, freshness and display order do not depend on the space.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Final

from latent_core.db.containers import Container
from latent_core.domain.errors import LatentError, Unavailable
from latent_core.domain.golden import GoldenQuery, GoldenSet
from latent_core.domain.manifest.model import Display, Freshness, Manifest, Rerank, SearchMode
from latent_core.eval.gates import (
    LATENCY,
    NDCG,
    means_of,
    regressions,
    threshold_failures,
)
from latent_core.eval.metrics import QueryFigures, of_golden
from latent_core.eval.timed_search import timed_search
from latent_core.ingest.stage import Checkpoint
from latent_core.search.plan import SearchTarget
from latent_core.search.readable import Readable
from latent_core.search.service import SearchService
from latent_core.wire.evaluation import Means, Setup
from latent_core.wire.refresh import GateReport, SpaceFigures
from latent_core.wire.search import Hit

ROUNDS: Final = 3
"""Runs per query. The shortest time counts, since other load on the machine does not depend on the space."""
SEARCH_SECONDS: Final = 10.0
"""Deadline of one search. It is long, because no user waits and a partial answer cannot be compared."""


class _OldEmbedderFails(Exception):
    """The embedder of the old space does not answer, so only the new space is measured."""


@dataclass(frozen=True, slots=True)
class RefreshGates:
    """Gates of one container. ``service`` belongs to this job: its query cache holds the latest vectors."""

    service: SearchService
    container: Container

    async def compare(
        self,
        golden: GoldenSet,
        old: SearchTarget | None,
        new: SearchTarget,
        checkpoint: Checkpoint,
    ) -> GateReport:
        """Compare both spaces by the same queries; without ``old`` only the thresholds decide."""
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
        """Run the new space, and the old one unless its embedder fails."""
        if old is not None:
            try:
                after, before = await self._run(golden, (new, old), checkpoint, optional=old)
            except _OldEmbedderFails:
                pass  # any other error ends the attempt; the job is retried
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
        """One run per space. Spaces alternate within each query, so that other load slows all of them."""
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
        """Embed the query into the service's cache; returns the milliseconds. A search would only report an embedder's
        error as an issue, but here it decides the outcome of the job."""
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
            raise Unavailable(f"The answer to a golden query was partial: {causes}")
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
