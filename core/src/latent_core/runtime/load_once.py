"""A result that is made at first use and shared by all who wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Loaded = TypeVar("Loaded")


class LoadOnce(Generic[Loaded]):
    """``get()`` returns the result of ``make()``. All waiting callers get a failure; the next call tries again.

    A cancelled caller does not stop ``make()``: otherwise callers with short deadlines would restart it
    again and again.
    """

    def __init__(self, make: Callable[[], Awaitable[Loaded]]) -> None:
        self._make = make
        self._made: asyncio.Future[Loaded] | None = None

    async def get(self) -> Loaded:
        made = self._made
        if made is None or (made.done() and (made.cancelled() or made.exception())):
            made = self._made = asyncio.ensure_future(self._make())
        return await asyncio.shield(made)

    def forget(self) -> None:
        self._made = None
