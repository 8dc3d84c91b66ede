"""A costly thing that is made at first use, once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class LoadOnce(Generic[T]):
    """``get()`` answers what ``make()`` made; a failure is raised to all who wait, and tried again later.

    A caller that is cancelled does not stop the making: those with short deadlines would otherwise
    begin it again and again and never see its end.
    """

    def __init__(self, make: Callable[[], Awaitable[T]]) -> None:
        self._make = make
        self._made: asyncio.Future[T] | None = None

    async def get(self) -> T:
        made = self._made
        if made is None or (made.done() and (made.cancelled() or made.exception())):
            made = self._made = asyncio.ensure_future(self._make())
        return await asyncio.shield(made)

    def forget(self) -> None:
        """Let go of what was made."""
        self._made = None
