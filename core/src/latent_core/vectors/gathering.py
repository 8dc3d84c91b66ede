"""Writes of many at once: what comes while a collection is written to goes together in the next request.

A request costs the same for one point as for a hundred, and workers have many small documents under way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import numpy as np

from latent_core.domain.errors import LatentError
from latent_core.vectors.port import Points

MOST_POINTS: Final = 256
"""Of one request; larger writes are as good alone."""

Write = Callable[[str, Points], Awaitable[None]]
T = TypeVar("T")


@dataclass(eq=False, slots=True)
class _Caller:
    points: Points
    done: bool = False
    alone: bool = False
    """What it was together with failed: its own tells whether it is at fault."""
    error: LatentError | None = None

    def result(self) -> None:
        if self.error is not None:
            raise type(self.error)(self.error.message, **self.error.details) from self.error


@dataclass(slots=True)
class _Line:
    """Those that write to one collection, in the order they came. Who has the turn writes for all that wait."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: deque[_Caller] = field(default_factory=deque)

    def next(self) -> list[_Caller]:
        first = self.waiting[0]
        found, points = [first], len(first.points.ids)
        for caller in list(self.waiting)[1:]:
            points += len(caller.points.ids)
            if first.alone or caller.alone or points > MOST_POINTS:
                break
            found.append(caller)
        return found


class Gathering:
    """Stores points by ``write``, which may be given those of several callers at once."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._lines: dict[tuple[str, int], _Line] = {}

    async def upsert(self, collection: str, points: Points) -> None:
        """As ``write`` for these alone: checked points, whose errors are their own, unless they may pass."""
        if not 0 < len(points.ids) < MOST_POINTS:
            await self._write(collection, points)
            return
        key = collection, points.vectors.shape[1]
        line = self._lines.setdefault(key, _Line())
        caller = _Caller(points)
        line.waiting.append(caller)
        try:
            async with line.turn:
                while not caller.done:
                    await self._serve(collection, line)
        finally:
            if not caller.done:
                line.waiting.remove(caller)
            if not line.waiting and self._lines.get(key) is line:
                del self._lines[key]
        caller.result()

    async def _serve(self, collection: str, line: _Line) -> None:
        """Write for the first of those that wait. Who is cancelled meanwhile leaves the others in the line."""
        together = line.next()
        error: LatentError | None = None
        try:
            await self._write(collection, _joined([caller.points for caller in together]))
        except LatentError as exc:
            error = exc
        for caller in together:
            caller.alone = error is not None and not error.transient and len(together) > 1
            if not caller.alone and not caller.done and caller in line.waiting:
                caller.done, caller.error = True, error
                line.waiting.remove(caller)


def _joined(parts: Sequence[Points]) -> Points:
    if len(parts) == 1:
        return parts[0]
    return Points(
        ids=_chained([part.ids for part in parts]),
        vectors=np.concatenate([part.vectors for part in parts]),
        doc_ids=_chained([part.doc_ids for part in parts]),
        generations=_chained([part.generations for part in parts]),
        ords=_chained([part.ords for part in parts]),
    )


def _chained(parts: Sequence[Sequence[T]]) -> list[T]:
    return [one for part in parts for one in part]
