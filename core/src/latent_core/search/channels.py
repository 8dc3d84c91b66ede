"""Channels: the ways to find candidates in one container. Each answers chunk_nos, best first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latent_core.bm25.port import KeywordIndex
from latent_core.db.containers import Container
from latent_core.db.documents.chunks import AllowedChunks
from latent_core.domain.vector import Vector
from latent_core.vectors.port import VectorIndex


@dataclass(frozen=True, slots=True)
class ChannelCandidates:
    """What a channel found: chunk_nos best first, each once, not yet joined on what is live."""

    chunk_nos: NDArray[np.int64]
    scores: NDArray[np.float64]
    exhausted: bool
    """The channel has no more than these."""


async def vector_channel(
    index: VectorIndex,
    container: Container,
    vector: Vector,
    depth: int,
    allowed: AllowedChunks | None,
) -> ChannelCandidates:
    """Nearest chunks by cosine; a chunk of several windows counts by its best one."""
    points = None if allowed is None else allowed.point_ids
    hits = await index.search(container.space.collection(), vector, depth, allowed=points)
    _, first = np.unique(hits.chunk_nos, return_index=True)
    best = np.sort(first)
    return ChannelCandidates(
        hits.chunk_nos[best],
        hits.scores[best].astype(np.float64),
        exhausted=len(hits.chunk_nos) < depth,
    )


async def bm25_channel(
    index: KeywordIndex,
    container: Container,
    terms: Sequence[str],
    depth: int,
    allowed: AllowedChunks | None,
    timeout_seconds: float,
) -> ChannelCandidates:
    """Best chunks by BM25 over the container's live chunks."""
    chunk_nos = None if allowed is None else allowed.chunk_nos.astype(np.uint32)
    hits = await index.search(
        container.id, terms, depth, timeout_seconds=timeout_seconds, allowed=chunk_nos
    )
    return ChannelCandidates(hits.chunk_nos, hits.scores, exhausted=len(hits.chunk_nos) < depth)
