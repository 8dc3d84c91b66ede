"""Order the fused candidates of all containers: rerank the head, apply freshness, remove near-duplicates."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple
from uuid import UUID

from latent_core.db.documents import chunk_texts, documents
from latent_core.domain.errors import Issue
from latent_core.domain.manifest.model import Freshness
from latent_core.search.plan import SearchPlan
from latent_core.search.readable import SearchStores
from latent_core.search.rerank import RerankInput, rerank
from latent_core.wire.search import Hit

MAX_OTHERS: Final = 10
"""Further chunks of the same document that a hit lists."""
MAX_DUPLICATES: Final = 10
"""Near-duplicates in other documents that a hit lists."""


class RankedCandidate(NamedTuple):
    """A chunk that may be shown. A search creates hundreds: a tuple takes a third of a dataclass's time."""

    container_id: str
    chunk_no: int
    doc_id: UUID
    score: float
    """The sort key; may exceed 1 after freshness."""
    base: float = 0.0
    """Fused, 0..1."""
    freshness: float = 0.0
    """``latent_core.search.ranking.freshness_factor``"""
    rrf: float = 0.0
    """The tie-break of fusion, before any other."""
    relevance: float | None = None
    """``latent_core.search.relevance``"""


def best_first(candidate: RankedCandidate) -> tuple[float, float, str, int]:
    """A sort key: ties by RRF, then by container and chunk_no."""
    return -candidate.score, -candidate.rrf, candidate.container_id, candidate.chunk_no


class Group(NamedTuple):
    """The future hits of a document: its best chunk and its other matching chunks."""

    best: RankedCandidate
    passages: tuple[RankedCandidate, ...] = ()
    """Further chunks of the document that are shown as hits."""
    others: tuple[RankedCandidate, ...] = ()
    duplicates: tuple[RankedCandidate, ...] = ()
    """Best chunks of other documents' groups that repeat one of this document."""


def group(
    candidates: Sequence[RankedCandidate], *, by_document: bool, passages: int = 1, head: int = 0
) -> list[Group]:
    """Best first, as ``best_first``. With ``by_document`` each document appears once, with up to
    ``passages`` chunks: its best one, and others that are among the ``head`` best candidates."""
    ranked = sorted(candidates, key=best_first)
    if not by_document:
        return [Group(c) for c in ranked]
    members: dict[UUID, list[RankedCandidate]] = {}
    for candidate in ranked:
        members.setdefault(candidate.doc_id, []).append(candidate)
    strong = {(c.container_id, c.chunk_no) for c in ranked[:head]} if passages > 1 else set()
    return [_of_document(m, passages, strong) for m in members.values()]


def _of_document(
    members: Sequence[RankedCandidate], passages: int, strong: Set[tuple[str, int]]
) -> Group:
    best, *rest = members
    shown = [c for c in rest[: passages - 1] if (c.container_id, c.chunk_no) in strong]
    return Group(best, tuple(shown), tuple(rest[len(shown) : len(shown) + MAX_OTHERS]))


def collapse(groups: Sequence[Group], repeated: Mapping[UUID, UUID]) -> list[Group]:
    """Put groups that repeat each other under the best of them, not under the oldest.

    ``repeated`` maps a document to the document whose chunk its best chunk repeats. Only documents with a group of
    their own count: an original that is no candidate hides nothing.
    """
    known = {g.best.doc_id for g in groups}
    parents: dict[UUID, UUID] = {}
    for one in groups:
        child, parent = one.best.doc_id, repeated.get(one.best.doc_id)
        if parent in known and _root(parent, parents) != child:
            parents[child] = parent
    members: dict[UUID, list[Group]] = {}
    for one in groups:
        members.setdefault(_root(one.best.doc_id, parents), []).append(one)
    return [
        best._replace(duplicates=_duplicates(best, others)) for best, *others in members.values()
    ]


def _duplicates(best: Group, others: Sequence[Group]) -> tuple[RankedCandidate, ...]:
    found = [*best.duplicates, *(c for g in others for c in (g.best, *g.duplicates))]
    return tuple(found[:MAX_DUPLICATES])


def copies(
    groups: Sequence[Group], content_hashes: Mapping[tuple[str, int], str]
) -> dict[UUID, UUID]:
    """Each document whose best chunk has the text of a better one in another container, with that document."""
    first: dict[str, RankedCandidate] = {}
    found: dict[UUID, UUID] = {}
    for one in groups:
        best = one.best
        text = content_hashes.get((best.container_id, best.chunk_no))
        if text is None:
            continue
        original = first.setdefault(text, best)
        if original.container_id != best.container_id:
            found[best.doc_id] = original.doc_id
    return found


def _root(doc_id: UUID, parents: Mapping[UUID, UUID]) -> UUID:
    while doc_id in parents:
        doc_id = parents[doc_id]
    return doc_id


SECONDS_PER_DAY: Final = 86_400.0
RERANK_SECONDS: Final = 5.0
"""CONTRACT "Retrieval"."""

Key = tuple[str, int]


