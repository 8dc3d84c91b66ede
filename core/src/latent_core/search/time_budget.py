"""The time of a search: one deadline, and the shares of its stages."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Final

REMOTE_EMBEDDING: Final = 0.5
"""Share for a remote embedding model before the channels begin."""
CHANNELS: Final = 0.8
"""Share for the channels. The rest is for the join, so that one late channel does not lose the other's hits."""
WIDENING: Final = 0.5
"""After this share no deeper round begins."""
FILTER: Final = 0.3
"""After this share a filter that has not listed its chunks counts as broad."""
GRACE_SECONDS: Final = 0.2
"""Extra time for a container after its deadline."""
JOIN_GRACE_SECONDS: Final = 0.1
"""Extra time for its joins. Without them there is no answer: a search that waits longer for Postgres fails."""
PAGE_SECONDS: Final = 1.0
"""Extra time to read the rows of the hits."""


@dataclass(frozen=True, slots=True)
class TimeBudget:
    """``seconds`` from ``begun``, a time of the event loop."""

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
        """Seconds left, at least a millisecond: a call with this timeout then fails as late, not as invalid."""
        return max(0.001, self.deadline - asyncio.get_running_loop().time())

    @property
    def is_over(self) -> bool:
        return asyncio.get_running_loop().time() > self.deadline

    def share(self, part: float) -> TimeBudget:
        return replace(self, seconds=part * self.seconds)

    def within(self, other: TimeBudget) -> TimeBudget:
        """Shortened to the deadline of ``other``."""
        return replace(self, seconds=min(self.deadline, other.deadline) - self.begun)

    def limit(self) -> asyncio.Timeout:
        """A context manager that raises ``TimeoutError`` at the deadline."""
        return asyncio.timeout_at(self.deadline)


@dataclass(frozen=True, slots=True)
class ContainerBudget:
    """One container's time."""

    channels: TimeBudget
    widening: TimeBudget
    filter: TimeBudget

    @classmethod
    def start(cls, seconds: float, *, spent: float) -> ContainerBudget:
        """``spent``: seconds that have already passed; they shorten the shares of widening and filter."""
        channels = TimeBudget.start(seconds, spent=spent).share(CHANNELS)
        left = TimeBudget.start(seconds - spent)
        return cls(
            channels=channels,
            widening=left.share(WIDENING).within(channels),
            filter=left.share(FILTER).within(channels),
        )
