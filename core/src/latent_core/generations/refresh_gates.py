"""Before a switch: the container's golden queries on both spaces (docs/adr/0009).

Asked here as a hybrid search is made, without its extras: both channels, fused by RRF, joined on what is live.
What lies beyond (filters, rerank, freshness) is the same for both spaces.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, Final
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from latent_core.domain.errors import LatentError
from latent_core.domain.golden import (
    Figures,
    GoldenQuery,
    GoldenSet,
    Latency,
    measure,
    percentile,
    regressions,
    threshold_gates,
)
from latent_core.domain.refresh import GateReport, Measured
from latent_core.domain.vector import Vector
from latent_core.embedding.port import Embedder
from latent_core.ingest.stage import Checkpoint
from latent_core.keywords.analyser import query_terms
from latent_core.keywords.port import KeywordIndex
from latent_core.registry import chunks
from latent_core.registry.conditions import Condition
from latent_core.registry.connection import Database
from latent_core.registry.containers import Container, Space
from latent_core.vectors.port import VectorIndex

DEPTH: Final = 100
SHOWN: Final = 60
"""Chunks whose rows are read: more than the documents that are judged."""
ROUNDS: Final = 3
"""A query's time is its shortest of so many: what else the machine does is no matter of the space."""
NOTICEABLE_MS: Final = 5.0
"""A smaller difference of the p95 says nothing, whatever its share."""
KEYWORD_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Found:
    """A chunk, as far as golden queries judge it."""

    doc_id: UUID
    source_uri: str
    external_id: str | None
    title: str
    text: str | None
    snippet: str = ""


@dataclass(frozen=True, slots=True)
class Searched:
    """A space as it can be asked."""

    space: Space
    embedder: Embedder
    may_be_away: bool = False
    """Whether it is left out when its embedder does not answer."""


class _Away(Exception):
    """The embedder of one that may be away did not answer."""


@dataclass(frozen=True, slots=True)
class Gates:
    """Asks one container."""

    db: Database
    vectors: VectorIndex
    keywords: KeywordIndex
    container: Container

    async def compare(
        self, golden: GoldenSet, old: Searched | None, new: Searched, checkpoint: Checkpoint
    ) -> GateReport:
        """Both spaces by the same queries; without ``old`` the thresholds alone decide."""
        after, before = await self._both(golden, old, new, checkpoint)
        mean, latency = after.means()
        thresholds = golden.thresholds.filled(self.container.manifest.eval.thresholds)
        failures = threshold_gates(thresholds, mean, latency)
        if before is not None:
            mean_before, latency_before = before.means()
            if latency.p95_ms < latency_before.p95_ms + NOTICEABLE_MS:
                latency = latency_before
            failures += regressions(mean, latency, (mean_before, latency_before))
        return GateReport(
            queries=len(golden.queries),
            old=None if before is None else before.measured(),
            new=after.measured(),
            failures=failures,
        )

    async def _both(
        self, golden: GoldenSet, old: Searched | None, new: Searched, checkpoint: Checkpoint
    ) -> tuple[_Run, _Run | None]:
        """Of the new space, and of the old one unless its embedder is away: a reason to change it."""
        if old is not None:
            both = (new, replace(old, may_be_away=True))
            try:
                after, before = await self._run(golden, both, checkpoint)
            except _Away:
                pass  # whatever else goes wrong is tried again by the job
            else:
                return after, before
        (after,) = await self._run(golden, (new,), checkpoint)
        return after, None

    async def _run(
        self, golden: GoldenSet, asked: Sequence[Searched], checkpoint: Checkpoint
    ) -> list[_Run]:
        """A run a space. Each query is asked of one right after the other: what slows the machine slows all."""
        runs = [_Run() for _ in asked]
        for query in golden.queries:
            shortest = [math.inf] * len(asked)
            hits: list[list[Found]] = [[] for _ in asked]
            for _ in range(ROUNDS):
                for place, one in enumerate(asked):
                    await checkpoint()
                    hits[place], took = await self._timed(query, one)
                    shortest[place] = min(shortest[place], took)
            for run, found, took in zip(runs, hits, shortest, strict=True):
                run.figures.append(measure(query, found))
                run.times_ms.append(took)
        return runs

    async def _timed(self, query: GoldenQuery, asked: Searched) -> tuple[list[Found], float]:
        begun = perf_counter()
        hits = await self._hits(query, asked)
        return hits, (perf_counter() - begun) * 1000

    async def _hits(self, query: GoldenQuery, asked: Searched) -> list[Found]:
        """Best first."""
        vector = await _vector(query, asked)
        lists = [await self._near(asked.space, vector), await self._worded(query.query)]
        fused = _fused(lists, self.container.manifest.retrieval.fusion.k)
        async with self.db.reading() as conn:
            live = await chunks.live(
                conn, self.container.id, np.array(list(fused), np.int64), Condition()
            )
            best = sorted(live, key=lambda ord_: (-fused[ord_], ord_))[:SHOWN]
            rows = await chunks.hydrate(conn, self.container.id, best)
        return [_found(rows[ord_]) for ord_ in best if ord_ in rows]

    async def _near(self, space: Space, vector: Vector) -> NDArray[np.int64]:
        found = await self.vectors.search(space.collection(), vector, DEPTH)
        _, first = np.unique(found.ords, return_index=True)
        return found.ords[np.sort(first)]

    async def _worded(self, query: str) -> NDArray[np.int64]:
        terms = query_terms(query, self.container.languages)
        found = await self.keywords.search(
            self.container.id, terms, DEPTH, timeout_seconds=KEYWORD_SECONDS
        )
        return found.ords


@dataclass(frozen=True, slots=True)
class _Run:
    figures: list[Figures] = field(default_factory=list)
    times_ms: list[float] = field(default_factory=list)

    def means(self) -> tuple[Figures, Latency]:
        count = len(self.figures)
        mean = Figures(
            ndcg=math.fsum(one.ndcg for one in self.figures) / count,
            recall=math.fsum(one.recall for one in self.figures) / count,
        )
        return mean, Latency(percentile(self.times_ms, 0.5), percentile(self.times_ms, 0.95))

    def measured(self) -> Measured:
        mean, latency = self.means()
        return Measured(
            ndcg_at_10=round(mean.ndcg, 4),
            recall_at_20=round(mean.recall, 4),
            p50_ms=round(latency.p50_ms, 2),
            p95_ms=round(latency.p95_ms, 2),
        )


async def _vector(query: GoldenQuery, asked: Searched) -> Vector:
    try:
        return await asked.embedder.embed_query(query.query)
    except LatentError as error:
        if asked.may_be_away:
            raise _Away from error
        raise


def _fused(lists: Sequence[NDArray[np.int64]], k: int) -> dict[int, float]:
    """RRF, ranks counted from one."""
    scores: dict[int, float] = {}
    for ranked in lists:
        for rank, ord_ in enumerate(ranked.tolist(), start=1):
            scores[ord_] = scores.get(ord_, 0.0) + 1.0 / (k + rank)
    return scores


def _found(row: dict[str, Any]) -> Found:
    return Found(
        doc_id=row["doc_id"],
        source_uri=row["uri"],
        external_id=row["external_id"],
        title=row["title"] or row["uri"],
        text=row["text"],
    )
