"""How a handler learns that its job is no longer its own.

Not ``LatentError``: nothing is wrong that a user could be told, and a handler that gathers the errors
of single items must not gather these.

    ClaimEnded
    ├── LeaseLost   another worker may hold the job now
    └── Cancelled   somebody asked for the job to end
"""

from __future__ import annotations


class ClaimEnded(Exception):
    """The handler must stop now: what it would write about its job is refused."""


class LeaseLost(ClaimEnded):
    """The claim does not hold any more."""


class JobCancelled(ClaimEnded):
    """Somebody asked for the job to end."""
