"""Keyword search as the rest of the house sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class TermUse:
    """What one term of a query did: for diagnostics."""

    term: str
    count: int
    """Times the query holds it."""
    df: int
    """Live chunks that hold it."""
    idf: float
    """Its weight; of a stop word of one of the container's languages less than ``df`` alone would give."""


@dataclass(frozen=True, slots=True)
class KeywordHits:
    """Chunks by descending BM25 score, equal scores by ascending chunk_no."""

    chunk_nos: NDArray[np.int64]
    scores: NDArray[np.float64]
    """Positive; comparable only within one answer."""
    matched: int
    """Live, allowed chunks that hold at least one term: more than are answered when there are more than ``k``."""
    live_chunks: int
    terms: tuple[TermUse, ...]
    """The query's distinct terms in its order."""
    rows_read: int


class KeywordIndex(Protocol):
    async def search(
        self,
        container_id: str,
        terms: Sequence[str],
        k: int,
        *,
        timeout_seconds: float,
        allowed: NDArray[np.uint32] | None = None,
    ) -> KeywordHits:
        """The best ``k`` chunks that hold any of ``terms``, only among ``allowed`` when it is given.

        A term that stands twice counts twice. No terms, or an unknown container: no hits.
        Raises ``TimedOut`` past the deadline and ``Unavailable`` without the store.
        """
        ...
