"""A small collection: its vectors are in memory, and a search scans all of them. It costs what it holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from latent_core.vectors.edge.logged import LoggedCollection
from latent_core.vectors.edge.nearest import best_rows, normalised, similarities
from latent_core.vectors.edge.point_log import LogRecord, PointLog
from latent_core.vectors.edge.point_table import POINT_BYTES, PointTable
from latent_core.vectors.edge.points import PointBatch
from latent_core.vectors.edge.protocol import POINT_LOG, check_dims

_OPEN_BYTES: Final = 4096


class VectorTable(PointTable):
    """Points with their vectors."""

    _columns: ClassVar = (*PointTable._columns, "_vectors")

    def __init__(self, dims: int, capacity: int) -> None:
        super().__init__(capacity)
        self._vectors = np.empty((capacity, dims), np.float32)

    @property
    def vectors(self) -> NDArray[np.float32]:
        return self._vectors[: len(self)]

    @property
    def capacity_bytes(self) -> int:
        return self._vectors.nbytes + len(self._vectors) * POINT_BYTES

    def put(self, batch: PointBatch) -> None:
        """Add or replace points; of equal ids the last one counts."""
        rows, taken = self._put(batch)
        self._vectors[rows] = batch.vectors[taken]


class FlatCollection(LoggedCollection):
    """An open small collection."""

    def __init__(self, path: Path, log: PointLog, records: Sequence[LogRecord]) -> None:
        self._table = VectorTable(log.dims, log.upserted)
        super().__init__(path, log, self._table)
        self._read(records)

    @property
    @override
    def memory_bytes(self) -> int:
        return _OPEN_BYTES + self._table.capacity_bytes

    @override
    def search(
        self, vector: NDArray[np.float32], k: int, allowed: Sequence[bytes] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        check_dims(self.dims, len(vector))
        vectors, chunk_nos = self._table.vectors, self._table.chunk_nos
        if allowed is not None:
            rows = self._table.rows_of(allowed)
            vectors, chunk_nos = vectors[rows], chunk_nos[rows]
        scores = similarities(vectors, normalised(vector[None])[0])
        best = best_rows(scores, chunk_nos, k)
        return chunk_nos[best], scores[best]

    @override
    def close(self) -> None:
        """Nothing is open."""

    @override
    def _put(self, batch: PointBatch, at: int) -> None:
        self._table.put(batch)

    @override
    def _vectors_of(self, rows: NDArray[np.intp]) -> NDArray[np.float32]:
        return self._table.vectors[rows]


def create_flat(path: Path, dims: int) -> None:
    """Write the file of an empty collection; durable on return."""
    PointLog(path / POINT_LOG, dims).replace(())