@dataclass
class SearchOrder:
    """The order of one search. It is kept while the search widens, so that it reranks only once."""

    stores: SearchStores
    plan: SearchPlan
    issue: Issue | None = None
    """Why reranking failed and the fused order applies."""
    hint: Issue | None = None
    """That there is no reranker, or that it ordered a part of the head only."""
    reranked: int = 0
    milliseconds: float = 0.0
    _judged: dict[Key, float] | None = None

    @property
    def asks_reranker(self) -> bool:
        """Whether the next call waits for the reranker."""
        return bool(self.plan.rerank.head) and self._judged is None

    async def of(self, candidates: Sequence[RankedCandidate]) -> list[RankedCandidate]:
        """``candidates``, which are best first, in their final order."""
        ranked = list(candidates)
        if self.plan.rerank.head:
            ranked = await self._reranked(ranked)
        if any(part.freshness.enabled for part in self.plan.containers):
            ranked = await self._fresh(ranked)
        return ranked

    async def _reranked(self, ranked: Sequence[RankedCandidate]) -> list[RankedCandidate]:
        head = ranked[: self.plan.rerank.head]
        if self._judged is None:
            standing = [RerankInput((c.container_id, c.chunk_no), c.score) for c in ranked]
            found = await rerank(
                lambda: self.stores.rerankers.named(self.plan.rerank.provider),
                self.plan.query,
                standing,
                await self._read(head),
                asyncio.get_running_loop().time() + RERANK_SECONDS,
                self.stores.breakers,
            )
            self.issue, self.hint, self.reranked, self.milliseconds = (
                found.issue,
                found.hint,
                found.reranked,
                found.milliseconds,
            )
            self._judged = {p.key: p.score for p in found.order if p.reranked is not None}
        return _below(ranked, self._judged)

    async def _read(self, head: Sequence[RankedCandidate]) -> dict[Key, str]:
        read: dict[Key, str] = {}
        for container_id in {c.container_id for c in head}:
            chunk_nos = [c.chunk_no for c in head if c.container_id == container_id]
            async with self.stores.db.reading() as conn:
                found = await chunk_texts.of_chunk_nos(conn, container_id, chunk_nos)
            read |= {(container_id, chunk_no): text for chunk_no, text in found.items()}
        return read

    async def _fresh(self, ranked: Sequence[RankedCandidate]) -> list[RankedCandidate]:
        now = datetime.now(UTC)
        how = {part.container.id: part.freshness for part in self.plan.containers}
        aging = sorted({c.doc_id for c in ranked if how[c.container_id].enabled})
        async with self.stores.db.reading() as conn:
            ages = await documents.ages(conn, aging)
        fresh = []
        for one in ranked:
            modified, fetched = ages.get(one.doc_id, (None, None))
            gain = freshness_factor(how[one.container_id], now, modified, fetched)
            fresh.append(one._replace(score=boosted(one.score, gain), freshness=gain))
        return sorted(fresh, key=best_first)


def _below(ranked: Sequence[RankedCandidate], judged: Mapping[Key, float]) -> list[RankedCandidate]:
    """Reranked candidates by their new scores, then the others with their fused scores scaled below them."""
    if not judged:
        return list(ranked)
    head = [
        c._replace(score=judged[c.container_id, c.chunk_no])
        for c in ranked
        if (c.container_id, c.chunk_no) in judged
    ]
    lowest_score = min(c.score for c in head)
    rest = [
        c._replace(score=c.score * lowest_score)
        for c in ranked
        if (c.container_id, c.chunk_no) not in judged
    ]
    return sorted(head, key=lambda c: -c.score) + rest


def in_display_order(plan: SearchPlan, documents: Sequence[list[Hit]]) -> list[list[Hit]]:
    """The hits of each document, the best one first, in the display order of their containers; by score if the
    containers differ."""
    sorts = {part.container.manifest.display.sort for part in plan.containers}
    match sorts.pop() if len(sorts) == 1 else "score_then_freshness":
        case "freshness_then_score":
            return sorted(documents, key=lambda hits: (_age(hits[0]), -hits[0].score))
        case "source_then_score":
            ranks = _priorities(plan)
            return sorted(
                documents,
                key=lambda hits: (ranks.get(hits[0].source_type, len(ranks)), -hits[0].score),
            )
        case _:
            return sorted(documents, key=lambda hits: (-hits[0].score, _age(hits[0])))


def _age(hit: Hit) -> float:
    """A sort key: smaller for younger hits; hits without a time come last."""
    since: datetime | None = hit.modified_at or hit.fetched_at
    return -since.timestamp() if since else 0.0


def _priorities(plan: SearchPlan) -> dict[str, int]:
    named = [name for p in plan.containers for name in p.container.manifest.display.source_priority]
    return {name: rank for rank, name in enumerate(dict.fromkeys(named))}


def freshness_factor(
    how: Freshness, now: datetime, modified: datetime | None, first_fetched: datetime | None
) -> float:
    """``exp(-lambda * age)``, 0..1; 0 if freshness is disabled or no time is known.

    The age in days counts from the source's modification, else from its first fetch, never from a re-ingest. A date in
    the future counts as now.
    """
    since = modified or first_fetched
    if not how.enabled or since is None:
        return 0.0
    days = max(0.0, (now - since).total_seconds() / SECONDS_PER_DAY)
    return math.exp(-how.decay_lambda * days)


def boosted(score: float, freshness: float) -> float:
    """``score * (1 + factor)``: at most twice the score."""
    return score * (1.0 + freshness)
