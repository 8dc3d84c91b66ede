"""Several coroutines as one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

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
