"""A large collection over Qdrant Edge, as versions before docs/adr/0070 made them: exact cosine search, points addressed
by document and generation. It is searched and written, and converted when that is quick (``conversion``).

The only importer of the engine, in the vector child only: the engine holds the interpreter's lock during every
call. It never builds HNSW: segments stay plain and appendable, even after ``optimize``.

Every point has its vector twice: exact, and in 8 bits per dimension. A scan is limited by memory reads, so a large
collection is scanned with the small vectors, and more hits than requested are then scored exactly (docs/adr/0004).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from qdrant_edge import (
    CountRequest,
    Distance,
    EdgeConfig,
    EdgeOptimizersConfig,
    EdgeShard,
    EdgeVectorParams,
    FieldCondition,
    Filter,
    HasIdCondition,
    HnswIndexConfig,
    MatchValue,
    Point,
    Prefetch,
    Query,
    QueryRequest,
    RangeFloat,
    Record,
    ScoredPoint,
    ScrollRequest,
    SearchRequest,
    UpdateOperation,
    VectorStorageDatatype,
)

from latent_core.vectors.edge.points import PointBatch
from latent_core.vectors.edge.protocol import WAL_FOLDER, check_dims

_UNLIMITED_KILOBYTES: Final = 1 << 40
_MAX_SEGMENTS: Final = 8
_EXACT: Final = "exact"
_COARSE: Final = "coarse"
_COARSE_FROM_POINTS: Final = 5000
"""From this size on a search scans the coarse vectors; below it, exact ones are as fast."""
_COARSE_FACTOR: Final = 2
_COARSE_MARGIN: Final = 200
"""The coarse scan returns this many more than ``k`` hits for exact scoring."""
_TIE_MARGIN: Final = 16
_TIE_GROWTH: Final = 4
_TIE_LIMIT: Final = 4096
_SCAN_MICROSECONDS: Final = 0.1
_HIT_MICROSECONDS: Final = 6.0
_ID_MICROSECONDS: Final = 4.5
"""Costs of scanning a point, fetching a hit and passing an id (measured; only ratios matter)."""
_LOCK_SECONDS: Final = 5.0
_LOCK_POLL_SECONDS: Final = 0.02
_LAST_ID: Final = (1 << 128) - 1
_FILE_BYTES: Final = 32 << 20
_INDEX_BYTES: Final = 8 << 20
_EXACT_BYTES: Final = 4
_COARSE_BYTES: Final = 1
"""Per dimension."""


class Shard:
    """An open large collection of a version before docs/adr/0070: it is searched and written as it is, or converted."""

    log = WAL_FOLDER

    def __init__(self, path: Path, dims: int) -> None:
        self.path = path
        self.dims = dims
        self.unflushed = 0
        """Unflushed points, which are replayed from the log after a crash."""
        self.dirty_since = 0.0
        """Time of the first unflushed point, in ``time.monotonic()``."""
        self.deleted = 0
        """Points deleted since opening; ``optimize`` reclaims their space."""
        self._shard = self._load()

    def __len__(self) -> int:
        return int(self._shard.info().points_count)

    @property
    def memory_bytes(self) -> int:
        """Of its mapped files: vectors in files of 32 MB that are read whole, and indexes."""
        sizes = [len(self) * self.dims * width for width in (_EXACT_BYTES, _COARSE_BYTES)]
        return _INDEX_BYTES + sum(-(-size // _FILE_BYTES) or 1 for size in sizes) * _FILE_BYTES

    def upsert(self, batch: PointBatch) -> int:
        """Store the points; returns how many of their distinct ids exist afterwards."""
        names = {doc: str(UUID(bytes=doc)) for doc in set(batch.doc_ids)}
        points = [
            Point(
                point.hex(),
                {_EXACT: vector, _COARSE: vector},
                {"doc_id": names[doc], "generation": generation, "chunk_no": chunk_no},
            )
            for point, doc, generation, chunk_no, vector in zip(
                batch.ids,
                batch.doc_ids,
                batch.generations.tolist(),
                batch.chunk_nos.tolist(),
                batch.vectors.tolist(),
                strict=True,
            )
        ]
        if not points:
            return 0
        self._shard.update(UpdateOperation.upsert_points(points))
        self._note_changes(len(points))
        return len(self._shard.retrieve([point.hex() for point in batch.ids], False, False))

    def search(
        self, vector: NDArray[np.float32], k: int, allowed: Sequence[bytes] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """chunk_nos and scores of the ``k`` nearest, by descending score, then chunk_no."""
        check_dims(self.dims, len(vector))
        ranked = self._ranked(vector.tolist(), k, allowed)
        return (
            np.array([chunk_no for _, chunk_no in ranked], np.int64),
            np.array([-low for low, _ in ranked], np.float32),
        )

    def vectors(self, ids: Sequence[bytes]) -> list[tuple[UUID, NDArray[np.float32]]]:
        return [_id_and_vector(r) for r in self._shard.retrieve(_hex(ids), False, [_EXACT])]

    def delete(
        self, doc_id: bytes, below: int | None, only: int | None, limit: int
    ) -> tuple[int, int]:
        """Delete at most ``limit`` points; returns the counts before and after."""
        chosen = _chosen(doc_id, below=below, only=only)
        before = self.count(chosen)
        if before:
            points, _ = self._shard.scroll(ScrollRequest(limit=limit, filter=chosen))
            self._shard.update(UpdateOperation.delete_points([point.id for point in points]))
            self._note_changes(len(points))
            self.deleted += len(points)
        return before, self.count(chosen) if before else 0

    def delete_points(self, ids: Sequence[bytes]) -> int:
        """Delete the points with these ids; returns how many there were."""
        points = self._shard.retrieve(_hex(ids), False, False)
        if points:
            self._shard.update(UpdateOperation.delete_points([point.id for point in points]))
            self._note_changes(len(points))
            self.deleted += len(points)
        return len(points)

    def count_of(self, doc_id: bytes | None, generation: int | None) -> int:
        return self.count(_chosen(doc_id, only=generation))

    def count(self, chosen: Filter | None) -> int:
        return int(self._shard.count(CountRequest(exact=True, filter=chosen)))

    def scroll(self, after: bytes | None, limit: int) -> list[tuple[UUID, dict[str, Any]]]:
        """Ids and payloads in id order."""
        start = int.from_bytes(after, "big") + 1 if after is not None else 0
        if start > _LAST_ID or limit < 1:
            return []
        request = ScrollRequest(offset=UUID(int=start), limit=limit, with_payload=True)
        records, _ = self._shard.scroll(request)
        return [(_uuid(record), record.payload or {}) for record in records]

    def batches(self, size: int) -> Iterator[PointBatch]:
        """All points, ``size`` at a time."""
        after: int | None = 0
        while after is not None and after <= _LAST_ID:
            request = ScrollRequest(
                offset=UUID(int=after), limit=size, with_payload=True, with_vector=[_EXACT]
            )
            records, _ = self._shard.scroll(request)
            after = _uuid(records[-1]).int + 1 if records else None
            if records:
                yield self._batch(records)

    def _batch(self, records: Sequence[Record]) -> PointBatch:
        payloads = [record.payload or {} for record in records]
        vectors = [vector for _, vector in map(_id_and_vector, records)]
        return PointBatch(
            ids=[_uuid(record).bytes for record in records],
            doc_ids=[UUID(payload["doc_id"]).bytes for payload in payloads],
            generations=np.array([payload["generation"] for payload in payloads], np.int64),
            chunk_nos=np.array([payload["chunk_no"] for payload in payloads], np.int64),
            vectors=np.array(vectors, np.float32).reshape(len(records), self.dims),
        )

    def flush(self) -> None:
        """Write the segments to disk, so that the log starts empty."""
        self._shard.flush()
        self.unflushed = 0

    def optimize(self) -> bool:
        """Reclaim the space of deleted points if there are many; returns whether it did. Slow."""
        return bool(self._shard.optimize())

    def close(self) -> None:
        """Flush explicitly: the engine's own flush only logs errors."""
        if self.unflushed:
            self.flush()
        self._shard.close()

    def _note_changes(self, points: int) -> None:
        if not self.unflushed:
            self.dirty_since = time.monotonic()
        self.unflushed += points

    def _load(self) -> EdgeShard:
        config = _config(self.dims)
        return _unlocked(lambda: EdgeShard.load(str(self.path), config))

    def _ranked(
        self, vector: list[float], k: int, allowed: Sequence[bytes] | None
    ) -> list[tuple[float, int]]:
        """Negated score and chunk_no, ascending."""
        total = self._shard.info().points_count
        hit_count = min(k, total)
        if not hit_count or (allowed is not None and not allowed):
            return []
        if allowed is not None and (limit := _limit_to_mask(hit_count, total, len(allowed))):
            ranked, certain = self._attempt(vector, hit_count, limit, None, frozenset(allowed))
            if certain:
                return ranked
        return self._widened(vector, hit_count, _only(allowed))

    def _widened(
        self, vector: list[float], hit_count: int, chosen: Filter | None
    ) -> list[tuple[float, int]]:
        """The engine cuts equal scores arbitrarily: fetch more until none at the cut is missing."""
        margin = _TIE_MARGIN
        while True:
            ranked, certain = self._attempt(vector, hit_count, hit_count + margin, chosen, None)
            if certain or margin > _TIE_LIMIT:
                return ranked
            margin *= _TIE_GROWTH

    def _attempt(
        self,
        vector: list[float],
        hit_count: int,
        limit: int,
        chosen: Filter | None,
        among: frozenset[bytes] | None,
    ) -> tuple[list[tuple[float, int]], bool]:
        """The best of one scan, and whether no hit beyond ``limit`` can belong to them."""
        hits = self._scan(vector, limit, chosen)
        kept = [hit for hit in hits if among is None or _uuid(hit).bytes in among]
        certain = len(hits) < limit or (
            len(kept) >= hit_count and kept[hit_count - 1].score > hits[-1].score
        )
        return sorted((-hit.score, _chunk_no(hit)) for hit in kept)[:hit_count], certain

    def _scan(self, vector: list[float], limit: int, chosen: Filter | None) -> list[ScoredPoint]:
        total = self._shard.info().points_count
        limit = min(limit, total)  # the engine allocates memory for all of them
        exact = Query.Nearest(vector, using=_EXACT)
        if chosen is not None or total < _COARSE_FROM_POINTS:
            return self._shard.search(
                SearchRequest(query=exact, limit=limit, filter=chosen, with_payload=["chunk_no"])
            )
        coarse = Prefetch(
            query=Query.Nearest(vector, using=_COARSE),
            limit=min(total, limit * _COARSE_FACTOR + _COARSE_MARGIN),
        )
        return self._shard.query(
            QueryRequest(query=exact, prefetches=[coarse], limit=limit, with_payload=["chunk_no"])
        )


