"""What a killed owner left running in its data directory: recognised, then ended.

A process is ours when its working directory *is* the folder (the same inode, so neither a copy of
the path in a container nor a recycled pid is taken for it) and its program is one of ours. psutil
signals a process only while pid and start time are those it saw.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from latent_core.domain.errors import Conflict

GUARDIAN = Path(__file__).with_name("guardian.py")
_PROGRAMS = ("postgres", "initdb")
_HAS_PROC = os.path.lexists("/proc/self/cwd")  # not on macOS
_POLL_SECONDS = 0.02
_KILL_SECONDS = 5.0


def end_leftovers(folders: Sequence[Path], grace: float) -> list[int]:
    """End every process of ours in the folders; the pids that were ended. Blocks: call in a thread.

    First as in a proper stop (``grace`` seconds), then at once, then by force. Raises ``Conflict``
    when one survives even that.
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
    # By its name alone: the one that was left may be of another installation.
    return any(Path(word).name == GUARDIAN.name for word in process.cmdline()[:4])


def _politely(process: psutil.Process, pids: set[int]) -> int | None:
    """A guardian ends its server, a server its backends; a backend without server is ended at once."""
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
    # A zombie that its new parent never reaps holds nothing.
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
