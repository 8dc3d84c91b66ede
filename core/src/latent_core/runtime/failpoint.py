"""Named places where a process can be told to die as by ``kill -9``, for the tests of crashes.

One call before and one after every outside write: ``failpoint("ingest.before_vectors")``. The name says
the operation and the side of the call. Nothing happens unless ``LLC_FAILPOINT`` names the place: armed once,
where the stack is opened. Names are written out as literals, so that a test can list them from the source.
"""

from __future__ import annotations

import os

KILLED = 137  # what a shell reports of a process ended by SIGKILL

_armed: str | None = None


def arm(name: str | None) -> None:
    """Die at the point ``name`` from now on; None disarms. Of the whole process, like the death itself."""
    global _armed
    _armed = name


def failpoint(name: str) -> None:
    """End the process here if this is the point it was told to die at: no clean-up, no flush, no answer."""
    if name == _armed:
        os._exit(KILLED)
