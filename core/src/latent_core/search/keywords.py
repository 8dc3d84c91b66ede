"""The keyword channel of one search: its postings are read once, for all its containers together."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from latent_core.bm25.port import KeywordAnswers, KeywordHits
from latent_core.domain.errors import TimedOut
from latent_core.search.query_words import QueryWords, corrected
from latent_core.search.readable import SearchStores
from latent_core.search.time_budget import TimeBudget


@dataclass(frozen=True, slots=True)
class _Answers:
    originals: KeywordAnswers
    summaries: KeywordAnswers


class QueryKeywords:
    """Scores of one query's terms in the containers of one search.

    All containers are read in one statement when the first of them needs it, since the weight of a term depends on how
    common it is in all of them. Deeper rounds use what was read.
    """

    def __init__(
        self,
        stores: SearchStores,
        words: QueryWords,
        container_ids: Collection[str],
        summarised: Collection[str] = (),
    ) -> None:
        """``container_ids``: those with the keyword channel; ``summarised``: those with summaries."""
        self._stores = stores
        self._container_ids = container_ids
        self._summarised = summarised
        self.words = words
        """Corrected by the first read."""
        self._reads: list[asyncio.Task[_Answers]] = []
        self._began = -inf
        """When the last read began, in seconds of the monotonic clock."""
        self._renewed: dict[str, float] = {}
        """When each container's documents were seen to have changed."""

    async def best(
        self,
        container_id: str,
        k: int,
        timeout_seconds: float,
        allowed: NDArray[np.uint32] | None = None,
    ) -> KeywordHits:
        """The best ``k`` chunks of a container. ``timeout_seconds`` limits the read, if this call begins it. A waiter
        that gives up does not stop the others."""
        answers = await self._answers(container_id, timeout_seconds)
        return await answers.originals.best(container_id, k, allowed)

    async def best_summaries(
        self, container_id: str, k: int, timeout_seconds: float
    ) -> KeywordHits | None:
        """The best ``k`` summaries of a container; None if it has no keyword channel."""
        answers = await self._answers(container_id, timeout_seconds)
        if container_id not in self._container_ids:
            return None
        return await answers.summaries.best(container_id, k)

    async def summaries(self, container_id: str, timeout_seconds: float) -> NDArray[np.int64]:
        """The chunk_nos of the summaries of a container."""
        if container_id not in self._summarised:
            return np.empty(0, np.int64)
        answers = await self._answers(container_id, timeout_seconds)
        return answers.summaries.summaries(container_id)

    async def _answers(self, container_id: str, timeout_seconds: float) -> _Answers:
        if self._began <= self._renewed.get(container_id, -inf):
            self._began = monotonic()
            self._reads.append(asyncio.create_task(self._read(TimeBudget.start(timeout_seconds))))
        return await asyncio.shield(self._reads[-1])

    async def _read(self, budget: TimeBudget) -> _Answers:
        originals = await self._read_originals(budget)
        if not self._summarised:
            return _Answers(originals, originals)
        worded = {
            one: self.words.terms[one] if one in self._container_ids else ()
            for one in self._summarised
        }
        summaries = await self._stores.keywords.read(
            worded,
            timeout_seconds=budget.remaining(),
            as_one=self.words.completions,
            of_summaries=True,
        )
        return _Answers(originals, summaries)

    async def _read_originals(self, budget: TimeBudget) -> KeywordAnswers:
        """The answers; with words corrected that are in no text, as far as there is time."""
        answers = await self._scores(self.words, budget)
        with suppress(TimedOut):
            words = await corrected(
                self._stores, self.words, self._container_ids, answers.dfs, budget
            )
            if words is not self.words:
                answers = await self._scores(words, budget)
                self.words = words
        return answers

    async def _scores(self, words: QueryWords, budget: TimeBudget) -> KeywordAnswers:
        return await self._stores.keywords.read(
            {one: words.terms[one] for one in self._container_ids},
            timeout_seconds=budget.remaining(),
            as_one=words.completions,
        )

    def renew(self, container_id: str) -> None:
        """Use no read of this container that began before now: its documents have changed. Others keep theirs."""
        self._renewed[container_id] = monotonic()

    async def close(self) -> None:
        """Cancel unfinished reads."""
        for read in self._reads:
            read.cancel()
        await asyncio.gather(*self._reads, return_exceptions=True)
