"""Order: the fused candidates of all containers in the order they are shown in. First the reranker's word on
the head, then what their age adds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from latent_core.domain.errors import Issue
from latent_core.registry import documents, texts
from latent_core.search import freshness
from latent_core.search.dedup import Candidate
from latent_core.search.plan import Plan
from latent_core.search.rerank import Standing, rerank
from latent_core.search.stores import SearchStores

RERANK_SECONDS: Final = 5.0
"""CONTRACT "Retrieval"."""

Key = tuple[str, int]


@dataclass
class Order:
    """The order of one search, kept while it widens: what was reranked once is not asked for again."""

    stores: SearchStores
    plan: Plan
    issue: Issue | None = None
    """Why the fused order stands."""
    reranked: int = 0
    milliseconds: float = 0.0
    _judged: dict[Key, float] | None = None

    @property
    def asks_reranker(self) -> bool:
        """Whether the next order waits for the reranker's word."""
        return bool(self.plan.rerank.head) and self._judged is None

    async def of(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Best first; ties by container, then by ord."""
        ranked = sorted(candidates, key=lambda c: (-c.score, c.container_id, c.ord))
        if self.plan.rerank.head:
            ranked = await self._reranked(ranked)
        if any(part.freshness.enabled for part in self.plan.containers):
            ranked = await self._fresh(ranked)
        return ranked

    async def _reranked(self, ranked: Sequence[Candidate]) -> list[Candidate]:
        head = ranked[: self.plan.rerank.head]
        if self._judged is None:
            standing = [Standing((c.container_id, c.ord), c.score) for c in ranked]
            found = await rerank(
                lambda: self.stores.rerankers.named(self.plan.rerank.provider),
                self.plan.query,
                standing,
                await self._read(head),
                asyncio.get_running_loop().time() + RERANK_SECONDS,
            )
            self.issue, self.reranked, self.milliseconds = (
                found.issue,
                found.reranked,
                found.milliseconds,
            )
            self._judged = {p.key: p.score for p in found.order if p.reranked is not None}
        return _below(ranked, self._judged)

    async def _read(self, head: Sequence[Candidate]) -> dict[Key, str]:
        read: dict[Key, str] = {}
        for container_id in {c.container_id for c in head}:
            ords = [c.ord for c in head if c.container_id == container_id]
            async with self.stores.db.reading() as conn:
                found = await texts.of_ords(conn, container_id, ords)
            read |= {(container_id, ord_): text for ord_, text in found.items()}
        return read

    async def _fresh(self, ranked: Sequence[Candidate]) -> list[Candidate]:
        now = datetime.now(UTC)
        how = {part.container.id: part.freshness for part in self.plan.containers}
        aging = sorted({c.doc_id for c in ranked if how[c.container_id].enabled})
        async with self.stores.db.reading() as conn:
            ages = await documents.ages(conn, aging)
        fresh = []
        for one in ranked:
            modified, fetched = ages.get(one.doc_id, (None, None))
            gain = freshness.factor(how[one.container_id], now, modified, fetched)
            fresh.append(one._replace(score=freshness.boosted(one.score, gain), freshness=gain))
        return sorted(fresh, key=lambda c: (-c.score, c.container_id, c.ord))


def _below(ranked: Sequence[Candidate], judged: Mapping[Key, float]) -> list[Candidate]:
    """The judged ones by their new scores, then the others, whose fused scores are brought below them."""
    if not judged:
        return list(ranked)
    head = [
        c._replace(score=judged[c.container_id, c.ord])
        for c in ranked
        if (c.container_id, c.ord) in judged
    ]
    least = min(c.score for c in head)
    rest = [
        c._replace(score=c.score * least) for c in ranked if (c.container_id, c.ord) not in judged
    ]
    return sorted(head, key=lambda c: -c.score) + rest
