"""What many ask for at the same time, done at once: what comes while one is under way goes together in the next.

For work that costs about the same for one as for ten. Nobody waits for others to come.
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
"""Does what is asked for of one key; an answer each, in order."""


@dataclass(eq=False, slots=True)
class _PendingCall(Generic[T, R]):
    item: T
    size: int
    answer: list[R] = field(default_factory=list)
    """Empty until there is one."""
    alone: bool = False
    """What it was together with failed: its own tells whether it is at fault."""
    error: LatentError | None = None

    @property
    def done(self) -> bool:
        return bool(self.answer) or self.error is not None

    def result(self) -> R:
        if self.error is not None:
            raise type(self.error)(self.error.message, **self.error.details) from self.error
        return self.answer[0]


@dataclass(slots=True)
class _Line(Generic[T, R]):
    """Those of one key, in the order they came. Who has the turn works for all that wait."""

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
    """Does what is asked for by ``work``, which may be given what several callers ask for."""

    def __init__(self, work: Work[K, T, R], *, max_size: int) -> None:
        """``max_size`` is the size of what is done at once; what is as large goes by itself."""
        self._work = work
        self._max_size = max_size
        self._lines: dict[K, _Line[T, R]] = {}

    async def ask(self, key: K, item: T, *, size: int = 1) -> R:
        """As ``work`` for this alone: its errors are its own, unless they may pass."""
        if size >= self._max_size:
            return (await self._work(key, [item]))[0]
        line = self._lines.setdefault(key, _Line())
        caller: _PendingCall[T, R] = _PendingCall(item, size)
        line.waiting.append(caller)
        try:
            await asyncio.sleep(0)  # who comes at the same moment goes together
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
        """Work for the first of those that wait. Who is cancelled meanwhile leaves the others in the line."""
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
