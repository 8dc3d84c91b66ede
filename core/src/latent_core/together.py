"""Several coroutines as one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any


async def all_or_first_failure(jobs: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run ``jobs`` side by side. The first failure, or a cancellation, ends them all and is raised."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    if not tasks:
        return
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
