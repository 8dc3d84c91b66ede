"""Hashes of files: SHA-256, which is kept, and the hash of git, which hubs list for small files."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

_BLOCK: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileHashes:
    size: int
    sha256: str
    git_hash: str


def open_regular(path: Path) -> BinaryIO:
    """The file for reading, if it is a regular one; ``OSError`` for links and all others."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a regular file")
    return os.fdopen(descriptor, "rb")


def hashes_of(path: Path) -> FileHashes:
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        sha256 = hashlib.sha256()
        git = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        while block := file.read(_BLOCK):
            sha256.update(block)
            git.update(block)
    return FileHashes(size, sha256.hexdigest(), git.hexdigest())
