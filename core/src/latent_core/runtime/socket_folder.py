"""A private folder for Unix sockets. Their paths may have 107 bytes at most, so it is not in the data directory."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from latent_core.domain.errors import Conflict, Invalid

PATH_LIMIT: Final = 103
"""Bytes of a socket's path, on macOS; Linux allows 107."""
BACKLOG: Final = 64


@contextmanager
def listening_socket(data_dir: Path, name: str) -> Iterator[tuple[socket.socket, Path]]:
    """A Unix socket that only this user can reach, and its path, which is the same for every start on ``data_dir``."""
    folder = _folder(data_dir, name)
    _make_private(folder)
    path = folder / name
    path.unlink(missing_ok=True)  # of a process that was killed
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen(BACKLOG)
        try:
            yield listening, path
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _folder(data_dir: Path, name: str) -> Path:
    own = f"latent-{hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]}-{name}"
    for root in (Path(tempfile.gettempdir()), Path("/tmp")):
        if len(os.fsencode(root / own / name)) <= PATH_LIMIT:
            return root / own
    raise Invalid(
        f"the path of a socket in {tempfile.gettempdir()} would be longer than {PATH_LIMIT} bytes: "
        "set TMPDIR to a shorter folder"
    )


def _make_private(folder: Path) -> None:
    """Any user can create folders in the temporary directory: refuse one that another user owns."""
    if not folder.is_symlink() and not folder.exists():
        folder.mkdir(0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise Conflict(
            f"{folder} belongs to another user: remove it, or set TMPDIR to another folder"
        )
    folder.chmod(0o700)
