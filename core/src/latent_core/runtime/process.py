"""This process: the event loop that it runs on (libuv's where it is installed), and the processors it may use."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Final, TypeVar

LOOKED_FOR: Final = ("sniffio",)


def remember_absent(names: tuple[str, ...] = LOOKED_FOR) -> None:
    """Make imports of absent packages fail without a search. Called in a composition root."""
    for name in names:
        if name not in sys.modules and find_spec(name) is None:
            sys.modules[name] = None  # type: ignore[assignment]  # documented: the import then fails


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import modules without garbage collection: nearly all that they create stays, and looking through it again
    and again is a tenth of the start."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


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
