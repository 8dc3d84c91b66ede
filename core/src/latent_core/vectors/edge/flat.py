"""A small collection: its points are in memory, and a search scans all of them. It costs what it holds.

An engine shard costs 73 MB of mapped files and several syncs to open, even with one point (docs/adr/0024). Both give
the same answers: cosine similarity of unit vectors, equal scores in the order of their chunk_nos.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from latent_core.vectors.edge.point_log import LogRecord, PointLog, RecordKind
from latent_core.vectors.edge.points import PointBatch
from latent_core.vectors.edge.protocol import ID_BYTES, POINT_LOG, check_dims, cut

_UNIT_TOLERANCE: Final = 1e-6
"""As the engine has it: a squared length this near to 1 counts as 1."""
_FIRST_CAPACITY: Final = 8
_POINT_BYTES: Final = 300
"""Of a point in memory, without its vector: ids as objects, and their places."""
_OPEN_BYTES: Final = 4096
_MAX_RECORDS: Final = 256
"""More make opening slow."""
_MIN_WASTE: Final = 65_536
"""Fewer superfluous bytes are not worth a rewrite."""


class PointTable:
    """Points in columns; the row of a removed point is taken by the last one."""

    def __init__(self, dims: int, capacity: int) -> None:
        self.ids: list[bytes] = []
        self._rows: dict[bytes, int] = {}
        self._docs = np.empty((capacity, 2), np.uint64)
        self._generations = np.empty(capacity, np.int64)
        self._chunk_nos = np.empty(capacity, np.int64)
        self._vectors = np.empty((capacity, dims), np.float32)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def chunk_nos(self) -> NDArray[np.int64]:
        return self._chunk_nos[: len(self)]

    @property
    def generations(self) -> NDArray[np.int64]:
        return self._generations[: len(self)]

    @property
    def vectors(self) -> NDArray[np.float32]:
        return self._vectors[: len(self)]

    @property
    def capacity_bytes(self) -> int:
        return self._vectors.nbytes + len(self._vectors) * _POINT_BYTES

    def doc_id(self, row: int) -> bytes:
        doc_id: bytes = self._docs[row].tobytes()
        return doc_id

    def rows_of(self, ids: Sequence[bytes]) -> NDArray[np.intp]:
        """The distinct rows of those ids that exist, ascending."""
        rows = {row for one in ids if (row := self._rows.get(one)) is not None}
        return np.fromiter(sorted(rows), np.intp, len(rows))

    def chosen(
        self, doc_id: bytes | None, below: int | None = None, only: int | None = None
    ) -> NDArray[np.intp]:
        """Rows of the document, of generations < ``below`` or of generation ``only``."""
        mask = np.ones(len(self), np.bool_)
        if doc_id is not None:
            mask &= (self._docs[: len(self)] == np.frombuffer(doc_id, np.uint64)).all(axis=1)
        if below is not None:
            mask &= self.generations < below
        if only is not None:
            mask &= self.generations == only
        return np.flatnonzero(mask)

    def put(self, batch: PointBatch) -> None:
        """Add or replace points; of equal ids the last one counts."""
        self._reserve(len(self) + len(batch))
        last = {point: at for at, point in enumerate(batch.ids)}
        rows = np.empty(len(last), np.intp)
        for at, point in enumerate(last):
            row = self._rows.get(point)
            if row is None:
                row = self._rows[point] = len(self.ids)
                self.ids.append(point)
            rows[at] = row
        taken = np.fromiter(last.values(), np.intp, len(last))
        docs = np.frombuffer(b"".join(batch.doc_ids), np.uint64).reshape(-1, 2)
        self._docs[rows] = docs[taken]
        self._generations[rows] = batch.generations[taken]
        self._chunk_nos[rows] = batch.chunk_nos[taken]
        self._vectors[rows] = batch.vectors[taken]

    def remove(self, ids: Sequence[bytes]) -> None:
        columns = (self._docs, self._generations, self._chunk_nos, self._vectors)
        for point in ids:
            if (row := self._rows.pop(point, None)) is None:
                continue
            moved = self.ids.pop()
            if moved != point:
                self.ids[row] = moved
                self._rows[moved] = row
                for column in columns:
                    column[row] = column[len(self)]

    def _reserve(self, points: int) -> None:
        if points <= len(self._vectors):
            return
        capacity = max(points, 2 * len(self._vectors), _FIRST_CAPACITY)
        self._docs = _grown(self._docs, capacity)
        self._generations = _grown(self._generations, capacity)
        self._chunk_nos = _grown(self._chunk_nos, capacity)
        self._vectors = _grown(self._vectors, capacity)


class FlatCollection:
    """An open small collection."""

    log = POINT_LOG

    def __init__(self, path: Path, dims: int) -> None:
        """Raises ``DamagedLogError`` or ``OSError`` if its file cannot be read."""
        self.path = path
        self.dims = dims
        self._log = PointLog(path / POINT_LOG, dims)
        self._table = _table_of(self._log.read(), dims)

    def __len__(self) -> int:
        return len(self._table)

    @property
    def memory_bytes(self) -> int:
        return _OPEN_BYTES + self._table.capacity_bytes

    @property
    def is_wasteful(self) -> bool:
        """Whether the file has more records or bytes than its points need."""
        needed = len(self) * (4 * self.dims + 2 * ID_BYTES + 16)
        return self._log.records > _MAX_RECORDS or self._log.size - needed > max(needed, _MIN_WASTE)

    def upsert(self, batch: PointBatch) -> int:
        """Store the points; returns how many of their distinct ids exist afterwards."""
        if not len(batch):
            return 0
        stored = replace(batch, vectors=_normalised(batch.vectors))
        self._log.append(RecordKind.UPSERT, len(stored), stored.encode())
        self._table.put(stored)
        return len(self._table.rows_of(stored.ids))

    def search(
        self, vector: NDArray[np.float32], k: int, allowed: Sequence[bytes] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """chunk_nos and scores of the ``k`` nearest, by descending score, then chunk_no."""
        check_dims(self.dims, len(vector))
        vectors, chunk_nos = self._table.vectors, self._table.chunk_nos
        if allowed is not None:
            rows = self._table.rows_of(allowed)
            vectors, chunk_nos = vectors[rows], chunk_nos[rows]
        # Not ``@``: it rounds equal rows differently, and equal vectors must have equal scores.
        scores = np.einsum("ij,j->i", vectors, _normalised(vector[None])[0])
        best = _best(scores, chunk_nos, k)
        return chunk_nos[best], scores[best]

    def vectors(self, ids: Sequence[bytes]) -> list[tuple[UUID, NDArray[np.float32]]]:
        rows = self._table.rows_of(ids).tolist()
        return [(UUID(bytes=self._table.ids[row]), self._table.vectors[row]) for row in rows]

    def delete(
        self, doc_id: bytes, below: int | None, only: int | None, limit: int
    ) -> tuple[int, int]:
        """Delete at most ``limit`` points; returns the counts before and after."""
        chosen = self._table.chosen(doc_id, below, only)
        doomed = [self._table.ids[row] for row in chosen[:limit].tolist()]
        if doomed:
            self._log.append(RecordKind.DELETE, len(doomed), [b"".join(doomed)])
            self._table.remove(doomed)
        return len(chosen), len(self._table.chosen(doc_id, below, only))

    def delete_points(self, ids: Sequence[bytes]) -> int:
        """Delete the points with these ids; returns how many there were."""
        doomed = [self._table.ids[row] for row in self._table.rows_of(ids).tolist()]
        if doomed:
            self._log.append(RecordKind.DELETE, len(doomed), [b"".join(doomed)])
            self._table.remove(doomed)
        return len(doomed)

    def count_of(self, doc_id: bytes | None, generation: int | None) -> int:
        return len(self._table.chosen(doc_id, only=generation))

    def scroll(self, after: bytes | None, limit: int) -> list[tuple[UUID, dict[str, Any]]]:
        """Ids and payloads in id order."""
        later = (one for one in self._table.ids if after is None or one > after)
        return [self._point(point) for point in heapq.nsmallest(limit, later)]

    def rewrite(self) -> None:
        """Replace the file by one without what was replaced or deleted."""
        points = next(self.batches(max(1, len(self))), None)
        self._log.replace(len(self), [] if points is None else points.encode())

    def batches(self, size: int) -> Iterator[PointBatch]:
        """All points, ``size`` at a time."""
        table = self._table
        docs = [table.doc_id(row) for row in range(len(table))]
        for start in range(0, len(table), size):
            part = slice(start, start + size)
            yield PointBatch(
                ids=table.ids[part],
                doc_ids=docs[part],
                generations=table.generations[part],
                chunk_nos=table.chunk_nos[part],
                vectors=table.vectors[part],
            )

    def close(self) -> None:
        """Nothing is open: the file has every write."""

    def _point(self, point: bytes) -> tuple[UUID, dict[str, Any]]:
        (row,) = self._table.rows_of([point]).tolist()
        payload = {
            "doc_id": str(UUID(bytes=self._table.doc_id(row))),
            "generation": int(self._table.generations[row]),
            "chunk_no": int(self._table.chunk_nos[row]),
        }
        return UUID(bytes=point), payload


def create_flat(path: Path, points: PointBatch | None, dims: int) -> None:
    """Write the file of a small collection with these points; durable on return."""
    log = PointLog(path / POINT_LOG, dims)
    if points is None:
        log.replace(0, [])
    else:
        log.replace(len(points), points.encode())


def _table_of(records: Sequence[LogRecord], dims: int) -> PointTable:
    points = sum(record.n for record in records if record.kind is RecordKind.UPSERT)
    table = PointTable(dims, points)
    for record in records:
        if record.kind is RecordKind.UPSERT:
            table.put(PointBatch.decode(record.body, record.n, dims))
        else:
            table.remove(cut(bytes(record.body)))
    return table


def _grown(column: NDArray[Any], capacity: int) -> NDArray[Any]:
    grown = np.empty((capacity, *column.shape[1:]), column.dtype)
    grown[: len(column)] = column
    return grown


def _normalised(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows of unit length, as the engine stores them; rows of zeros stay."""
    squares = np.einsum("ij,ij->i", vectors, vectors)
    off = (np.abs(squares - 1) > _UNIT_TOLERANCE) & (squares > np.finfo(np.float32).eps)
    if not off.any():
        return vectors
    unit = vectors.copy()
    unit[off] /= np.sqrt(squares[off])[:, None]
    return unit


def _best(scores: NDArray[np.float32], chunk_nos: NDArray[np.int64], k: int) -> NDArray[np.intp]:
    """Rows of the ``k`` best, by descending score, then chunk_no."""
    rows = np.arange(len(scores))
    if 0 < k < len(scores):
        worst = np.partition(scores, len(scores) - k)[len(scores) - k]
        rows = np.flatnonzero(scores >= worst)
    order = np.lexsort((chunk_nos[rows], -scores[rows]))
    return rows[order[:k]]
