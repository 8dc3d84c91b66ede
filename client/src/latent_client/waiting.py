"""Waits for many jobs with few requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Final

from pydantic import BaseModel

from latent_core.domain.errors import TimedOut
from latent_core.domain.job import JobState, JobView

FINAL: Final = frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED})
PROBES: Final = 32
"""Jobs per request: so many of the oldest, and so many of the others."""
HOUR: Final = 3600.0
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 1.0
"""Also used if there are more open jobs than one request covers."""


class WaitProgress(BaseModel):
    """Progress of the awaited jobs."""

    total: int
    done: int
    """Jobs in a final state."""
    failed: int
    running: list[JobView]
    """Running jobs, as of the last request."""
    at: datetime


OnWait = Callable[[WaitProgress], None]
AskJobs = Callable[[Sequence[int]], Awaitable[list[JobView]]]


class JobWait:
    """Waits for jobs, oldest first."""

    def __init__(self, ask: AskJobs, job_ids: Sequence[int], on_progress: OnWait | None) -> None:
        self._ask = ask
        self._ids = list(dict.fromkeys(job_ids))
        self._open = dict.fromkeys(sorted(self._ids))
        self._next_probe = 0
        self._seen: dict[int, JobView] = {}
        self._on_progress = on_progress

    async def run(self, timeout_seconds: float) -> list[JobView]:
        """The jobs in their final states, in the given order. ``TimedOut`` names the open ones."""
        deadline = time.monotonic() + timeout_seconds
        pause = FIRST_PAUSE
        while self._open:
            ended = await self._round()
            self._tell()
            if not self._open:
                break
            if time.monotonic() + pause > deadline:
                raise self._too_late(timeout_seconds)
            pause = FIRST_PAUSE if ended else min(pause * 2, LONGEST_PAUSE)
            if len(self._open) > 2 * PROBES:
                pause = LONGEST_PAUSE
            await asyncio.sleep(pause)
        return [self._seen[job_id] for job_id in self._ids]

    async def _round(self) -> int:
        """Query open jobs until fewer than half of a batch have ended. Returns the number of ended jobs."""
        ended = 0
        while self._open:
            views = await self._ask(self._probe())
            self._seen.update({view.job_id: view for view in views})
            final = [view.job_id for view in views if view.state in FINAL]
            for job_id in final:
                del self._open[job_id]
            ended += len(final)
            if 2 * len(final) < len(views):
                break
        return ended

    def _probe(self) -> list[int]:
        """The oldest jobs, since workers run them roughly in order, and a rotating part of the others."""
        self._next_probe = (self._next_probe + PROBES) % len(self._open)
        oldest = islice(self._open, PROBES)
        others = islice(self._open, self._next_probe, self._next_probe + PROBES)
        return sorted({*oldest, *others})

    def _tell(self) -> None:
        if self._on_progress is None:
            return
        final = [view for view in self._seen.values() if view.state in FINAL]
        self._on_progress(
            WaitProgress(
                total=len(self._ids),
                done=len(final),
                failed=sum(view.state is JobState.FAILED for view in final),
                running=[v for v in self._seen.values() if v.state is JobState.RUNNING],
                at=datetime.now(UTC),
            )
        )

    def _too_late(self, timeout_seconds: float) -> TimedOut:
        left = sorted(self._open)
        named = ", ".join(str(job_id) for job_id in left[:5]) + (" …" if len(left) > 5 else "")
        return TimedOut(
            f"{len(left)} of {len(self._ids)} jobs did not end within {timeout_seconds:g} s ({named}); "
            "they continue, see `latent jobs list`",
            open_jobs=left,
        )
