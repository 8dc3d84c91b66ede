"""The limits of a search: concurrent searches of one process, and the characters of an answer.

A search is mostly CPU work. Twenty searches on two cores are all late and take longer together than one after the
other, so a search waits for a free slot, in order of arrival. While it waits for a remote model or reranker, it holds
no slot.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

from latent_core.domain.errors import RateLimited
from latent_core.runtime.process import cores
from latent_core.wire.search import Detail, Hit

MORE_THAN_CORES: Final = 1
"""One search can wait for a store while the others keep the cores busy."""
RETRY_AFTER_SECONDS: Final = 1


class SearchSlot:
    """The slot of one search."""

    def __init__(self, free: asyncio.Semaphore, seconds: float) -> None:
        self._free = free
        self._seconds = seconds
        self._held = False

    async def acquire(self) -> None:
        """``RateLimited`` when none becomes free in time."""
        try:
            async with asyncio.timeout(self._seconds):
                await self._free.acquire()
        except TimeoutError as exc:
            raise RateLimited(
                f"Too many concurrent searches: no slot became free within {self._seconds:g} s. "
                f"Retry in {RETRY_AFTER_SECONDS} s.",
                retry_after=RETRY_AFTER_SECONDS,
            ) from exc
        self._held = True

    def release(self) -> None:
        if self._held:
            self._held = False
            self._free.release()

    @asynccontextmanager
    async def released(self) -> AsyncIterator[None]:
        """Release the slot inside the block and acquire it again afterwards. The search is nearly done by then: if no
        slot becomes free in time, it continues without one."""
        self.release()
        yield
        with suppress(RateLimited):
            await self.acquire()


class SearchLimiter:
    """The slots of one process. Searches for exact text have slots of their own, so that slow expressions never delay
    the others."""

    def __init__(self, limit: int | None = None) -> None:
        """``limit`` per kind of search; by default the number of cores plus one."""
        limit = limit or cores() + MORE_THAN_CORES
        self._usual = asyncio.Semaphore(limit)
        self._exact = asyncio.Semaphore(limit)

    @asynccontextmanager
    async def slot(self, seconds: float, *, exact: bool) -> AsyncIterator[SearchSlot]:
        """Acquire a slot; every acquisition waits at most ``seconds``."""
        slot = SearchSlot(self._exact if exact else self._usual, seconds)
        await slot.acquire()
        try:
            yield slot
        finally:
            slot.release()


MARK: Final = "..."


@dataclass(frozen=True, slots=True)
class BudgetFit:
    hits: list[Hit]
    truncated: bool
    """A text was shortened, or hits were moved to the next page."""


def fit(hits: Sequence[Hit], detail: Detail, max_chars: int | None) -> BudgetFit:
    """The first of ``hits`` that fit. At least one is returned, without its text if necessary."""
    shown = [_brief(hit) if detail == "brief" else hit for hit in hits]
    if max_chars is None:
        return BudgetFit(shown, truncated=False)
    kept: list[Hit] = []
    left = max_chars
    for hit in shown:
        size = _size(hit)
        if size <= left:
            kept.append(hit)
        elif (short := _brief(hit)) is not hit and _size(short) <= left:
            kept.append(_shortened(hit, left - _size(short)))
            return BudgetFit(kept, truncated=True)
        else:
            return BudgetFit(kept or [short], truncated=True)
        left -= size
    return BudgetFit(kept, truncated=False)


def _brief(hit: Hit) -> Hit:
    """Without the text: snippet and place show whether the hit is worth reading."""
    return hit.model_copy(update={"text": None, "before": [], "after": []})


def _size(hit: Hit) -> int:
    """Characters that the reader receives."""
    around = sum(len(chunk.text) for chunk in (*hit.before, *hit.after))
    return len(hit.text or "") + len(hit.rendered_snippet) + len(hit.title) + around


def _shortened(hit: Hit, remaining: int) -> Hit:
    """With as much of its text as fits; neighbouring chunks are dropped first."""
    text = hit.text or ""
    if len(text) > remaining:
        cut = text.rfind(" ", 0, max(0, remaining - len(MARK)))
        text = text[: max(0, cut)] + MARK if remaining > len(MARK) else ""
    return hit.model_copy(update={"text": text or None, "before": [], "after": []})
