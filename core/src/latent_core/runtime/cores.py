"""How many processors this process may use."""

from __future__ import annotations

import os


def cores() -> int:
    """Those it is bound to, where the system tells; at least one."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
