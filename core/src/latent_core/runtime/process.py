"""This process: the event loop that it runs on (libuv's where it is installed), and the processors it may use."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from latent_core.runtime.imports import remember_absent

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Like ``asyncio.run``. We exchange many small messages, which cost less on libuv's loop."""
    remember_absent()
    with asyncio.Runner(loop_factory=_factory()) as runner:
        return runner.run(main)


def _factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # on Windows, or with the core alone
        return None
    return uvloop.new_event_loop


def cores() -> int:
    """The processors of its CPU affinity, where the system supports that; at least one."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
