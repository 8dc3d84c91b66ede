"""Several coroutines as one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Final, TypeVar

T = TypeVar("T")


async def all_or_first_failure(jobs: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run ``jobs`` side by side. The first failure, or a cancellation, ends them all and is raised.

    Results in the order of ``jobs``.
    """
    tasks = [asyncio.ensure_future(job) for job in jobs]
    if not tasks:
        return []
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


SECONDS_TO_END: Final = 5.0


async def ended(*tasks: asyncio.Task[Any], again_after: float = SECONDS_TO_END) -> None:
    """Stop tasks that go on for ever, and hear their end.

    They are asked again until they do: whoever waits by ``asyncio.wait_for`` (the connection pool does) loses a
    cancellation that comes at the moment the wait is over, on Python 3.11, and a loop would go on.
    """
    waiting = set(tasks)
    while waiting:
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=again_after)
    await asyncio.gather(*tasks, return_exceptions=True)  # what they failed of is theirs to tell
