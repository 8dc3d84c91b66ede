"""Reads local files without blocking the event loop."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import BinaryIO, Final

from latent_core.domain.errors import Invalid

BLOCK: Final = 256 * 1024
TICK_NS: Final = 20_000_000
"""Longer than the clock of a file system stands still."""
COARSE_TICK_NS: Final = 2_500_000_000
"""That of some file systems counts in seconds (FAT: in steps of two)."""


async def read_blocks(
    file: Path, on_read: Callable[[int], None] | None = None
) -> AsyncIterator[bytes]:
    """The bytes of ``file``. Raises ``Invalid`` if it cannot be read. ``on_read`` gets the number of bytes so far."""
    source, size = _Source(file), 0
    try:
        while block := await asyncio.to_thread(source.read):
            yield block
            size += len(block)
            if on_read is not None:
                on_read(size)
    finally:
        source.close()


async def read_part(file: Path, start: int, length: int) -> AsyncGenerator[bytes]:
    """``length`` bytes of ``file`` from ``start`` on. Raises ``Invalid`` if there are fewer."""
    source, left = _Source(file, start), length
    try:
        while left:
            block = (await asyncio.to_thread(source.read))[:left]
            if not block:
                raise Invalid(f"{file} became shorter while it was read; send it again")
            yield block
            left -= len(block)
    finally:
        source.close()


class _Source:
    """A file that threads read, from ``start`` on. After ``close``, no thread opens it again."""

    def __init__(self, file: Path, start: int = 0) -> None:
        self._file = file
        self._start = start
        self._opened: BinaryIO | None = None
        self._closed = False
        self._lock = threading.Lock()

    def read(self) -> bytes:
        with self._lock:
            if self._closed:
                return b""
            try:
                if self._opened is None:
                    self._opened = _open(self._file)
                    if self._start:
                        self._opened.seek(self._start)
                return self._opened.read(BLOCK)
            except OSError as exc:
                raise unreadable(self._file, exc) from exc

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._opened is not None:
                self._opened.close()


async def sha256_of(file: Path) -> str:
    """The hash in lower-case hexadecimal. Raises ``Invalid`` if the file cannot be read."""
    return await asyncio.to_thread(_sha256, file)


def recorded_time(mtime_ns: int) -> int:
    """The modification time to record for a file that is read from now on.

    A file that was modified just now can change again within the same tick of the clock, and its time stays the same.
    So it gets a time that it does not have: the next sync compares its hash.
    """
    tick = COARSE_TICK_NS if mtime_ns % 1_000_000 == 0 else TICK_NS
    return mtime_ns if mtime_ns < time.time_ns() - tick else max(mtime_ns - 1, 0)


def is_text(path: str) -> bool:
    """Whether a path can be encoded in UTF-8. Unix allows any bytes in a name."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def unreadable(file: Path, exc: OSError) -> Invalid:
    return Invalid(f"{file} cannot be read: {exc.strerror or exc}")


def _sha256(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as exc:
        raise unreadable(file, exc) from exc


def _open(file: Path) -> BinaryIO:
    # Non-blocking: if a pipe has replaced the file, opening it would wait forever.
    return open(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
