"""Copies of blobs on this machine's disk, for parsers, which read files."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Final

from latent_core.domain.ids import Sha256

MAX_BYTES: Final = 2 * 1024**3
IN_USE_SECONDS: Final = 3600.0
"""A copy requested within this time may still be in use."""

Download = Callable[[IO[bytes]], None]


class LocalBlobCache:
    """Files named by bucket and hash below ``folder``; the oldest are removed when they exceed ``max_bytes``.

    Thread-safe; one process owns the folder.
    """

    def __init__(
        self,
        folder: Path,
        *,
        max_bytes: int = MAX_BYTES,
        in_use_seconds: float = IN_USE_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._in_use_seconds = in_use_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._bytes: int | None = None
        """Upper bound of the cached bytes; None before the first count."""

    def of(self, bucket: str, sha256: Sha256, download: Download) -> Path:
        """The complete copy; ``download`` writes a missing one."""
        path = self._path(bucket, sha256)
        with self._lock:
            if path.exists():
                os.utime(path, (self._clock(), self._clock()))
                return path
        self._folder.mkdir(0o700, parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=self._folder, prefix="draft-", delete=False) as draft:
            try:
                download(draft)
                draft.flush()
                size = draft.tell()
                Path(draft.name).replace(path)
                os.utime(path, (self._clock(), self._clock()))
            finally:
                Path(draft.name).unlink(missing_ok=True)
        with self._lock:
            self._added(path, size)
        return path

    def forget(self, bucket: str, sha256: Sha256) -> None:
        """Remove the copy; open readers are not affected."""
        self._path(bucket, sha256).unlink(missing_ok=True)

    def _path(self, bucket: str, sha256: Sha256) -> Path:
        """Separate for each bucket: where a blob is removed, its copies of other buckets may be in use."""
        return self._folder / (f"{bucket}.{sha256}" if bucket else sha256)

    def _added(self, path: Path, size: int) -> None:
        """Thousands of small files fit, so the folder is scanned only when they may exceed the limit."""
        if self._bytes is not None:
            self._bytes += size
        if self._bytes is None or self._bytes > self._max_bytes:
            self._bytes = self._free_space(keep=path)

    def _free_space(self, keep: Path) -> int:
        """Returns the remaining bytes."""
        files = [(p.stat(), p) for p in self._folder.iterdir() if not p.name.startswith("draft-")]
        total = sum(status.st_size for status, _ in files)
        idle_since = self._clock() - self._in_use_seconds
        for status, path in sorted(files, key=lambda one: one[0].st_mtime):
            if total <= self._max_bytes or status.st_mtime > idle_since:
                break
            if path != keep:
                path.unlink(missing_ok=True)
                total -= status.st_size
        return total
