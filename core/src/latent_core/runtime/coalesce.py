"""Combines concurrent requests: those that arrive while one is in progress are served together by the next.

For work that costs about the same for one request as for ten. No request waits for others to arrive.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from latent_core.domain.errors import LatentError

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
R = TypeVar("R")

Work = Callable[[K, Sequence[T]], Awaitable[Sequence[R]]]
"""Serves requests of one key; returns one answer per request, in order."""


@dataclass(eq=False, slots=True)
class _PendingCall(Generic[T, R]):
    item: T
    size: int
    answer: list[R] = field(default_factory=list)
    """Empty until answered."""
    alone: bool = False
    """Its batch failed, so it is tried alone to find whether it is the cause."""
    error: LatentError | None = None

    @property
    def done(self) -> bool:
        return bool(self.answer) or self.error is not None

    def result(self) -> R:
        if self.error is not None:
            raise self.error.copied()
        return self.answer[0]


@dataclass(slots=True)
class _Line(Generic[T, R]):
    """Waiting requests of one key, in order. The holder of the lock serves all of them."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: deque[_PendingCall[T, R]] = field(default_factory=deque)

    def next(self, max_size: int) -> list[_PendingCall[T, R]]:
        first = self.waiting[0]
        found, size = [first], first.size
        for caller in list(self.waiting)[1:]:
            size += caller.size
            if first.alone or caller.alone or size > max_size:
                break
            found.append(caller)
        return found


class Coalescer(Generic[K, T, R]):
    """Serves requests with ``work``, which may get those of several callers at once."""

    def __init__(self, work: Work[K, T, R], *, max_size: int) -> None:
        """``max_size`` limits the size of a batch; a request of that size is served alone."""
        self._work = work
        self._max_size = max_size
        self._lines: dict[K, _Line[T, R]] = {}

    async def ask(self, key: K, item: T, *, size: int = 1) -> R:
        """Like ``work`` for this item alone: permanent errors of other items do not reach this caller."""
        if size >= self._max_size:
            return (await self._work(key, [item]))[0]
        line = self._lines.setdefault(key, _Line())
        caller: _PendingCall[T, R] = _PendingCall(item, size)
        line.waiting.append(caller)
        try:
            await asyncio.sleep(0)  # lets simultaneous requests join
            async with line.lock:
                while not caller.done:
                    await self._serve(key, line)
        finally:
            if not caller.done:
                line.waiting.remove(caller)
            if not line.waiting and self._lines.get(key) is line:
                del self._lines[key]
        return caller.result()

    async def _serve(self, key: K, line: _Line[T, R]) -> None:
        """Serve the first waiting requests. If the caller is cancelled, the others stay in line."""
        together = line.next(self._max_size)
        try:
            answers = await self._work(key, [caller.item for caller in together])
        except LatentError as error:
            for caller in together:
                caller.alone = not error.transient and len(together) > 1
                if not caller.alone and caller in line.waiting:
                    caller.error = error
                    line.waiting.remove(caller)
            return
        for caller, answer in zip(together, answers, strict=True):
            if caller in line.waiting:
                caller.answer.append(answer)
                line.waiting.remove(caller)
