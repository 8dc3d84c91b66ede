"""The files of a task: opened by the parent, read-only, so that the child needs no path."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from latent_core.domain.errors import IngestFailed


@asynccontextmanager
async def opened(files: Sequence[Path | int]) -> AsyncIterator[list[int]]:
    """Descriptors of ``files``; those opened here are closed at the end."""
    with ExitStack() as stack:
        yield await asyncio.to_thread(_open_all, files, stack)


def _open_all(files: Sequence[Path | int], stack: ExitStack) -> list[int]:
    return [file if isinstance(file, int) else _open(file, stack) for file in files]


def _open(path: Path, stack: ExitStack) -> int:
    try:
        # Without O_NONBLOCK, opening a FIFO would wait for a writer for ever.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as exc:
        raise IngestFailed(f"'{path.name}' cannot be read: {exc.strerror}") from exc
    stack.callback(os.close, fd)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise IngestFailed(f"'{path.name}' is not a regular file")
    return fd
