"""One sandbox for all tests of a process: starting a child and what its parsers import costs more than a small task.

It lives in a thread with a loop of its own, since each test has another one. Its children are as confined as any.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from typing import Any, TypeVar

from typing_extensions import override

from latent_workers.sandbox.frames import FrameItem
from latent_workers.sandbox.pool import Sandbox

IDLE_SECONDS = 600.0
T = TypeVar("T")


class SharedSandbox(Sandbox):
    """A sandbox whose tasks run on the loop of the thread; use it from any loop, and do not close it."""

    def __init__(self, shared: Sandbox, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(children=1)
        self._shared = shared
        self._loop = loop

    @override
    def stream(self, *arguments: Any, **more: Any) -> AbstractAsyncContextManager[AsyncIterator[FrameItem]]:  # fmt: skip
        return self._bridged(self._shared.stream(*arguments, **more))

    @override
    async def layers(self) -> dict[str, bool | str]:
        return await self._there(self._shared.layers())

    @override
    async def close(self) -> None:
        """Other tests use it yet."""

    @asynccontextmanager
    async def _bridged(
        self, stream: AbstractAsyncContextManager[AsyncIterator[FrameItem]]
    ) -> AsyncIterator[AsyncIterator[FrameItem]]:
        items = await self._there(_entered(stream))
        try:
            yield self._each(items)
        finally:
            await self._there(_left(stream))

    async def _each(self, items: AsyncIterator[FrameItem]) -> AsyncGenerator[FrameItem, None]:
        while (item := await self._there(_next(items))) is not None:
            yield item

    async def _there(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))


async def _entered(stream: AbstractAsyncContextManager[T]) -> T:
    return await stream.__aenter__()


async def _left(stream: AbstractAsyncContextManager[Any]) -> None:
    await stream.__aexit__(None, None, None)


async def _next(items: AsyncIterator[FrameItem]) -> FrameItem | None:
    return await anext(items, None)


@cache
def shared_sandbox() -> SharedSandbox:
    """That of this process; its children end with it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="shared-sandbox", daemon=True)
    thread.start()

    async def made() -> Sandbox:
        return Sandbox(children=1, idle_seconds=IDLE_SECONDS)

    shared = asyncio.run_coroutine_threadsafe(made(), loop).result()

    def end() -> None:
        asyncio.run_coroutine_threadsafe(shared.close(), loop).result(timeout=30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=10)
        loop.close()

    atexit.register(end)
    return SharedSandbox(shared, loop)
