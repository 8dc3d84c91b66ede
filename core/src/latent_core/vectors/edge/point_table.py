"""The points of an open collection in memory: columns, and the row of each id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from latent_core.vectors.edge.points import PointBatch
from latent_core.vectors.edge.protocol import ID_BYTES, cut

POINT_BYTES: Final = 300
"""Of a point in memory, without its vector: ids as objects, and their places."""
_FIRST_CAPACITY: Final = 8


class PointTable:
    """Points in columns; the row of a removed point is taken by the last one. Subclasses add columns of vectors."""

    _columns: ClassVar[tuple[str, ...]] = ("_docs", "_generations", "_chunk_nos")

    def __init__(self, capacity: int) -> None:
        self.ids: list[bytes] = []
        self._rows: dict[bytes, int] = {}
        self._docs = np.empty((capacity, 2), np.uint64)
        self._generations = np.empty(capacity, np.int64)
        self._chunk_nos = np.empty(capacity, np.int64)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def chunk_nos(self) -> NDArray[np.int64]:
        return self._chunk_nos[: len(self)]

    @property
    def generations(self) -> NDArray[np.int64]:
        return self._generations[: len(self)]

    def doc_id(self, row: int) -> bytes:
        doc_id: bytes = self._docs[row].tobytes()
        return doc_id

    def columns(self) -> list[NDArray[Any]]:
        """All columns as they are in ``restored``, ids first."""
        ids = np.frombuffer(b"".join(self.ids), np.uint8).reshape(-1, ID_BYTES)
        return [ids, *(getattr(self, name)[: len(self)] for name in self._columns)]

    def _restore(self, ids: bytes) -> None:
        """Name the points, whose other columns are filled already."""
        self.ids = cut(ids)
        self._rows = {point: row for row, point in enumerate(self.ids)}

    def rows_of(self, ids: Sequence[bytes]) -> NDArray[np.intp]:
        """The distinct rows of those ids that exist, ascending."""
        rows = [row for one in ids if (row := self._rows.get(one)) is not None]
        return np.unique(np.array(rows, np.intp))

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

    def _put(self, batch: PointBatch) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Add or replace points; of equal ids the last one counts. Returns the rows written, and which points of the
        batch stand in them."""
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
        return rows, taken

    def remove(self, ids: Sequence[bytes]) -> None:
        columns = [getattr(self, name) for name in self._columns]
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
        if points <= len(self._docs):
            return
        capacity = max(points, 2 * len(self._docs), _FIRST_CAPACITY)
        for name in self._columns:
            setattr(self, name, _grown(getattr(self, name), capacity))


def _grown(column: NDArray[Any], capacity: int) -> NDArray[Any]:
    grown = np.empty((capacity, *column.shape[1:]), column.dtype)
    grown[: len(column)] = column
    return grown
