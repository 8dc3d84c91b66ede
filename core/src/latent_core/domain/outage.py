"""When an outage is believed: jobs wait for a service that is away, as long as it is away for others, too.

A server may fail for one request alone, each time it is sent, and be well for all others. Its answer looks like
that of one that is ill. What becomes of other jobs meanwhile tells the two apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MOST_PAUSES: Final = 20
"""In a row, over a quarter of an hour: from then on it counts that others are served."""
ALONE_SECONDS: Final = 24 * 3600.0
"""So long a job waits that nobody shares an outage with, and nobody refutes it."""
LONGEST_SECONDS: Final = 7 * 24 * 3600.0
"""So long any job waits for a service that answers and fails."""


@dataclass(frozen=True, slots=True)
class Outage:
    """What a job has met, this time included."""

    times: int
    """In a row."""
    seconds: float
    """Since the first of these."""
    others_served: bool
    """Whether another job of its kind began after that, and was done since the last of these."""
    others_wait: bool
    """Whether another job waits for a service now."""

    @property
    def is_of_this_job(self) -> bool:
        """Whether the job is given up, since it is its own request that the service fails on, or nobody will ever know."""
        refuted = self.others_served and self.times >= MOST_PAUSES
        alone = not self.others_wait and self.seconds >= ALONE_SECONDS
        return refuted or alone or self.seconds >= LONGEST_SECONDS

    def words(self) -> str:
        """What its owner is told beside the cause."""
        if self.others_served:
            told = (
                "while other jobs like it were served: it is what this one asks that makes it fail"
            )
        else:
            told = "and no other job has shown meanwhile that the service is well"
        return (
            f"it ended so {self.times} times in a row within {_duration(self.seconds)}, {told}. Look at the service's "
            "log and at this job's document, then requeue it"
        )


def _duration(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:.0f} hours" if hours >= 2 else f"{max(1.0, seconds / 60):.0f} minutes"
