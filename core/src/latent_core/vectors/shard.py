"""One collection over Qdrant Edge: exact cosine search, points addressed by document and generation.

The one importer of the engine, in the vector child only: the engine holds the interpreter's lock
in every call. Nothing here builds HNSW: segments stay plain and appendable, ``optimize`` included.
"""

from __future__ import annotations

import os
import shutil
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import UUID

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
    IntegerIndexParams,
    MatchValue,
    Point,
    Query,
    RangeFloat,
    Record,
    ScoredPoint,
    ScrollRequest,
    SearchRequest,
    UpdateOperation,
    UuidIndexParams,
)

from latent_core.vectors.protocol import Fault

_UNLIMITED_KILOBYTES: Final = 1 << 40
_MAX_SEGMENTS: Final = 8
_WIDEN_AT_POINTS: Final = 2048
"""From here on a collection is kept in several segments, which one search scans in parallel."""
_TIE_MARGIN: Final = 16
_TIE_GROWTH: Final = 4
_TIE_LIMIT: Final = 4096
_SCAN_MICROSECONDS: Final = 0.1
_HIT_MICROSECONDS: Final = 6.0
_ID_MICROSECONDS: Final = 4.5
"""Costs of a point scanned, a hit fetched, and an id handed over (measured; only ratios matter)."""
_LOCK_SECONDS: Final = 5.0
_LOCK_POLL_SECONDS: Final = 0.02
_LAST_ID: Final = (1 << 128) - 1


class RefusedError(Exception):
    """A request cannot be met, and why."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault = fault
        self.message = message


@dataclass(frozen=True, slots=True)
class Batch:
    """Points to store; the sequences run in parallel, ids are 16 bytes each."""

    ids: Sequence[bytes]
    doc_ids: Sequence[bytes]
    generations: Sequence[int]
    ords: Sequence[int]
    vectors: Sequence[list[float]]


def create_shard(path: Path, dims: int, lanes: int) -> None:
    """Make an empty shard in the folder ``path``, its payload indexes included; durable on return."""
    shard = EdgeShard.create(str(path), _config(dims, lanes))
    for field_name, index in (
        ("doc_id", UuidIndexParams()),
        ("generation", IntegerIndexParams(lookup=False, range=True)),
    ):
        shard.update(UpdateOperation.create_field_index(field_name, index))
    shard.close()


def sync_folder(folder: Path) -> None:
    """Bring names made, changed or removed in ``folder`` to the disk."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class Shard:
    """An open collection. ``lanes`` is how many segments a search may scan at the same time."""

    def __init__(self, path: Path, dims: int, lanes: int) -> None:
        self.path = path
        self.dims = dims
        self.unflushed = 0
        """Points written or deleted that a crash would have to replay from the log."""
        self.dirty_since = 0.0
        """When the first of them was, of ``time.monotonic()``."""
        self.deleted = 0
        """Points deleted since it was opened; their room is reclaimed by ``optimize``."""
        self._lanes = lanes
        self._shard = self._load()
        self._widen_when_large()

    def upsert(self, batch: Batch) -> int:
        """Store the points; how many of their (distinct) ids are there afterwards."""
        names = {doc: str(UUID(bytes=doc)) for doc in set(batch.doc_ids)}
        points = [
            Point(
                point.hex(), vector, {"doc_id": names[doc], "generation": generation, "ord": ord_}
            )
            for point, doc, generation, ord_, vector in zip(
                batch.ids, batch.doc_ids, batch.generations, batch.ords, batch.vectors, strict=True
            )
        ]
        if not points:
            return 0
        self._shard.update(UpdateOperation.upsert_points(points))
        self._note_changes(len(points))
        self._widen_when_large()
        return len(self._shard.retrieve([point.hex() for point in batch.ids], False, False))

    def search(
        self, vector: list[float], k: int, allowed: Sequence[bytes] | None
    ) -> tuple[array[int], array[float]]:
        """Ords and scores of the ``k`` nearest, by score downwards, then ord."""
        if len(vector) != self.dims:
            raise RefusedError(
                Fault.INVALID, f"has {self.dims} dimensions, the query {len(vector)}"
            )
        ranked = self._ranked(vector, k, allowed)
        return array("q", [ord_ for _, ord_ in ranked]), array("f", [-low for low, _ in ranked])

    def vectors(self, ids: Sequence[bytes]) -> list[tuple[UUID, list[float]]]:
        return [_id_and_vector(r) for r in self._shard.retrieve(_hex(ids), False, True)]

    def delete(
        self, doc_id: bytes, below: int | None, only: int | None, limit: int
    ) -> tuple[int, int]:
        """Delete at most ``limit`` points; how many there were before, and how many are left."""
        chosen = _chosen(doc_id, below=below, only=only)
        before = self.count(chosen)
        if before:
            points, _ = self._shard.scroll(ScrollRequest(limit=limit, filter=chosen))
            self._shard.update(UpdateOperation.delete_points([point.id for point in points]))
            self._note_changes(len(points))
            self.deleted += len(points)
        return before, self.count(chosen) if before else 0

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

    def flush(self) -> None:
        """Bring the segments to the disk, so that the log starts anew."""
        self._shard.flush()
        self.unflushed = 0

    def optimize(self) -> bool:
        """Reclaim the room of deleted points, when they are many; whether it was done. Slow."""
        return bool(self._shard.optimize())

    def close(self) -> None:
        """Flush, as the engine does by itself, but then only logs what fails."""
        if self.unflushed:
            self.flush()
        self._shard.close()

    def _note_changes(self, points: int) -> None:
        if not self.unflushed:
            self.dirty_since = time.monotonic()
        self.unflushed += points

    def _load(self) -> EdgeShard:
        config = _config(self.dims, self._lanes)
        return _unlocked(lambda: EdgeShard.load(str(self.path), config))

    def _widen_when_large(self) -> None:
        """Give the shard its lanes. New points go to the smallest segment, so they even out."""
        info = self._shard.info()
        if info.points_count < _WIDEN_AT_POINTS or info.segments_count >= self._lanes:
            return
        self.close()
        for _ in range(self._lanes - info.segments_count):
            _add_segment(self.path, self.dims, self._lanes)
        self._shard = self._load()

    def _ranked(
        self, vector: list[float], k: int, allowed: Sequence[bytes] | None
    ) -> list[tuple[float, int]]:
        """Negated score and ord, ascending."""
        total = self._shard.info().points_count
        wanted = min(k, total)
        if not wanted or (allowed is not None and not allowed):
            return []
        if allowed is not None and (limit := _limit_to_mask(wanted, total, len(allowed))):
            ranked, certain = self._attempt(vector, wanted, limit, None, frozenset(allowed))
            if certain:
                return ranked
        return self._widened(vector, wanted, _only(allowed))

    def _widened(
        self, vector: list[float], wanted: int, chosen: Filter | None
    ) -> list[tuple[float, int]]:
        """The engine cuts equal scores as it likes: fetch more, until none at the cut is missing."""
        margin = _TIE_MARGIN
        while True:
            ranked, certain = self._attempt(vector, wanted, wanted + margin, chosen, None)
            if certain or margin > _TIE_LIMIT:
                return ranked
            margin *= _TIE_GROWTH

    def _attempt(
        self,
        vector: list[float],
        wanted: int,
        limit: int,
        chosen: Filter | None,
        among: frozenset[bytes] | None,
    ) -> tuple[list[tuple[float, int]], bool]:
        """The best of one scan, and whether nothing beyond ``limit`` could belong to them."""
        hits = self._scan(vector, limit, chosen)
        kept = [hit for hit in hits if among is None or _uuid(hit).bytes in among]
        certain = len(hits) < limit or (
            len(kept) >= wanted and kept[wanted - 1].score > hits[-1].score
        )
        return sorted((-hit.score, _ord(hit)) for hit in kept)[:wanted], certain

    def _scan(self, vector: list[float], limit: int, chosen: Filter | None) -> list[ScoredPoint]:
        query = Query.Nearest(vector)
        limit = min(limit, self._shard.info().points_count)  # the engine makes room for all of them
        return self._shard.search(
            SearchRequest(query=query, limit=limit, filter=chosen, with_payload=["ord"])
        )


