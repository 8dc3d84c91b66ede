"""Bounds of a comparison of the stores: page size, limit per kind of difference, and pauses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Final

from latent_core.domain.findings import StoreDifference

PAGE: Final = 1000
MAX_DIFFERENCES: Final = 200
"""Per kind and container: enough to see what is wrong."""
MAX_PAUSE_SECONDS: Final = 0.25


class DoctorThrottle:
    """Slows a long comparison so that searches stay fast: after each step it pauses as long as the step took."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    async def rest(self) -> None:
        worked = time.monotonic() - self._since
        await asyncio.sleep(min(worked, MAX_PAUSE_SECONDS))
        self._since = time.monotonic()


async def first_of(differences: AsyncIterator[StoreDifference]) -> list[StoreDifference]:
    """The first ``MAX_DIFFERENCES`` of a kind."""
    kept: list[StoreDifference] = []
    async for difference in differences:
        kept.append(difference)
        if len(kept) >= MAX_DIFFERENCES:
            break
    return kept
