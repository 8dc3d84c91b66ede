"""The log lines of a process in a file, rotated by size."""

from __future__ import annotations

import logging
import os
from collections import deque
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler, WatchedFileHandler
from pathlib import Path
from typing import Final

from typing_extensions import override

MAX_BYTES: Final = 10_000_000
OLDER_FILES: Final = 3
MAX_EARLY_LINES: Final = 1_000


class LogFile(logging.Handler):
    """Keeps lines in memory until ``open`` names the file: the folder is ours only after a part of the start."""

    def __init__(self) -> None:
        super().__init__()
        self._early: deque[logging.LogRecord] = deque(maxlen=MAX_EARLY_LINES)
        self._file: logging.FileHandler | None = None

    @property
    def path(self) -> Path | None:
        """The file, once it is open."""
        return Path(self._file.baseFilename) if self._file is not None else None

    def open(self, path: Path) -> None:
        """Write the lines so far and all later ones to ``path``."""
        self._use(
            _RotatedFile(
                path, maxBytes=MAX_BYTES, backupCount=OLDER_FILES, encoding="utf-8", delay=True
            )
        )

    def follow(self, path: Path) -> None:
        """The same to a file that another process has open and rotates."""
        self._use(_FollowedFile(path, encoding="utf-8", delay=True))

    def _use(self, file: logging.FileHandler) -> None:
        file.setFormatter(self.formatter)
        self._file = file
        while self._early:
            file.handle(self._early.popleft())

    @override
    def emit(self, record: logging.LogRecord) -> None:
        if self._file is None:
            self._early.append(record)
        else:
            self._file.handle(record)

    @override
    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        super().close()


class _PrivateFile(logging.FileHandler):
    @override
    def _open(self) -> TextIOWrapper:
        """Only its owner may read it, also if others may read its folder."""
        file = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return os.fdopen(file, "a", encoding=self.encoding)

    @override
    def handleError(self, record: logging.LogRecord) -> None:
        """A line that cannot be written is dropped: a full disk is reported by the stores, not once per line."""


class _RotatedFile(_PrivateFile, RotatingFileHandler):
    pass


class _FollowedFile(_PrivateFile, WatchedFileHandler):
    pass