def _limit_to_mask(wanted: int, total: int, allowed: int) -> int:
    """How many of all points to fetch, so that ``wanted`` of them are likely allowed; 0: do not.

    Handing ids to the engine costs more than its scan does: for many ids it is cheaper to scan
    everything and drop what is not allowed.
    """
    limit = wanted * total * 3 // (allowed * 2) + _TIE_MARGIN
    masked = total * _SCAN_MICROSECONDS + limit * _HIT_MICROSECONDS
    return limit if masked < allowed * _ID_MICROSECONDS else 0


def _config(dims: int, lanes: int) -> EdgeConfig:
    return EdgeConfig(
        vectors=EdgeVectorParams(size=dims, distance=Distance.Cosine),
        hnsw_config=HnswIndexConfig(m=0, ef_construct=4, full_scan_threshold=_UNLIMITED_KILOBYTES),
        optimizers=EdgeOptimizersConfig(
            deleted_threshold=0.2,
            vacuum_min_vector_number=1000,
            default_segment_number=_MAX_SEGMENTS,  # never merge what is meant to be parallel
            max_segment_size=_UNLIMITED_KILOBYTES,
            indexing_threshold=0,  # never index
            prevent_unoptimized=False,
        ),
        max_search_threads=lanes,
    )


def _add_segment(path: Path, dims: int, lanes: int) -> None:
    """An empty segment more: made as a shard aside, then renamed into the closed shard at ``path``."""
    spare = path / "spare"
    shutil.rmtree(spare, ignore_errors=True)
    spare.mkdir()
    create_shard(spare, dims, lanes)
    for segment in (spare / "segments").iterdir():
        if segment.is_dir():
            segment.rename(path / "segments" / segment.name)
    sync_folder(path / "segments")
    shutil.rmtree(spare)


def _unlocked(load: Callable[[], EdgeShard]) -> EdgeShard:
    """Load, once a process that is just dying has let go of the shard."""
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


def _ord(hit: ScoredPoint) -> int:
    return int((hit.payload or {})["ord"])


def _uuid(record: Record | ScoredPoint) -> UUID:
    return record.id if isinstance(record.id, UUID) else UUID(str(record.id))


def _id_and_vector(record: Record) -> tuple[UUID, list[float]]:
    vector: Any = record.vector
    return _uuid(record), vector
