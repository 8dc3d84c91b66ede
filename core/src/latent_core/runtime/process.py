"""This process: the event loop that it runs on (libuv's where it is installed), and the processors it may use."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from importlib.util import find_spec
from typing import Any, Final, TypeVar

LOOKED_FOR: Final = ("sniffio",)


def remember_absent(names: tuple[str, ...] = LOOKED_FOR) -> None:
    """Have Python say of those that are absent that they are, without a search. For a composition root."""
    for name in names:
        if name not in sys.modules and find_spec(name) is None:
            sys.modules[name] = None  # type: ignore[assignment]  # documented: it then cannot be found


T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """As ``asyncio.run``. Most of what we do is many small messages, each of which costs libuv's loop less."""
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
    """Those it is bound to, where the system tells; at least one."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
