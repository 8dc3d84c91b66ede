"""The file of a collection: a log of writes, read whole when the collection is opened.

A header is followed by one record per write. A record is whole when its checksum is right. Bytes after the last whole
record are a write that was never acknowledged, and are cut off. Bytes that are followed by a whole record are damage:
the file is refused (``latent doctor``).
"""

from __future__ import annotations

import logging
import mmap
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final

from latent_core.runtime.failpoint import failpoint
from latent_core.vectors.edge.durable import replace_synced
from latent_core.vectors.edge.points import PointBatch
from latent_core.vectors.edge.protocol import Buffer

logger = logging.getLogger(__name__)

_MAGIC: Final = b"LCPOINTS"
_VERSION: Final = 1
_HEADER: Final = struct.Struct("<8sII")
"""Magic, version, dimensions."""
_MARK: Final = b"\x1eREC"
_RECORD: Final = struct.Struct("<4sIIII")
"""Mark, checksum of all that follows, kind, number of points, bytes of the body."""
_CHECKED: Final = struct.Struct("<III")
_MAPPED_BYTES: Final = 8 << 20


class DamagedLogError(Exception):
    """The file is not a log, or a part in its middle is not what was written."""


class RecordKind(IntEnum):
    UPSERT = 1
    """Body: a ``PointBatch``."""
    DELETE = 2
    """Body: ids."""


@dataclass(frozen=True, slots=True)
class LogRecord:
    kind: RecordKind
    n: int
    """Number of points."""
    at: int
    """Where its body begins in the file."""
    body: memoryview


@dataclass(frozen=True, slots=True)
class LogPosition:
    """The end of a record, and what there is up to it."""

    size: int
    """Bytes."""
    records: int
    upserted: int
    """Points, with those that later records replace or delete."""
    last_at: int
    """Where the last record begins."""
    last_head: bytes
    """The head of this record, which has its checksum: another log has another one."""


class PointLog:
    """The log in ``path``. A write is in the file when it returns; another process syncs it."""

    def __init__(self, path: Path, dims: int) -> None:
        self.path = path
        self.dims = dims
        self.size = 0
        """Bytes of whole records, and the header."""
        self.records = 0
        self.upserted = 0
        """Points of all records, with those that later ones replace or delete."""
        self._last_at = 0
        """Where the last record begins."""

    def end(self) -> LogPosition | None:
        """The end of the last record, whose head is read; None if there is no record."""
        if not self.records:
            return None
        with self.path.open("rb") as file:
            head = os.pread(file.fileno(), _RECORD.size, self._last_at)
        return LogPosition(self.size, self.records, self.upserted, self._last_at, head)

    def has(self, position: LogPosition) -> bool:
        """Whether the file has the record that ends there."""
        with self.path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < position.size:
                return False
            return os.pread(file.fileno(), _RECORD.size, position.last_at) == position.last_head

    def replace(self, batches: Iterable[PointBatch]) -> None:
        """Replace the file by one with these points alone, a record for each batch; durable on return."""
        size, records, upserted = _HEADER.size, 0, 0

        def parts() -> Iterator[Buffer]:
            nonlocal size, records, upserted
            yield _HEADER.pack(_MAGIC, _VERSION, self.dims)
            for batch in batches:
                self._last_at = size
                body = batch.encode()
                yield _head(RecordKind.UPSERT, len(batch), body)
                yield from body
                size += _RECORD.size + _bytes(body)
                records += 1
                upserted += len(batch)

        failpoint("flat.before_replace")
        replace_synced(self.path, parts())
        failpoint("flat.after_replace")
        self.size, self.records, self.upserted = size, records, upserted

    def append(self, kind: RecordKind, n: int, body: Sequence[Buffer]) -> int:
        """Add a record; returns where its body begins. Nothing remains of it when the disk is full."""
        parts = [_head(kind, n, body), *body]
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            failpoint("flat.before_append")
            _write(fd, parts)
            failpoint("flat.after_append")
        except BaseException:
            os.ftruncate(fd, self.size)
            raise
        finally:
            os.close(fd)
        self._last_at = self.size
        at = self.size + _RECORD.size
        self.size += _bytes(parts)
        self.records += 1
        self.upserted += n if kind is RecordKind.UPSERT else 0
        return at

    def read(self, after: LogPosition | None = None) -> list[LogRecord]:
        """All whole records, or those ``after`` a position that it ``has``. Cuts off an unfinished write; raises
        ``DamagedLogError`` for a damaged file."""
        data = _content(self.path)
        self._check_header(data)
        records: list[LogRecord] = []
        self.size = _HEADER.size if after is None else after.size
        self._last_at = 0 if after is None else after.last_at
        while (record := _record_at(data, self.size)) is not None:
            records.append(record)
            self._last_at = self.size
            self.size += _RECORD.size + len(record.body)
        self.records = len(records) + (after.records if after else 0)
        self.upserted = sum(record.n for record in records if record.kind is RecordKind.UPSERT)
        self.upserted += after.upserted if after else 0
        if self.size < len(data):
            self._cut_off(data)
        return records

    def _check_header(self, data: memoryview) -> None:
        if len(data) < _HEADER.size:
            raise DamagedLogError("its header is incomplete")
        magic, version, dims = _HEADER.unpack_from(data)
        if magic != _MAGIC or version != _VERSION or dims != self.dims:
            raise DamagedLogError(
                f"its header is {bytes(magic)!r}, version {version}, {dims} dimensions, not "
                f"{_MAGIC!r}, version {_VERSION}, {self.dims} dimensions"
            )

    def _cut_off(self, data: memoryview) -> None:
        """Remove an unfinished write, so that the next record follows the last whole one."""
        rest = bytes(data[self.size :])
        mark = rest.find(_MARK, 1)
        while mark >= 0:
            if _record_at(data, self.size + mark) is not None:
                raise DamagedLogError(f"bytes {self.size} to {self.size + mark} are not a record")
            mark = rest.find(_MARK, mark + 1)
        logger.warning(
            "vector_write_cut_off", extra={"path": str(self.path), "bytes": len(data) - self.size}
        )
        os.truncate(self.path, self.size)


def _content(path: Path) -> memoryview:
    """Of a large file mapped, for as long as a part of it is used: read into memory it would need twice its size."""
    if path.stat().st_size < _MAPPED_BYTES:
        return memoryview(path.read_bytes())
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _record_at(data: memoryview, start: int) -> LogRecord | None:
    """The record that begins there, if it is whole."""
    body_start = start + _RECORD.size
    if body_start > len(data):
        return None
    mark, checksum, kind, n, size = _RECORD.unpack_from(data, start)
    body = data[body_start : body_start + size]
    if mark != _MARK or len(body) < size or _checksum(kind, n, [body]) != checksum:
        return None
    return LogRecord(RecordKind(kind), n, body_start, body)


def _head(kind: RecordKind, n: int, body: Sequence[Buffer]) -> bytes:
    return _RECORD.pack(_MARK, _checksum(kind, n, body), kind, n, _bytes(body))


def _checksum(kind: int, n: int, body: Sequence[Buffer]) -> int:
    checksum = zlib.crc32(_CHECKED.pack(kind, n, _bytes(body)))
    for part in body:
        checksum = zlib.crc32(part, checksum)
    return checksum


def _bytes(parts: Iterable[Buffer]) -> int:
    return sum(memoryview(part).nbytes for part in parts)


def _write(fd: int, parts: Iterable[Buffer]) -> None:
    """Write all of it: the system may take less at a time."""
    rest = memoryview(b"".join(parts))
    while rest:
        rest = rest[os.write(fd, rest) :]
