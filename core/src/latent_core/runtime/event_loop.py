"""Runs a process on libuv's event loop (on Windows Python's own), and speeds up imports of absent packages."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from importlib.util import find_spec
from typing import Any, Final, TypeVar

LOOKED_FOR: Final = ("sniffio",)


def remember_absent(names: tuple[str, ...] = LOOKED_FOR) -> None:
    """Make imports of absent packages fail without a search. Called in a composition root."""
    for name in names:
        if name not in sys.modules and find_spec(name) is None:
            sys.modules[name] = None  # type: ignore[assignment]  # documented: the import then fails


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
