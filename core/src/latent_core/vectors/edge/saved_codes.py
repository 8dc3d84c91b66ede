"""The table of a large collection in a file, ``codes``: read instead of the log up to where it was saved.

It is a copy of what the log says: it is written when nothing else is to do, never synced, and ignored if it is damaged,
of another log or of another version. The log after it is read as always.
"""

from __future__ import annotations

import logging
import struct
import zlib
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Final

from latent_core.runtime.failpoint import failpoint
from latent_core.vectors.edge.durable import replace_unsynced
from latent_core.vectors.edge.large import CodeTable, LargeCollection
from latent_core.vectors.edge.point_log import LogPosition, PointLog
from latent_core.vectors.edge.protocol import CODES, Buffer

logger = logging.getLogger(__name__)

MIN_BYTES: Final = 64 << 20
"""A smaller log is read in less than a tenth of a second."""
_SHARE: Final = 4
"""It is saved again when the log has grown by this part of itself, and ``MIN_BYTES``."""
QUIET_SECONDS: Final = 20.0
"""Without a write, before it is saved."""
_MAGIC: Final = b"LCCODES1"
_HEADER: Final = struct.Struct("<8sIQQQQQ20sI")
"""Magic, dimensions, points; the position in the log: size, records, points, begin and head of its last record; checksum
of what follows."""
_PIECE: Final = 16 << 20


def is_due(collection: LargeCollection) -> bool:
    """Whether so much would be read from the log that saving the table pays."""
    unsaved = collection.log_size - collection.saved_size
    return unsaved > max(MIN_BYTES, collection.log_size // _SHARE)


def save(collection: LargeCollection) -> None:
    """Write the table beside the log."""
    position = collection.log_end()
    if position is None:
        return
    columns = collection.table.columns()
    parts = [column.data.cast("B") for column in columns if len(column)]
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    header = _HEADER.pack(
        _MAGIC,
        collection.dims,
        len(collection),
        position.size,
        position.records,
        position.upserted,
        position.last_at,
        position.last_head,
        checksum,
    )

    def pieces() -> Iterator[Buffer]:
        yield header
        failpoint("codes.after_header")
        yield from parts

    replace_unsynced(collection.path / CODES, pieces())
    collection.saved_size = position.size


def opened(path: Path, log: PointLog) -> LargeCollection | None:
    """The collection by its saved table and the rest of its log; None without a table that fits the log."""
    try:
        with (path / CODES).open("rb") as file:
            found = _read(file, log)
    except FileNotFoundError:
        return None
    if found is None:
        logger.warning("vector_codes_ignored", extra={"path": str(path / CODES)})
        (path / CODES).unlink()
        return None
    table, position = found
    collection = LargeCollection(path, log, log.read(position), table)
    collection.saved_size = position.size
    return collection


def _read(file: BufferedReader, log: PointLog) -> tuple[CodeTable, LogPosition] | None:
    head = file.read(_HEADER.size)
    if len(head) < _HEADER.size:
        return None
    magic, dims, n, size, records, upserted, last_at, last_head, checksum = _HEADER.unpack(head)
    position = LogPosition(size, records, upserted, last_at, last_head)
    if magic != _MAGIC or dims != log.dims or not log.has(position):
        return None
    found, whole = 0, True

    def read(space: memoryview) -> None:
        nonlocal found, whole
        for start in range(0, len(space), _PIECE):
            part = space[start : start + _PIECE]
            whole &= file.readinto(part) == len(part)
            found = zlib.crc32(part, found)

    if n > position.upserted:
        return None
    table = CodeTable.filled(dims, n, read)
    return (table, position) if whole and found == checksum else None
