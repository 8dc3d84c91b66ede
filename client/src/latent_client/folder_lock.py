"""A lock on a folder while its source is looked for, so that two first syncs at the same time create one source."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Final

from latent_core.domain.errors import Invalid, TimedOut

WAIT_SECONDS: Final = 60.0
PAUSE_SECONDS: Final = 0.1
HELD: Final = (errno.EAGAIN, errno.EACCES)


@asynccontextmanager
async def folder_lock(data_dir: Path, container_id: str, folder: Path) -> AsyncIterator[None]:
    """Held for one folder and container by one user of ``data_dir``. The system releases it when its process ends.

    Raises ``TimedOut`` after ``WAIT_SECONDS``, as the other process may wait for the answer of a person.
    """
    path = path_of(data_dir, container_id, folder)
    deadline = monotonic() + WAIT_SECONDS
    while (lock := _taken(path)) is None:
        if monotonic() >= deadline:
            holder = _holder(path)
            raise TimedOut(
                f"process {holder} still decides which source {folder} is in container '{container_id}': wait for it, "
                "answer its question or end it, then try again. Nothing was changed.",
                pid=holder,
            )
        await asyncio.sleep(PAUSE_SECONDS)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(lock)


def path_of(data_dir: Path, container_id: str, folder: Path) -> Path:
    place = f"{container_id}\0{folder}".encode(errors="surrogateescape")
    return data_dir / f"folder-{hashlib.sha256(place).hexdigest()[:32]}.lock"


def _taken(path: Path) -> int | None:
    """The open lock; None if another one holds it."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            taken = _locked(lock) and _is_at(path, lock)
            if taken:
                os.ftruncate(lock, 0)
                os.pwrite(lock, str(os.getpid()).encode(), 0)
        except OSError:
            os.close(lock)
            raise
    except OSError as exc:
        raise Invalid(
            f"{path} cannot be locked: {exc.strerror or exc}. Choose a data directory that this user can write."
        ) from exc
    if taken:
        return lock
    os.close(lock)
    return None


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        if exc.errno in HELD:
            return False
        raise
    return True


def _is_at(path: Path, lock: int) -> bool:
    """Not if its holder has removed it since it was opened: then it excludes no process."""
    try:
        return os.path.samestat(os.fstat(lock), path.stat())
    except FileNotFoundError:
        return False


def _holder(path: Path) -> int:
    try:
        content = path.read_bytes()[:32]
    except OSError:
        return 0
    return int(content) if content.isdigit() else 0
