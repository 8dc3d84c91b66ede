"""The keyword channel of one search: its postings are read once, for all its containers together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from latent_core.bm25.port import KeywordAnswers, KeywordHits, KeywordIndex


class QueryKeywords:
    """Scores of one query's terms in the containers of one search.

    All containers are read in one statement when the first of them needs it, since the weight of a term depends on how
    common it is in all of them. Deeper rounds use what was read.
    """

    def __init__(self, index: KeywordIndex, queries: Mapping[str, Sequence[str]]) -> None:
        """``queries``: the terms per container with the keyword channel."""
        self._index = index
        self._queries = queries
        self._task: asyncio.Task[KeywordAnswers] | None = None

    async def best(
        self,
        container_id: str,
        k: int,
        timeout_seconds: float,
        allowed: NDArray[np.uint32] | None = None,
    ) -> KeywordHits:
        """The best ``k`` chunks of a container. ``timeout_seconds`` limits the read, if this call begins it. A waiter
        that gives up does not stop the others."""
        if self._task is None:
            self._task = asyncio.create_task(
                self._index.read(self._queries, timeout_seconds=timeout_seconds)
            )
        answers = await asyncio.shield(self._task)
        return await answers.best(container_id, k, allowed)

    def renew(self) -> None:
        """Read again at the next call: documents have changed."""
        if self._task is not None and self._task.done():
            self._task = None

    async def close(self) -> None:
        """Cancel an unfinished read."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
