"""Counts that all gateway processes of an installation share, in memory (ADR 0069).

A request may need a count, so it may not cost a round trip. Nothing here outlives the processes.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from hashlib import blake2b
from pathlib import Path
from tempfile import mkstemp
from typing import Any, Final, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

MAX_PROCESSES: Final = 16
MAX_KEYS: Final = 128
"""With something open at the same time."""
LOCK_SECONDS: Final = 0.02
"""A process that hangs or is stopped while it holds the lock may not stop the others: a count may then get lost."""
_BYTES: Final = 1 << 20
_KEY_BYTES: Final = 16
_ALIGNMENT: Final = 8


class Limit(Enum):
    """The one that was reached."""

    KEY = auto()
    ALL = auto()


class SharedMemory:
    """Memory of all processes that map the same file; of this one alone without a ``descriptor`` of a file.

    Each process must call ``array`` in the same order. ``number`` is that of this process.
    """

    def __init__(self, descriptor: int | None = None, number: int = 1) -> None:
        self.descriptor = descriptor
        self.number = number
        self._mapped = mmap.mmap(-1 if descriptor is None else descriptor, _BYTES)
        self._used = 0
        secret = self.array(np.uint8, _KEY_BYTES)
        if not secret.any():  # the first process: others find it
            secret[:] = np.frombuffer(secrets.token_bytes(_KEY_BYTES), np.uint8)
        self._secret = secret.tobytes()
        self.serving = self.array(np.bool_, MAX_PROCESSES)
        """By number of the process: whether it answers requests."""

    @classmethod
    def create(cls, folder: Path) -> Self:
        """In a file of ``folder`` that has no name, for processes that inherit ``descriptor``."""
        descriptor, name = mkstemp(dir=folder)
        os.unlink(name)
        os.ftruncate(descriptor, _BYTES)
        return cls(descriptor)

    @property
    def serving_processes(self) -> int:
        return int(self.serving.sum())

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def array(self, dtype: DTypeLike, shape: int | tuple[int, ...]) -> NDArray[Any]:
        """The next part of the memory; zeros at first."""
        start = self._used
        found: NDArray[Any] = np.ndarray(shape, dtype, self._mapped, start)
        self._used += -(-found.nbytes // _ALIGNMENT) * _ALIGNMENT
        return found

    def hashed(self, key: str) -> int:
        """Never 0. With a secret: otherwise a client could choose addresses that count as another's."""
        data = key.encode("utf-8", "surrogatepass")
        return int.from_bytes(blake2b(data, digest_size=8, key=self._secret).digest()) or 1

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out during the block, which may not wait for anything."""
        if self.descriptor is None:
            yield
            return
        held = _try_to_lock(self.descriptor)
        try:
            yield
        finally:
            if held:
                fcntl.lockf(self.descriptor, fcntl.LOCK_UN)


def _try_to_lock(descriptor: int) -> bool:
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > until:
                return False
        else:
            return True


class DecayingCounts:
    """Counts by key that decrease over time. Of more than ``size`` keys, those that were unused longest are forgotten."""

    def __init__(self, memory: SharedMemory, size: int) -> None:
        self._memory = memory
        self._keys = memory.array(np.uint64, size)
        self._used = memory.array(np.uint64, size)
        """A number that grows with each use of any key."""
        self._uses = memory.array(np.uint64, 1)
        self._values = memory.array(np.float64, size)
        self._at = memory.array(np.float64, size)
        """The time of each value."""

    def __len__(self) -> int:
        return int(np.count_nonzero(self._keys))

    def over(self, key: str, now: float, *, limit: float, per_second: float) -> float:
        """By how much the count would exceed ``limit`` with one more; it decreases by ``per_second``."""
        with self._memory.locked():
            row = self._find(self._memory.hashed(key))
            return self._over(row, now, limit, per_second)

    def take(self, key: str, now: float, *, limit: float, per_second: float) -> float:
        """Count one more, unless that would exceed ``limit``: then the answer is by how much."""
        with self._memory.locked():
            hashed = self._memory.hashed(key)
            over = self._over(self._find(hashed), now, limit, per_second)
            self._add(hashed, now, 0.0 if over else 1.0, limit, per_second)
        return over

    def add(self, key: str, now: float, *, limit: float, per_second: float) -> None:
        """Count one more, at most up to ``limit``."""
        with self._memory.locked():
            self._add(self._memory.hashed(key), now, 1.0, limit, per_second)

    def _find(self, hashed: int) -> int | None:
        found = np.flatnonzero(self._keys == hashed)
        return int(found[0]) if len(found) else None

    def _over(self, row: int | None, now: float, limit: float, per_second: float) -> float:
        return max(0.0, self._value(row, now, per_second) + 1.0 - limit)

    def _value(self, row: int | None, now: float, per_second: float) -> float:
        if row is None:
            return 0.0
        return max(0.0, float(self._values[row] - (now - self._at[row]) * per_second))

    def _add(self, hashed: int, now: float, more: float, limit: float, per_second: float) -> None:
        row = self._find(hashed)
        value = self._value(row, now, per_second)
        place = int(np.argmin(self._used)) if row is None else row
        self._uses[0] += np.uint64(1)
        self._keys[place], self._used[place] = hashed, self._uses[0]
        self._values[place], self._at[place] = min(value + more, limit), now


class OpenCounts:
    """Things that are open now, by key. What a process had open ends with it, so each counts for itself."""

    def __init__(self, memory: SharedMemory) -> None:
        self._memory = memory
        self._keys = memory.array(np.uint64, MAX_KEYS)
        self._counts = memory.array(np.uint16, (MAX_KEYS, MAX_PROCESSES))

    @property
    def total(self) -> int:
        return int(self._counts.sum())

    def take(self, key: str, *, of_key: int | None, of_all: int | None = None) -> Limit | None:
        """Count one more, unless that would exceed a limit, which is the answer."""
        hashed = self._memory.hashed(key)
        with self._memory.locked():
            if of_all is not None and self.total >= of_all:
                return Limit.ALL
            rows = self._keys == hashed
            if of_key is not None and int(self._counts[rows].sum()) >= of_key:
                return Limit.KEY
            places = np.flatnonzero(rows)
            if not len(places):
                places = np.flatnonzero(self._counts.sum(axis=1) == 0)
            if not len(places):
                return Limit.ALL
            self._keys[places[0]] = hashed
            self._counts[places[0], self._memory.number - 1] += np.uint16(1)
        return None

    def give_back(self, key: str) -> None:
        hashed = self._memory.hashed(key)
        with self._memory.locked():
            self._counts[self._keys == hashed, self._memory.number - 1] -= np.uint16(1)

    def forget_process(self, number: int) -> None:
        """The process has ended."""
        self._counts[:, number - 1] = 0
