"""The channels of a search, and the rounds of a container's search as immutable data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from latent_core.db.containers import Container
from latent_core.db.documents.chunks import AllowedChunks
from latent_core.domain.vector_types import Vector
from latent_core.search.constraints import Constraint
from latent_core.search.keywords import QueryKeywords
from latent_core.search.plan import DEPTH, MAX_DEPTH
from latent_core.search.relevance import WordScale
from latent_core.vectors.port import VectorHits, VectorIndex

NO_CHUNKS: Final[NDArray[np.int64]] = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class ChannelCandidates:
    """What a channel found: chunk_nos best first, each once, not yet joined on what is live."""

    chunk_nos: NDArray[np.int64]
    scores: NDArray[np.float64]
    exhausted: bool
    """The channel has no more than these."""
    words: WordScale | None = None
    """Of the BM25 scores."""
    common: NDArray[np.float64] | None = None
    """Scores that compare between the containers of the search, if ``scores`` do not."""


@dataclass(frozen=True, slots=True)
class VectorCandidates:
    """The nearest originals, as if there were no summaries, and the summaries among and before them."""

    originals: ChannelCandidates
    summaries: ChannelCandidates
    """As far as the search for originals went."""


async def vector_channel(
    index: VectorIndex,
    container: Container,
    vector: Vector,
    depth: int,
    allowed: AllowedChunks | None,
    summaries: NDArray[np.int64] = NO_CHUNKS,
) -> VectorCandidates:
    """Nearest chunks by cosine; a chunk of several windows counts by its best one. ``summaries``: all of the container."""
    points = None if allowed is None else allowed.point_ids
    k = depth
    while True:
        hits = await index.search(container.space.collection(), vector, k, allowed=points)
        is_summary = np.isin(hits.chunk_nos, summaries)
        originals = np.flatnonzero(~is_summary)
        if len(originals) >= depth or len(hits.chunk_nos) < k or k > MAX_DEPTH:
            break
        k *= 2
    return VectorCandidates(
        _nearest(hits, originals[:depth], exhausted=len(originals) < depth),
        _nearest(hits, np.flatnonzero(is_summary), exhausted=len(hits.chunk_nos) < k),
    )


def _nearest(hits: VectorHits, points: NDArray[np.intp], *, exhausted: bool) -> ChannelCandidates:
    """The chunks of these points."""
    _, first = np.unique(hits.chunk_nos[points], return_index=True)
    best = points[np.sort(first)]
    return ChannelCandidates(
        hits.chunk_nos[best], hits.scores[best].astype(np.float64), exhausted=exhausted
    )


async def bm25_channel(
    keywords: QueryKeywords,
    container: Container,
    depth: int,
    allowed: AllowedChunks | None,
    timeout_seconds: float,
) -> ChannelCandidates:
    """Best chunks by BM25."""
    chunk_nos = None if allowed is None else allowed.chunk_nos.astype(np.uint32)
    hits = await keywords.best(container.id, depth, timeout_seconds, chunk_nos)
    words = WordScale(hits.attainable, len(hits.words)) if hits.words else None
    return ChannelCandidates(
        hits.chunk_nos,
        hits.scores,
        exhausted=len(hits.chunk_nos) < depth,
        words=words,
        common=hits.common,
    )


@dataclass(frozen=True, slots=True)
class SearchScope:
    """The chunks a round searches, as far as filter and constraints could list them."""

    allowed: AllowedChunks | None = None
    """Only these; None for all."""
    is_broad: bool = False
    """The filter allows too many chunks to list."""
    candidate_checks: tuple[Constraint, ...] = ()
    """Constraints to check on each candidate."""

    @property
    def is_empty(self) -> bool:
        return self.allowed is not None and not len(self.allowed.chunk_nos)


@dataclass(frozen=True, slots=True)
class Round:
    """One round over the channels: its query and what is known after it."""

    number: int = 0
    """Of one ``run``, from 1; 0 before the first."""
    depth: int = DEPTH // 2
    scope: SearchScope | None = None
    """None: not computed yet."""
    found: Mapping[str, ChannelCandidates] = field(default_factory=dict)
    """By channel, of this round or an earlier one."""
    failed: frozenset[str] = frozenset()
    judged: Mapping[int, UUID | None] = field(default_factory=dict)
    """Candidate to its document, or None when it is not visible."""
    stopped: bool = False
    """No open channel or no time is left."""
    exhausted: bool = False
    """Every candidate is known."""
    is_repeat: bool = False
    """Documents changed during an earlier round, and the channels were queried again."""

    @property
    def is_last(self) -> bool:
        return self.stopped or self.exhausted

    @property
    def live(self) -> dict[int, UUID]:
        return {chunk_no: doc_id for chunk_no, doc_id in self.judged.items() if doc_id is not None}

    def open_channels(self, channels: Sequence[str]) -> list[str]:
        """Channels that have not failed and may have more candidates."""
        if self.depth > MAX_DEPTH:
            return []
        return [
            name
            for name in channels
            if name not in self.failed and not (name in self.found and self.found[name].exhausted)
        ]

    def again(self) -> Round:
        """The state before a round that queries every channel again at this depth. The scope is computed again, because
        other chunks may now pass the filter."""
        return Round(self.number, self.depth // 2, failed=self.failed, is_repeat=self.is_repeat)
