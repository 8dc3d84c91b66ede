"""A costly thing that is made at first use, in a thread, once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Generic, TypeVar

T = TypeVar("T")


class Once(Generic[T]):
    """``get()`` answers what ``make()`` made; a failure is raised to all who wait, and tried again later.

    A caller that is cancelled does not stop the making: those with short deadlines would otherwise
    begin it again and again and never see its end.
    """

    def __init__(self, make: Callable[[], T], executor: Executor) -> None:
        self._make = make
        self._executor = executor
        self._made: asyncio.Future[T] | None = None

    def forget(self) -> None:
        """Let go of what was made."""
        self._made = None

    @property
    def made(self) -> bool:
        made = self._made
        return made is not None and made.done() and not made.cancelled() and not made.exception()

    async def get(self) -> T:
        if self._made is None or (self._made.done() and not self.made):
            self._made = asyncio.get_running_loop().run_in_executor(self._executor, self._make)
        return await asyncio.shield(self._made)
