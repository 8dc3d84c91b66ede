"""The owner of the vector engine's folder: our own child, another live process, or a leftover.

The child holds ``engine.lock`` as long as it lives. Its owner records both processes with their start times in
``engine.json``: a leftover is ended only when pid, start time and program match and its owner is gone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import orjson
import psutil

from latent_core.domain.errors import Conflict, Unavailable
from latent_core.runtime.file_lock import try_lock
from latent_core.vectors.edge.protocol import LOCK_FILE

logger = logging.getLogger(__name__)

PROGRAM: Final = "latent_core.vectors.edge.child"
_RECORD: Final = "engine.json"
_POLL_SECONDS: Final = 0.02
_END_SECONDS: Final = 5.0
_CLOCK_SECONDS: Final = 2.0
"""Start times shift slightly when the machine's clock is set."""


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """A process, identified by pid and start time (epoch seconds)."""

    pid: int
    started: float

    @classmethod
    def of(cls, pid: int) -> RunningProcess:
        return cls(pid, psutil.Process(pid).create_time())

    def find(self) -> psutil.Process | None:
        """The process, if it still runs."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started) < _CLOCK_SECONDS
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None


def note_child(folder: Path, pid: int) -> None:
    """Record the child that this process started; otherwise a leftover cannot be ended, only waited for."""
    try:
        record = {
            "child": asdict(RunningProcess.of(pid)),
            "owner": asdict(RunningProcess.of(os.getpid())),
        }
        draft = folder / f"{_RECORD}.new"
        draft.write_bytes(orjson.dumps(record))
        draft.replace(folder / _RECORD)
    except (OSError, psutil.NoSuchProcess) as exc:
        logger.warning(
            "vector_child_pid_not_written",
            extra={"pid": pid, "path": str(folder), "cause": str(exc)},
        )


async def wait_until_free(folder: Path, timeouts: float) -> None:
    """Wait until no process holds the folder; ends a leftover after ``timeouts`` seconds.

    Raises ``Conflict`` when a live process holds it, ``Unavailable`` when the holder is unknown.
    """
    if await _free_within(folder, timeouts):
        return
    child = _leftover(folder)
    if child is None:
        raise Unavailable(f"an unknown process holds the vectors in {folder}: find and end it")
    child.kill()
    if not await _free_within(folder, _END_SECONDS):
        raise Unavailable(f"process {child.pid} holds the vectors in {folder} and cannot be ended")


async def _free_within(folder: Path, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not _is_free(folder):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_POLL_SECONDS)
    return True


def _is_free(folder: Path) -> bool:
    lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        return try_lock(lock)
    finally:
        os.close(lock)


def _leftover(folder: Path) -> psutil.Process | None:
    """The recorded child, if its owner is gone; ``Conflict`` if it is not."""
    try:
        record: Any = orjson.loads((folder / _RECORD).read_bytes())
        child, owner = RunningProcess(**record["child"]), RunningProcess(**record["owner"])
    except (OSError, ValueError, TypeError, KeyError):
        return None
    process = child.find()
    if process is None or PROGRAM not in process.cmdline():
        return None
    if owner.find() is not None:
        raise Conflict(f"process {owner.pid} holds the vectors in {folder}: stop it first")
    return process
