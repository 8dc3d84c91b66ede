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
from typing import Final, Self

from latent_core.domain.errors import RateLimited
from latent_core.runtime.process import cores, part
from latent_core.wire.search import Detail, Hit

MORE_THAN_CORES: Final = 1
"""One search can wait for a store while the others keep the cores busy."""
MAX_WAITING: Final = 500
"""Searches of one kind that wait for a slot. One more is refused at once, because it would hardly get one in time."""
MAX_CHECKS: Final = 6
"""Searches that check at the same time what they may read. More would take the connections of the pool from those
that have a slot."""
RETRY_AFTER_SECONDS: Final = 2


class SlotQueue:
    """The slots of one kind of search, given in order of arrival."""

    def __init__(self, limit: int, max_waiting: int) -> None:
        self._free = asyncio.Semaphore(limit)
        self._max_waiting = max_waiting
        self._waiting = 0

    async def acquire(self, seconds: float) -> None:
        """``RateLimited`` when none becomes free in time, or when too many searches wait already."""
        if self._free.locked() and self._waiting >= self._max_waiting:
            raise _refused(f"{self._waiting} searches wait for a slot already")
        self._waiting += 1
        try:
            async with asyncio.timeout(seconds):
                await self._free.acquire()
        except TimeoutError as exc:
            raise _refused(f"no slot became free within {seconds:g} s") from exc
        finally:
            self._waiting -= 1

    def release(self) -> None:
        self._free.release()


def _refused(cause: str) -> RateLimited:
    return RateLimited(
        f"Too many concurrent searches: {cause}. Retry in {RETRY_AFTER_SECONDS} s.",
        retry_after=RETRY_AFTER_SECONDS,
    )


class SearchSlot:
    """The slot of one search."""

    def __init__(self, queue: SlotQueue) -> None:
        self._queue = queue
        self._held = False

    async def acquire(self, seconds: float) -> None:
        """``RateLimited`` when none becomes free in time."""
        await self._queue.acquire(seconds)
        self._held = True

    def release(self) -> None:
        if self._held:
            self._held = False
            self._queue.release()

    @asynccontextmanager
    async def released(self, seconds: float) -> AsyncIterator[None]:
        """Release the slot inside the block and acquire it again afterwards. The search is nearly done by then: if no
        slot becomes free within ``seconds``, it continues without one."""
        self.release()
        yield
        with suppress(RateLimited):
            await self.acquire(seconds)


class SearchLimiter:
    """The slots of one process. Searches for exact text have slots of their own, so that slow expressions never delay
    the others."""

    def __init__(
        self, wait_seconds: float, limit: int | None = None, max_waiting: int = MAX_WAITING
    ) -> None:
        """``wait_seconds``: how long a search waits for its slot. ``limit`` per kind of search; by default the number
        of cores plus one."""
        limit = limit or cores() + MORE_THAN_CORES
        self._wait_seconds = wait_seconds
        self._checks = SlotQueue(MAX_CHECKS, max_waiting)
        self._usual = SlotQueue(limit, max_waiting)
        self._exact = SlotQueue(limit, max_waiting)

    @classmethod
    def of_process(cls, wait_seconds: float, processes: int) -> Self:
        """For one of several processes of a gateway, which share the cores."""
        limit = part(cores() + MORE_THAN_CORES, processes)
        return cls(wait_seconds, limit, part(MAX_WAITING, processes))

    @asynccontextmanager
    async def check(self) -> AsyncIterator[None]:
        """For the lookup of what a search may read, which comes before its slot."""
        await self._checks.acquire(self._wait_seconds)
        try:
            yield
        finally:
            self._checks.release()

    @asynccontextmanager
    async def slot(self, *, exact: bool) -> AsyncIterator[SearchSlot]:
        slot = SearchSlot(self._exact if exact else self._usual)
        await slot.acquire(self._wait_seconds)
        try:
            yield slot
        finally:
            slot.release()


MARK: Final = "..."


@dataclass(frozen=True, slots=True)
class BudgetFit:
    hits: list[Hit]
    documents: int
    """Number of documents with a hit."""
    truncated: bool
    """A text was shortened, or hits were moved to the next page."""


def fit(documents: Sequence[list[Hit]], detail: Detail, max_chars: int | None) -> BudgetFit:
    """The first hits that fit, of documents with their best hit first. At least one is returned, without its text if
    necessary."""
    kept: list[Hit] = []
    left = max_chars
    for number, hits in enumerate(documents):
        for at, hit in enumerate(hits):
            shown = _brief(hit) if detail == "brief" else hit
            if left is None:
                kept.append(shown)
                continue
            if _size(shown) > left:
                last = _last(shown, left, must=not kept)
                return BudgetFit([*kept, *last], number + bool(at or last), truncated=True)
            kept.append(shown)
            left -= _size(shown)
    return BudgetFit(kept, len(documents), truncated=False)


def _last(hit: Hit, left: int, *, must: bool) -> list[Hit]:
    """A hit that does not fit, with as much of its text as fits; none if its snippet does not fit, unless a ``must``."""
    short = _brief(hit)
    if _size(short) <= left:
        return [_shortened(hit, left - _size(short))]
    return [short] if must else []


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
