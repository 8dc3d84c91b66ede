"""A collection whose points are in one file, a log of writes (``point_log``), and in a table in memory.

Small ones hold their vectors in memory (``flat``), large ones codes of them (``large``). Both give the same answers:
cosine similarity of unit vectors, equal scores in the order of their chunk_nos.
"""

from __future__ import annotations

import heapq
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from latent_core.vectors.edge.nearest import normalised
from latent_core.vectors.edge.point_log import LogPosition, LogRecord, PointLog, RecordKind
from latent_core.vectors.edge.point_table import PointTable
from latent_core.vectors.edge.points import POINT_HEAD_BYTES, PointBatch
from latent_core.vectors.edge.protocol import POINT_LOG, cut

BATCH_POINTS: Final = 4096
"""Points of a record of a file that is rewritten."""
_MAX_RECORDS: Final = 256
_POINTS_PER_RECORD: Final = 32
"""More records than one for so many points, and 256, make opening slow."""
_MIN_WASTE: Final = 65_536
"""Fewer superfluous bytes are not worth a rewrite."""


class LoggedCollection(ABC):
    """An open collection. Its log is read, and nothing is written, when it is opened."""

    log = POINT_LOG

    def __init__(self, path: Path, log: PointLog, table: PointTable) -> None:
        self.path = path
        self.dims = log.dims
        self._log = log
        self._points = table
        self.written_at = time.monotonic()
        """When it was written to for the last time, or opened."""

    def __len__(self) -> int:
        return len(self._points)

    @property
    @abstractmethod
    def memory_bytes(self) -> int: ...

    @abstractmethod
    def search(
        self, vector: NDArray[np.float32], k: int, allowed: Sequence[bytes] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """chunk_nos and scores of the ``k`` nearest, by descending score, then chunk_no."""

    @abstractmethod
    def _put(self, batch: PointBatch, at: int) -> None:
        """Add points to the table, whose record begins at ``at`` in the log."""

    @abstractmethod
    def _vectors_of(self, rows: NDArray[np.intp]) -> NDArray[np.float32]:
        """The exact vectors in these rows of the table."""

    @property
    def log_size(self) -> int:
        """In bytes."""
        return self._log.size

    def log_end(self) -> LogPosition | None:
        """The end of the log's last record; None if there is none."""
        return self._log.end()

    @property
    def points_in_log(self) -> int:
        """With those that were replaced or deleted."""
        return self._log.upserted

    @property
    def is_wasteful(self) -> bool:
        """Whether the file has more records or bytes than its points need."""
        needed = len(self) * (4 * self.dims + POINT_HEAD_BYTES)
        return self._log.records > max(_MAX_RECORDS, len(self) // _POINTS_PER_RECORD) or (
            self._log.size - needed > max(needed, _MIN_WASTE)
        )

    def upsert(self, batch: PointBatch) -> int:
        """Store the points; returns how many of their distinct ids exist afterwards."""
        if not len(batch):
            return 0
        stored = replace(batch, vectors=normalised(batch.vectors))
        at = self._log.append(RecordKind.UPSERT, len(stored), stored.encode())
        self.written_at = time.monotonic()
        self._put(stored, at)
        return len(self._points.rows_of(stored.ids))

    def vectors(self, ids: Sequence[bytes]) -> list[tuple[UUID, NDArray[np.float32]]]:
        rows = self._points.rows_of(ids)
        names = [UUID(bytes=self._points.ids[row]) for row in rows.tolist()]
        return list(zip(names, self._vectors_of(rows), strict=True))

    def delete(
        self, doc_id: bytes, below: int | None, only: int | None, limit: int
    ) -> tuple[int, int]:
        """Delete at most ``limit`` points; returns the counts before and after."""
        chosen = self._points.chosen(doc_id, below, only)
        self._remove([self._points.ids[row] for row in chosen[:limit].tolist()])
        return len(chosen), len(self._points.chosen(doc_id, below, only))

    def delete_points(self, ids: Sequence[bytes]) -> int:
        """Delete the points with these ids; returns how many there were."""
        doomed = [self._points.ids[row] for row in self._points.rows_of(ids).tolist()]
        self._remove(doomed)
        return len(doomed)

    def count_of(self, doc_id: bytes | None, generation: int | None) -> int:
        return len(self._points.chosen(doc_id, only=generation))

    def scroll(self, after: bytes | None, limit: int) -> list[tuple[UUID, dict[str, Any]]]:
        """Ids and payloads in id order."""
        later = (one for one in self._points.ids if after is None or one > after)
        return [self._point(point) for point in heapq.nsmallest(limit, later)]

    def rewrite(self) -> None:
        """Replace the file by one without what was replaced or deleted. Close the collection afterwards."""
        self._log.replace(self.batches(BATCH_POINTS))

    def batches(self, size: int) -> Iterator[PointBatch]:
        """All points, ``size`` at a time."""
        table = self._points
        for start in range(0, len(table), size):
            rows = np.arange(start, min(start + size, len(table)))
            yield PointBatch(
                ids=table.ids[start : start + size],
                doc_ids=[table.doc_id(row) for row in rows.tolist()],
                generations=table.generations[rows],
                chunk_nos=table.chunk_nos[rows],
                vectors=self._vectors_of(rows),
            )

    @abstractmethod
    def close(self) -> None:
        """The file has every write already."""

    def _read(self, records: Sequence[LogRecord]) -> None:
        for record in records:
            if record.kind is RecordKind.UPSERT:
                self._put(PointBatch.decode(record.body, record.n, self.dims), record.at)
            else:
                self._points.remove(cut(bytes(record.body)))

    def _remove(self, doomed: Sequence[bytes]) -> None:
        if doomed:
            self._log.append(RecordKind.DELETE, len(doomed), [b"".join(doomed)])
            self.written_at = time.monotonic()
            self._points.remove(doomed)

    def _point(self, point: bytes) -> tuple[UUID, dict[str, Any]]:
        (row,) = self._points.rows_of([point]).tolist()
        payload = {
            "doc_id": str(UUID(bytes=self._points.doc_id(row))),
            "generation": int(self._points.generations[row]),
            "chunk_no": int(self._points.chunk_nos[row]),
        }
        return UUID(bytes=point), payload
