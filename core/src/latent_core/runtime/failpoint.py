"""Named points where crash tests end the process as by ``kill -9``.

There is one before and one after every write outside the database: ``failpoint("ingest.before_vectors")``. The
name gives the operation and the side. ``LLC_FAILPOINT`` arms one point when the stack is opened; otherwise they do
nothing. Names are literals, so that a test can list them from the source.
"""

from __future__ import annotations

import os

KILLED = 137  # what a shell reports of a process ended by SIGKILL

_armed: str | None = None


def arm(name: str | None) -> None:
    """End the process at the point ``name``; None disarms."""
    global _armed
    _armed = name


def failpoint(name: str) -> None:
    """End the process here if this point is armed: no clean-up, no flush, no answer."""
    if name == _armed:
        os._exit(KILLED)
