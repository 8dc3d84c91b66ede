"""A large collection: 8-bit codes of its vectors are in memory, the vectors themselves stay in its file.

A search scores all codes, reads the vectors of the best by them, and orders these by their exact scores. The order is
that of an exact search: more vectors are read until none that was not read can be among the best (docs/adr/0070).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import numpy as np
import simsimd
from numpy.typing import NDArray
from typing_extensions import override

from latent_core.vectors.edge.logged import LoggedCollection
from latent_core.vectors.edge.marker import damaged
from latent_core.vectors.edge.nearest import best_rows, normalised, similarities
from latent_core.vectors.edge.point_log import LogRecord, PointLog
from latent_core.vectors.edge.point_table import POINT_BYTES, PointTable
from latent_core.vectors.edge.points import POINT_HEAD_BYTES, PointBatch
from latent_core.vectors.edge.protocol import CODES, ID_BYTES, check_dims

_LEVELS: Final = 127
"""Codes are whole numbers from -127 to 127."""
_FLOAT_BYTES: Final = 4
_SPARE: Final = 16
"""A table that is read from a file has room for one more point for so many: writing need not copy it at once."""
_ENCODED_ROWS: Final = 8192
"""At a time: what encoding needs beside the codes stays small."""
_MARGIN: Final = 64
"""At first, this many and half of ``k`` more than ``k`` vectors are read. Most often that is enough."""
_GROWTH: Final = 4
_SAFETY: Final = 2.0
"""Errors of the codes that were not seen are at most so many times the largest that was seen among hundreds."""
_ROUNDING: Final = 1e-3
_PROBES: Final = 16
_CACHED_SECONDS: Final = 2e-5
"""If the first vectors take longer each, they were not in the system's cache, and the others may not be."""
_GATHERED: Final = 4
"""The codes of at most one row in so many are copied to score them alone; of more, all rows are scored."""


