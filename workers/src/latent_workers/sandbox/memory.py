"""Freed memory, back to the system."""

from __future__ import annotations

import ctypes
import sys


def give_back_memory() -> None:
    """Return freed heap to the system: a tree of small nodes leaves a heap that nothing else uses."""
    if sys.platform.startswith("linux"):
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
