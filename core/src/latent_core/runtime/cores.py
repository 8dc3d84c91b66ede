"""The number of processors that this process may use."""

from __future__ import annotations

import os


def cores() -> int:
    """The processors of its CPU affinity, where the system supports that; at least one."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
