"""Combines writes: those that arrive during a write to a collection go together in the next request.

A request costs the same for one point as for a hundred, and workers process many small documents concurrently.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import numpy as np

from latent_core.runtime import coalesce
from latent_core.vectors.port import Points

MAX_POINTS: Final = 256
"""Per request; combining gains nothing for larger writes."""

Write = Callable[[str, Points], Awaitable[None]]
T = TypeVar("T")


class WriteCoalescer:
    """Stores points with ``write``, which may get those of several callers at once."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._coalescer: coalesce.Coalescer[tuple[str, int], Points, None] = coalesce.Coalescer(
            self._together, max_size=MAX_POINTS
        )

    async def upsert(self, collection: str, points: Points) -> None:
        """Like ``write`` for these points alone: permanent errors of other points do not reach this caller."""
        if len(points.ids) == 0:
            await self._write(collection, points)
            return
        key = collection, points.vectors.shape[1]
        await self._coalescer.ask(key, points, size=len(points.ids))

    async def _together(self, key: tuple[str, int], parts: Sequence[Points]) -> list[None]:
        collection, _ = key
        await self._write(collection, _joined(parts))
        return [None] * len(parts)


def _joined(parts: Sequence[Points]) -> Points:
    if len(parts) == 1:
        return parts[0]
    return Points(
        ids=_chained([part.ids for part in parts]),
        vectors=np.concatenate([part.vectors for part in parts]),
        doc_ids=_chained([part.doc_ids for part in parts]),
        generations=_chained([part.generations for part in parts]),
        chunk_nos=_chained([part.chunk_nos for part in parts]),
    )


def _chained(parts: Sequence[Sequence[T]]) -> list[T]:
    return [one for part in parts for one in part]
