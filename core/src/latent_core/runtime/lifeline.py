"""A child ends with its parent: when its pipe to the parent closes.

The pipe works everywhere. On Linux the kernel's PDEATHSIG is added in case the watching
thread is starved. PDEATHSIG follows the *thread* that forked, so children are spawned from the
event loop's own thread, never from a pool thread that may end before them.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def signal_on_parent_death(signum: int = signal.SIGKILL) -> None:
    """Ask the kernel to send ``signum`` to this process when its parent dies (Linux only)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signum), 0, 0, 0)


def watch_parent(fd: int, on_close: Callable[[], None] | None = None) -> threading.Thread:
    """Call ``on_close`` (default: exit at once) when the other end of the pipe ``fd`` closes."""

    def wait() -> None:
        while True:
            try:
                if not os.read(fd, 1):
                    break
            except InterruptedError:
                continue
            except OSError:
                break
        (on_close or _exit)()

    thread = threading.Thread(target=wait, name="lifeline", daemon=True)
    thread.start()
    return thread


def _exit() -> None:
    os._exit(70)
