"""Time in a test: it goes on when somebody sleeps, and only then."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass
class FakeClock:
    """A clock that goes on when somebody sleeps, and only then."""

    now: float = 1000.0
    slept: list[float] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)
