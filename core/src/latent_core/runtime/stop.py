"""SIGINT and SIGTERM for a process: they abort its start, or end its work in order."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)


class StopSignal:
    """The action of the signals. Until ``gracefully`` is called, the first one cancels the task that made this."""

    def __init__(self) -> None:
        self.requested = False
        self._starting = asyncio.current_task()
        self._action: Callable[[], None] | None = None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._ask)

    def gracefully(self, action: Callable[[], None]) -> None:
        """The start is over: from now on, a signal calls ``action``."""
        self._action = action

    def _ask(self) -> None:
        first, self.requested = not self.requested, True
        if self._action is not None:
            self._action()
        elif first and self._starting is not None:
            self._starting.cancel()


@contextmanager
def stop_signals() -> Iterator[StopSignal]:
    """Handle the signals. If one aborts the start, the block ends there, without an error.

    A process that returns after that exits with 0; what was called for a result raises an error after the block.
    """
    stop = StopSignal()
    try:
        yield stop
    except asyncio.CancelledError:
        if not stop.requested:
            raise
        logger.warning("start_aborted", extra={"cause": "SIGTERM or SIGINT"})