class CodeTable(PointTable):
    """Points with the codes of their vectors, and where the vectors are in the log."""

    _columns: ClassVar = (*PointTable._columns, "_codes", "_scales", "_places")

    def __init__(self, dims: int, capacity: int) -> None:
        super().__init__(capacity)
        self._codes = np.empty((capacity, dims), np.int8)
        self._scales = np.empty(capacity, np.float32)
        self._places = np.empty(capacity, np.int64)

    @classmethod
    def filled(cls, dims: int, n: int, read: Callable[[memoryview], None]) -> Self:
        """The table of ``n`` points whose ``columns`` are ``read`` into memory one after the other."""
        table = cls(dims, n + n // _SPARE)
        ids = bytearray(n * ID_BYTES)
        read(memoryview(ids))
        for name in cls._columns:
            column: NDArray[Any] = getattr(table, name)[:n]
            read(column.data.cast("B") if n else memoryview(b""))
        table._restore(bytes(ids))
        return table

    @property
    def capacity_bytes(self) -> int:
        return self._codes.nbytes + len(self._codes) * POINT_BYTES

    def places(self, rows: NDArray[np.intp]) -> NDArray[np.int64]:
        """Offsets of the vectors in the log, in bytes."""
        return self._places[rows]

    def put(self, batch: PointBatch, at: int) -> None:
        """Add or replace points, whose record's body begins at ``at`` in the log; of equal ids the last one counts."""
        rows, taken = self._put(batch)
        first = at + len(batch) * POINT_HEAD_BYTES
        self._places[rows] = first + taken * (batch.vectors.shape[1] * _FLOAT_BYTES)
        for start in range(0, len(rows), _ENCODED_ROWS):
            part = slice(start, start + _ENCODED_ROWS)
            codes, scales = encoded(batch.vectors[taken[part]])
            self._codes[rows[part]] = codes
            self._scales[rows[part]] = scales

    def estimates(
        self, unit: NDArray[np.float32], rows: NDArray[np.intp] | None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Approximate products of ``unit`` with the vectors of ``rows``, or of all; and the largest error of each."""
        query, (scale,) = encoded(unit[None])
        codes, scales = self._codes[: len(self)], self._scales[: len(self)]
        few = rows is not None and len(rows) * _GATHERED <= len(self)
        if few:
            codes, scales = codes[rows], scales[rows]
        if not len(codes):
            return np.empty(0, np.float32), np.empty(0, np.float32)
        products = np.asarray(simsimd.cdist(query, codes, metric="dot", out_dtype="float32"))
        found = products[0] * (scales * scale)
        if rows is not None and not few:
            found, scales = found[rows], scales[rows]
        # No part of a vector is off by more than half a step, and both vectors have length 1.
        own, other = scales * (0.5 * np.sqrt(len(unit))), scale * (0.5 * np.sqrt(len(unit)))
        return found, own + other * (1 + own) + _ROUNDING


class LargeCollection(LoggedCollection):
    """An open large collection."""

    def __init__(
        self,
        path: Path,
        log: PointLog,
        records: Sequence[LogRecord],
        table: CodeTable | None = None,
    ) -> None:
        """``table``: what the records before these made."""
        self.table = CodeTable(log.dims, log.upserted) if table is None else table
        super().__init__(path, log, self.table)
        self._read(records)
        self._file = os.open(log.path, os.O_RDONLY | os.O_CLOEXEC)
        self.saved_size = 0
        """Bytes of the log that the saved table has (``saved_codes``)."""

    @property
    @override
    def memory_bytes(self) -> int:
        return self.table.capacity_bytes

    @override
    def search(
        self, vector: NDArray[np.float32], k: int, allowed: Sequence[bytes] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        check_dims(self.dims, len(vector))
        unit = normalised(vector[None])[0]
        among = None if allowed is None else self.table.rows_of(allowed)
        estimates, errors = self.table.estimates(unit, among)
        count = min(k + k // 2 + _MARGIN, len(estimates))
        while True:
            near, beyond = _nearest(estimates, count)
            rows = near if among is None else among[near]
            scores = similarities(self._vectors_of(rows), unit)
            off = np.abs(scores - estimates[near])
            if not (off <= errors[near]).all():  # also if a score is not a number
                raise damaged("a vector in its file is not the one that was written")
            chunk_nos = self.table.chunk_nos[rows]
            best = best_rows(scores, chunk_nos, k)
            surely = beyond + _SAFETY * float(off.max(initial=0.0))
            if len(near) == len(estimates) or not len(best) or scores[best[-1]] > surely:
                return chunk_nos[best], scores[best]
            count = min(_GROWTH * len(near), len(estimates))

    @override
    def rewrite(self) -> None:
        (self.path / CODES).unlink(missing_ok=True)
        super().rewrite()

    @override
    def close(self) -> None:
        os.close(self._file)

    @override
    def _put(self, batch: PointBatch, at: int) -> None:
        self.table.put(batch, at)

    @override
    def _vectors_of(self, rows: NDArray[np.intp]) -> NDArray[np.float32]:
        """Read one by one: a mapped file would count as memory, page by page."""
        found = np.empty((len(rows), self.dims), np.float32)
        if not len(rows):
            return found
        width = self.dims * _FLOAT_BYTES
        space = found.data.cast("B")
        places = self.table.places(rows)
        order, begun = np.argsort(places).tolist(), time.perf_counter()
        for read, n in enumerate(order):
            if read == _PROBES and time.perf_counter() - begun > _PROBES * _CACHED_SECONDS:
                self._ask_for(places[order[read:]])
            part = space[n * width : (n + 1) * width]
            if os.preadv(self._file, [part], int(places[n])) != width:
                raise damaged("its file is shorter than what was written to it")
        return found

    def _ask_for(self, places: NDArray[np.int64]) -> None:
        """Let the system read these vectors at the same time: they are on disk, and one after the other each would be
        waited for."""
        if sys.platform == "darwin":  # it has no such call
            return
        width = self.dims * _FLOAT_BYTES
        for place in places.tolist():
            os.posix_fadvise(self._file, place, width, os.POSIX_FADV_WILLNEED)


def encoded(vectors: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Codes of rows, and the length of the step of each row: a vector is nearly its codes times its step."""
    steps = np.abs(vectors).max(axis=1, initial=0.0) / _LEVELS
    codes = np.rint(vectors / np.where(steps > 0, steps, 1)[:, None]).astype(np.int8)
    return codes, steps.astype(np.float32)


def _nearest(estimates: NDArray[np.float32], count: int) -> tuple[NDArray[np.intp], float]:
    """The ``count`` highest and all that equal the last of them; and what all others are below."""
    if count >= len(estimates):
        return np.arange(len(estimates)), -np.inf
    last = np.partition(estimates, len(estimates) - count)[len(estimates) - count]
    near = np.flatnonzero(estimates >= last)
    return near, float(last)