def _limit_to_mask(hit_count: int, total: int, allowed: int) -> int:
    """How many points to fetch so that ``hit_count`` of them are likely allowed; 0: pass the ids instead.

    Passing ids to the engine costs more than its scan: for many ids it is cheaper to scan everything and drop the
    points that are not allowed.
    """
    limit = hit_count * total * 3 // (allowed * 2) + _TIE_MARGIN
    masked = total * _SCAN_MICROSECONDS + limit * _HIT_MICROSECONDS
    return limit if masked < allowed * _ID_MICROSECONDS else 0


def _config(dims: int) -> EdgeConfig:
    return EdgeConfig(
        vectors={
            _EXACT: EdgeVectorParams(size=dims, distance=Distance.Cosine),
            _COARSE: EdgeVectorParams(
                size=dims, distance=Distance.Cosine, datatype=VectorStorageDatatype.Turbo8
            ),
        },
        hnsw_config=HnswIndexConfig(m=0, ef_construct=4, full_scan_threshold=_UNLIMITED_KILOBYTES),
        optimizers=EdgeOptimizersConfig(
            deleted_threshold=0.2,
            vacuum_min_vector_number=1000,
            default_segment_number=_MAX_SEGMENTS,
            max_segment_size=_UNLIMITED_KILOBYTES,
            indexing_threshold=0,  # never index
            prevent_unoptimized=False,
        ),
        max_search_threads=1,
    )


