"""Wait for a job that somebody asked for and stands by."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from latent_core.domain.errors import NotFound
from latent_core.domain.job import JobState, JobView
from latent_core.queue import admin
from latent_core.stack import Stack

FIRST_PAUSE_SECONDS: Final = 0.03
LONGEST_PAUSE_SECONDS: Final = 0.2
OPEN: Final = frozenset({JobState.QUEUED, JobState.RUNNING})


async def ended(stack: Stack, job_id: int, seconds: float) -> JobView | None:
    """The job once it has ended; None when it has not in time, or when the gateway closes, or when nobody knows it."""
    loop = asyncio.get_running_loop()
    until, pause = loop.time() + seconds, FIRST_PAUSE_SECONDS
    while loop.time() < until and not stack.closing.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(min(pause, until - loop.time())):
                await stack.closing.wait()
        try:
            async with stack.db.transaction() as conn:
                job = await admin.get(conn, job_id)
        except NotFound:
            return None
        if job.state not in OPEN:
            return job
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
    return None
