"""Keeps a model from being removed while a container that uses it is created, and the other way round.

Of the lock file of a name, any number of processes hold a share while they look for the model and write the row of its
vectors. A removal holds the file alone while it asks for such rows and removes the folder.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from latent_core.domain.errors import TimedOut
from latent_core.models.store.layout import LOCK, ModelStore, OnWait, disk_errors
from latent_core.runtime.file_lock import try_lock, try_share

USE: Final = "use-"
"""In the name of the lock file, which no model's name can begin."""
SHARE_SECONDS: Final = 10.0
"""How long a creation waits for a removal, which asks the gateway and renames a folder."""
_POLL_SECONDS: Final = 0.05
_READ_ONLY: Final = (errno.EROFS, errno.EACCES, errno.EPERM)


@asynccontextmanager
async def in_use(
    store: ModelStore, name: str, seconds: float = SHARE_SECONDS
) -> AsyncIterator[None]:
    """Models of ``name`` are not removed until the block ends; ``TimedOut`` if a removal takes longer than ``seconds``."""
    lock = _open_to_share(store, name)
    if lock is None:
        yield
        return
    try:
        until = time.monotonic() + seconds
        while not try_share(lock):
            if time.monotonic() >= until:
                raise TimedOut(
                    f"process {_process(lock)} still removes the model {name} after {seconds:.0f} s: try again",
                    pid=_process(lock),
                )
            await asyncio.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(lock)


@contextmanager
def unused(
    store: ModelStore, name: str, seconds: float, on_wait: OnWait | None = None
) -> Iterator[None]:
    """No container that uses a model of ``name`` is being created until the block ends; ``TimedOut`` if one still is
    after ``seconds``. ``on_wait`` is called once with 0: those who share a lock are not known."""
    with disk_errors(store.root):
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        lock = os.open(store.root / f"{LOCK}{USE}{name}", flags, 0o600)
    try:
        until = time.monotonic() + seconds
        while not try_lock(lock):
            if on_wait is not None:
                on_wait(0)
                on_wait = None
            if time.monotonic() >= until:
                raise TimedOut(
                    f"a container that uses {name} is still being created after {seconds:.0f} s: try again"
                )
            time.sleep(_POLL_SECONDS)
        os.pwrite(lock, b"%-10d" % os.getpid(), 0)
        yield
    finally:
        os.close(lock)


def _open_to_share(store: ModelStore, name: str) -> int | None:
    """None if there is no folder of models, or none that anything could be removed from here."""
    path = store.root / f"{LOCK}{USE}{name}"
    try:
        return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except FileNotFoundError:
        return None
    except OSError as exc:
        if exc.errno in _READ_ONLY:
            return None
        with disk_errors(store.root):
            raise


def _process(lock: int) -> int:
    content = os.pread(lock, 32, 0).strip()
    return int(content) if content.isdigit() else 0