def _unlocked(load: Callable[[], EdgeShard]) -> EdgeShard:
    """Load after an ending process has released the shard."""
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            return load()
        except Exception as exc:
            if "WouldBlock" not in str(exc) or time.monotonic() > deadline:
                raise
        time.sleep(_LOCK_POLL_SECONDS)


def _chosen(
    doc_id: bytes | None, *, below: int | None = None, only: int | None = None
) -> Filter | None:
    conditions = []
    if doc_id is not None:
        conditions.append(FieldCondition("doc_id", match=MatchValue(str(UUID(bytes=doc_id)))))
    if below is not None:
        conditions.append(FieldCondition("generation", range=RangeFloat(lt=below)))
    if only is not None:
        conditions.append(FieldCondition("generation", range=RangeFloat(gte=only, lte=only)))
    return Filter(must=list(conditions)) if conditions else None


def _only(allowed: Sequence[bytes] | None) -> Filter | None:
    return None if allowed is None else Filter(must=[HasIdCondition(set(_hex(allowed)))])


def _hex(ids: Sequence[bytes]) -> list[UUID | int | str]:
    return [point.hex() for point in ids]


def _chunk_no(hit: ScoredPoint) -> int:
    return int((hit.payload or {})["chunk_no"])


def _uuid(record: Record | ScoredPoint) -> UUID:
    return record.id if isinstance(record.id, UUID) else UUID(str(record.id))


def _id_and_vector(record: Record) -> tuple[UUID, NDArray[np.float32]]:
    vectors: Any = record.vector
    return _uuid(record), np.array(vectors[_EXACT], np.float32)
