"""Files of this machine, read without stopping the event loop."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO, Final

from latent_core.domain.errors import Invalid

BLOCK: Final = 256 * 1024


async def read_blocks(file: Path) -> AsyncIterator[bytes]:
    """The bytes of ``file``; ``Invalid`` when it cannot be read."""
    opened = await asyncio.to_thread(_open, file)
    try:
        while block := await asyncio.to_thread(_read, opened, file):
            yield block
    finally:
        opened.close()


async def sha256_of(file: Path) -> str:
    """Lower-case hexadecimal; ``Invalid`` when the file cannot be read."""
    return await asyncio.to_thread(_sha256, file)


def unreadable(file: Path, exc: OSError) -> Invalid:
    return Invalid(f"{file} cannot be read: {exc.strerror or exc}")


def _sha256(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as exc:
        raise unreadable(file, exc) from exc


def _open(file: Path) -> BinaryIO:
    try:
        # A pipe put in the file's place would be waited for without end.
        return open(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except OSError as exc:
        raise unreadable(file, exc) from exc


def _read(opened: BinaryIO, file: Path) -> bytes:
    try:
        return opened.read(BLOCK)
    except OSError as exc:
        raise unreadable(file, exc) from exc
