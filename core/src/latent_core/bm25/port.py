"""The interface of the keyword search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from latent_core.bm25.names import is_name

NO_GROUPS: Final[Mapping[str, Sequence[str]]] = {}


@dataclass(frozen=True, slots=True)
class TermUse:
    """The effect of one term of a query, for diagnostics."""

    term: str
    count: int
    """Number of occurrences in the query."""
    df: int
    """Live chunks with the term."""
    idf: float
    """Its weight; lower than by ``df`` alone for a stop word of one of the containers' languages."""


@dataclass(frozen=True, slots=True)
class KeywordHits:
    """Chunks by descending BM25 score, equal scores by ascending chunk_no."""

    chunk_nos: NDArray[np.int64]
    scores: NDArray[np.float64]
    """Positive. By the statistics of the container, so its order is the same whatever else is searched."""
    common: NDArray[np.float64]
    """By the statistics of all containers of the search, so they compare with those of other containers."""
    matched: int
    """Live, allowed chunks with at least one term, also beyond ``k``."""
    live_chunks: int
    """Of the container."""
    terms: tuple[TermUse, ...]
    """The query's distinct terms in its order."""
    rows_read: int

    @property
    def words(self) -> tuple[TermUse, ...]:
        """``terms`` without names: that a text defines nothing makes it no less relevant."""
        return tuple(use for use in self.terms if not is_name(use.term))

    @property
    def attainable(self) -> float:
        """What a chunk would get that repeats all words without end. Only one that defines a name of the query has more."""
        return sum(use.count * use.idf for use in self.words)


class KeywordAnswers(Protocol):
    """One query, read from several containers at one moment."""

    @property
    def dfs(self) -> Mapping[str, int]:
        """Live chunks with each term, in all containers together."""
        ...

    async def best(
        self, container_id: str, k: int, allowed: NDArray[np.uint32] | None = None
    ) -> KeywordHits:
        """The best ``k`` chunks of a container by its own statistics, only among ``allowed`` if given."""
        ...

    def summaries(self, container_id: str) -> NDArray[np.int64]:
        """The chunk_nos of the summaries of a container."""
        ...


class KeywordIndex(Protocol):
    async def read(
        self,
        queries: Mapping[str, Sequence[str]],
        *,
        timeout_seconds: float,
        as_one: Mapping[str, Sequence[str]] = NO_GROUPS,
        of_summaries: bool = False,
    ) -> KeywordAnswers:
        """Read what the chunks with any of these terms score; ``queries`` maps each container to its terms.

        ``as_one`` maps a term of the queries to terms of the index that count as it: a chunk with several of them has it
        several times. A repeated term counts repeatedly. No terms, or an unknown container: no hits. Without
        ``of_summaries`` no summary has or counts anything, with it nothing else does. Raises ``TimedOut`` after the
        deadline and ``Unavailable`` without the store.
        """
        ...

    async def search(
        self,
        container_id: str,
        terms: Sequence[str],
        k: int,
        *,
        timeout_seconds: float,
        allowed: NDArray[np.uint32] | None = None,
    ) -> KeywordHits:
        """``read`` and ``best`` of one container."""
        ...
