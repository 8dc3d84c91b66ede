"""Runs a command below a guardian process, and ends processes that an earlier run left behind."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

from latent_core.domain.errors import Conflict, LatentError, OutOfSpace, TimedOut, Unavailable
from latent_core.runtime.account import ServerAccount
from latent_core.runtime.data_directory import storage_errors

GUARDIAN = Path(__file__).with_name("guardian.py")
_PROGRAMS = ("postgres", "initdb")
_HAS_PROC = os.path.lexists("/proc/self/cwd")  # not on macOS
_POLL_SECONDS = 0.02
_KILL_SECONDS = 5.0


def end_leftovers(folders: Sequence[Path], grace: float) -> list[int]:
    """End our processes that run in the folders; returns their pids. Blocks: call in a thread.

    Asks for a regular stop (``grace`` seconds), then an immediate one, then kills. Raises ``Conflict`` when a
    process survives.
    """
    ended: list[int] = []
    stages: tuple[tuple[Callable[[psutil.Process, set[int]], int | None], float], ...] = (
        (_politely, grace),
        (lambda _process, _pids: signal.SIGQUIT, min(grace, _KILL_SECONDS)),
        (lambda _process, _pids: signal.SIGKILL, _KILL_SECONDS),
    )
    for choose, seconds in stages:
        found = find_leftovers(folders)
        if not found:
            return sorted(set(ended))
        ended += [process.pid for process in found]
        _signal(found, choose)
        _wait(found, seconds)
    if stuck := find_leftovers(folders):
        raise Conflict(
            f"process {stuck[0].pid} of an earlier run holds {folders[0]} and cannot be ended: "
            "end it, or restart the machine"
        )
    return sorted(set(ended))


def find_leftovers(folders: Sequence[Path]) -> list[psutil.Process]:
    places = {_identity(folder) for folder in folders if folder.is_dir()}
    return [p for p in psutil.process_iter() if _is_ours(p, places)]


def _is_ours(process: psutil.Process, places: set[tuple[int, int]]) -> bool:
    try:
        return _place(process) in places and _is_program(process)
    except (psutil.Error, OSError):  # it ended meanwhile, or belongs to another user
        return False


def _place(process: psutil.Process) -> tuple[int, int]:
    link = Path(
        f"/proc/{process.pid}/cwd"
    )  # leads to the folder itself, whatever its name is there
    return _identity(link if _HAS_PROC else Path(process.cwd()))


def _identity(folder: Path) -> tuple[int, int]:
    status = os.stat(folder)
    return status.st_dev, status.st_ino


def _is_program(process: psutil.Process) -> bool:
    return process.name().startswith(_PROGRAMS) or _is_guardian(process)


def _is_guardian(process: psutil.Process) -> bool:
    # By name only: the process may belong to another installation.
    return any(Path(word).name == GUARDIAN.name for word in process.cmdline()[:4])


def _politely(process: psutil.Process, pids: set[int]) -> int | None:
    """A guardian ends its server, and a server its backends; only a backend without a server is ended directly."""
    if _is_guardian(process):
        return signal.SIGTERM
    if process.ppid() in pids:
        return None
    return signal.SIGINT if "-D" in process.cmdline() else signal.SIGQUIT


def _signal(
    found: list[psutil.Process], choose: Callable[[psutil.Process, set[int]], int | None]
) -> None:
    pids = {process.pid for process in found}
    for process in found:
        try:
            if (signum := choose(process, pids)) is not None:
                process.send_signal(signum)
        except psutil.NoSuchProcess:
            continue


def _wait(processes: list[psutil.Process], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while any(_alive(process) for process in processes) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def _alive(process: psutil.Process) -> bool:
    # A zombie holds no resources.
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


LOG_BYTES = 8 * 1024 * 1024
GRACE_SECONDS = 10.0
STOP_SECONDS = GRACE_SECONDS + 15.0  # the guardian's own bounds, all used up
_ENVIRONMENT = {"LC_ALL": "C"}  # inherits nothing, so no secret
_COMPLAINTS = ("FATAL", "PANIC", "ERROR", "error:")


@dataclass(frozen=True, slots=True)
class Command:
    """What a guardian runs in the folder ``cwd`` as ``account``, with ``text`` on standard input.

    The guardian removes the folder ``remove``, if empty, after it ended the command.
    """

    name: str
    argv: list[str]
    cwd: Path
    log: Path
    account: ServerAccount | None
    text: str = ""
    remove: Path | None = None

    def guardian_argv(self) -> list[str]:
        options = {
            "cwd": self.cwd,
            "log": self.log,
            "log_bytes": LOG_BYTES,
            "grace": GRACE_SECONDS,
            "text": self.text,
            "remove": self.remove or "",
        }
        if self.account is not None:
            options |= {"uid": self.account.uid, "gid": self.account.gid}
        words = [f"{name}={value}" for name, value in options.items()]
        return [sys.executable, "-I", "-S", str(GUARDIAN), *words, "--", *self.argv]


class GuardedProcess:
    """A running command. When our end of its pipe closes, for any reason, the guardian ends it."""

    def __init__(self, command: Command, process: Process, log_start: int) -> None:
        self._command = command
        self._process = process
        self._log_start = log_start

    @classmethod
    async def spawn(cls, command: Command) -> Self:
        with storage_errors(command.log):
            log = os.open(command.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            start = os.fstat(log).st_size
            process = await asyncio.create_subprocess_exec(
                *command.guardian_argv(),
                stdin=PIPE,
                stdout=log,
                stderr=log,
                env=_ENVIRONMENT,
                start_new_session=True,  # Ctrl-C in the terminal is for the owner alone
            )
            return cls(command, process, start)
        finally:
            os.close(log)

    @property
    def pid(self) -> int:
        """Of the guardian."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.returncode is not None

    async def wait(self) -> int:
        """Wait for the end of the command; returns its exit status."""
        return await self._process.wait()

    async def succeed(self, seconds: float) -> None:
        """Wait for the command to succeed. Raises the error of ``failure``, or ``TimedOut``."""
        try:
            async with asyncio.timeout(seconds):
                status = await self.wait()
        except TimeoutError as exc:
            raise TimedOut(f"{self._command.name} took longer than {seconds:g} s") from exc
        finally:
            self.release()
        if status != 0:
            raise self.failure()

    def release(self) -> None:
        """Close the pipe without waiting: the guardian then ends the command."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    async def stop(self) -> None:
        """End the command; within ``STOP_SECONDS``."""
        self.release()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self.wait()
        except TimeoutError:
            self._process.kill()
            await self.wait()

    def failure(self) -> LatentError:
        """The error with the command's own last message."""
        words = self._last_output()
        if os.strerror(errno.ENOSPC) in words:
            return OutOfSpace(
                f"the disk of {self._command.cwd} is full: free disk space and try again"
            )
        complaints = [line for line in words.splitlines() if any(c in line for c in _COMPLAINTS)]
        reason = complaints[-1] if complaints else f"status {self._process.returncode}"
        return Unavailable(f"{self._command.name} failed: {reason} (log: {self._command.log})")

    def _last_output(self) -> str:
        with self._command.log.open("rb") as log:
            length = os.fstat(log.fileno()).st_size
            log.seek(
                self._log_start if self._log_start <= length else 0
            )  # it may have been truncated
            return log.read(65536).decode("utf-8", errors="replace")
