"""The time of a search: one deadline, and shares of it for what happens before others."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Final

REMOTE_EMBEDDING: Final = 0.5
"""That a model behind a network may take before the other channels begin."""
CHANNELS: Final = 0.8
"""For the channels: the rest is for the join, so that one late channel never costs the other's hits."""
WIDENING: Final = 0.5
"""After it no search begins that goes deeper."""
FILTER: Final = 0.3
"""After it a filter that has not named its chunks counts as broad."""
GRACE_SECONDS: Final = 0.2
"""What a container may take beyond its deadline, for its joins."""


@dataclass(frozen=True, slots=True)
class TimeBudget:
    """So many seconds since a time of the event loop."""

    begun: float
    seconds: float

    @classmethod
    def start(cls, seconds: float, *, spent: float = 0.0) -> TimeBudget:
        """From now, or from ``spent`` seconds ago."""
        return cls(asyncio.get_running_loop().time() - spent, seconds)

    @property
    def deadline(self) -> float:
        return self.begun + self.seconds

    def remaining(self) -> float:
        """Seconds, never less than a millisecond: a call that gets them fails as late, not as wrong."""
        return max(0.001, self.deadline - asyncio.get_running_loop().time())

    @property
    def is_over(self) -> bool:
        return asyncio.get_running_loop().time() > self.deadline

    def share(self, part: float) -> TimeBudget:
        return replace(self, seconds=part * self.seconds)

    def within(self, other: TimeBudget) -> TimeBudget:
        """Not beyond the end of ``other``."""
        return replace(self, seconds=min(self.deadline, other.deadline) - self.begun)

    def limit(self) -> asyncio.Timeout:
        """Ends its block at the deadline with ``TimeoutError``."""
        return asyncio.timeout_at(self.deadline)


@dataclass(frozen=True, slots=True)
class ContainerBudget:
    """One container's time."""

    channels: TimeBudget
    widening: TimeBudget
    filter: TimeBudget

    @classmethod
    def start(cls, seconds: float, *, spent: float) -> ContainerBudget:
        """``spent``: seconds of it that are gone already. They shorten what widening and filter share."""
        channels = TimeBudget.start(seconds, spent=spent).share(CHANNELS)
        left = TimeBudget.start(seconds - spent)
        return cls(
            channels=channels,
            widening=left.share(WIDENING).within(channels),
            filter=left.share(FILTER).within(channels),
        )
