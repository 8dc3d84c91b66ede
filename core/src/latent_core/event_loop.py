"""The event loop that a process runs on: libuv's, which gateway and worker bring along; on Windows Python's own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from latent_core.absent import remember_absent

T = TypeVar("T")

SWITCH_SECONDS: Final = 0.001
"""So long a thread that computes lets the loop wait before it has its turn, at every message: Python's own 5 ms let
engines stand still while an import made rows beside the loop that sends them."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """As ``asyncio.run``. Most of what we do is many small messages, each of which costs libuv's loop less."""
    remember_absent()
    sys.setswitchinterval(SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=_factory()) as runner:
        return runner.run(main)


def _factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # on Windows, or with the core alone
        return None
    return uvloop.new_event_loop
