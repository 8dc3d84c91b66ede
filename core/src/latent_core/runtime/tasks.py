"""Run coroutines together, and stop endless tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Final, TypeVar

T = TypeVar("T")


async def all_or_first_failure(jobs: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run ``jobs`` concurrently. The first failure, or a cancellation, cancels them all and is raised.

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
    """Cancel endless tasks and wait for their end.

    Cancels repeatedly: on Python 3.11, ``asyncio.wait_for`` (used by the connection pool) loses a cancellation that
    arrives at the moment when the wait ends, and the loop would go on.
    """
    waiting = set(tasks)
    while waiting:
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=again_after)
    await asyncio.gather(*tasks, return_exceptions=True)  # tasks log their own errors
