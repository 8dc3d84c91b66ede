"""The folder of a process that owns no store: models, which all share, and files on their way, which are its own."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import time
from pathlib import Path
from typing import Final, Self

from latent_core.runtime.data_directory import PRIVATE, DataDirectory, storage_errors

YOUNG_SECONDS: Final = 60.0
_LOCK: Final = "lock"


class WorkFolder:
    """Below ``path``, which any number of gateways and workers may share: nothing in it is the truth."""

    def __init__(self, path: Path) -> None:
        self._shared = DataDirectory(path)
        self._own = self._all / f"{os.getpid()}-{secrets.token_hex(4)}"
        self._lock: int | None = None

    @property
    def path(self) -> Path:
        return self._shared.path

    @property
    def models(self) -> Path:
        return self._shared.models

    @property
    def tmp(self) -> Path:
        """This process's own; gone when it ends."""
        return self._own / "tmp"

    @property
    def _all(self) -> Path:
        return self._shared.path / "work"

    def token(self) -> str:
        """As in a data directory: made at first use, the same for all who share the folder."""
        return self._shared.token()

    def __enter__(self) -> Self:
        with storage_errors(self.path):
            self.path.mkdir(PRIVATE, parents=True, exist_ok=True)
            self.models.mkdir(PRIVATE, exist_ok=True)
            self._all.mkdir(PRIVATE, exist_ok=True)
            self._sweep()
            self._own.mkdir(PRIVATE)
            self._lock = os.open(self._own / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            self.tmp.mkdir(PRIVATE)
        return self

    def __exit__(self, *exc: object) -> None:
        shutil.rmtree(self._own, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _sweep(self) -> None:
        """Remove what killed processes left: their locks went with them."""
        for folder in self._all.iterdir():
            try:
                if time.time() - folder.stat().st_mtime < YOUNG_SECONDS:
                    continue  # it may be between its making and its lock
                lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
            except OSError:  # another one is just removing it
                continue
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue
            else:
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
