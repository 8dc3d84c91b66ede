"""A command on a terminal of its own: what a person sees, types and interrupts."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

SECONDS: Final = 60.0
SECONDS_BEFORE_AGAIN: Final = 3.0
CTRL_C: Final = "\x03"
CTRL_D: Final = "\x04"


class Terminal:
    """Standard input, output and errors of one command; killed at the end if it still runs."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], folder: Path
    ) -> None:
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            cwd=folder,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self.shown = ""

    def wait_for(self, text: str) -> None:
        """Read until ``text`` is shown."""
        until = time.monotonic() + SECONDS
        while text not in " ".join(self.shown.split()):
            if not self._read(until):
                raise AssertionError(f"'{text}' is not shown, but: {self.shown}")

    def send(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def end(self, again: str = "") -> int:
        """Read to the end; the exit code. ``again`` is typed once more whenever nothing happens for a while: Python
        notices a signal that comes just before it reads only after the read, and a person would press again."""
        until = time.monotonic() + SECONDS
        while True:
            if again and not select.select([self._ours], [], [], SECONDS_BEFORE_AGAIN)[0]:
                self.send(again)
            elif not self._read(until):
                break
            if time.monotonic() > until:
                raise AssertionError(f"it does not end: {self.shown}")
        return self._process.wait(max(0.1, until - time.monotonic()))

    def _read(self, until: float) -> bool:
        """False at the end of the output."""
        ready, _, _ = select.select([self._ours], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            raise AssertionError(f"nothing happens after: {self.shown}")
        try:
            part = os.read(self._ours, 65_536)
        except OSError:  # Linux: the other side is closed
            return False
        self.shown += part.decode(errors="replace")
        return bool(part)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._ours)
