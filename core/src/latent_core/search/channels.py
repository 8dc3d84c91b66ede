"""Channels: the ways to find candidates in one container. Each answers ords, best first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latent_core.domain.vector import Vector
from latent_core.keywords.port import KeywordIndex
from latent_core.registry.chunks import Allowed
from latent_core.registry.containers import Container
from latent_core.vectors.port import VectorIndex


@dataclass(frozen=True, slots=True)
class Candidates:
    """What a channel found: ords best first, each once, not yet joined on what is live."""

    ords: NDArray[np.int64]
    scores: NDArray[np.float64]
    exhausted: bool
    """The channel has no more than these."""


async def vector_channel(
    index: VectorIndex, container: Container, vector: Vector, depth: int, allowed: Allowed | None
) -> Candidates:
    """Nearest chunks by cosine; a chunk of several windows counts by its best one."""
    points = None if allowed is None else allowed.point_ids
    hits = await index.search(container.space.collection(), vector, depth, allowed=points)
    _, first = np.unique(hits.ords, return_index=True)
    best = np.sort(first)
    return Candidates(
        hits.ords[best], hits.scores[best].astype(np.float64), exhausted=len(hits.ords) < depth
    )


async def bm25_channel(
    index: KeywordIndex,
    container: Container,
    terms: Sequence[str],
    depth: int,
    allowed: Allowed | None,
    timeout_seconds: float,
) -> Candidates:
    """Best chunks by BM25 over the container's live chunks."""
    ords = None if allowed is None else allowed.ords.astype(np.uint32)
    hits = await index.search(
        container.id, terms, depth, timeout_seconds=timeout_seconds, allowed=ords
    )
    return Candidates(hits.ords, hits.scores, exhausted=len(hits.ords) < depth)
