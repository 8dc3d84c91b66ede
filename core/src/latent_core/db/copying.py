"""COPY of rows that are bytes already: made in a thread, before the transaction that sends them begins.

Fields of the binary format have their length before them. Postgres takes them as they are, where it has to look for
the end and the meaning of those in text; and what stands in a text needs no second look here.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, LiteralString

from latent_core.db.connection import Connection
from latent_core.domain.errors import Invalid

BINARY_HEAD: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
BINARY_END: Final = b"\xff\xff"
PIECE: Final = 256 * 1024
"""Bytes sent at once: the event loop runs other tasks between two parts."""
NULL: Final = (-1).to_bytes(4, "big", signed=True)


async def copy_bytes(conn: Connection, statement: LiteralString, data: bytes | memoryview) -> None:
    """Rows in the format of the statement, with its header and trailer if it has them."""
    sent = memoryview(data)
    async with conn.cursor() as cursor, cursor.copy(statement) as copy:
        for start in range(0, len(sent), PIECE):
            await copy.write(sent[start : start + PIECE])


def text_field(value: str | None) -> bytes:
    if value is None:
        return NULL
    data = value.encode()
    return _LENGTH.pack(len(data)) + data


def int_field(value: int | None) -> bytes:
    """Of type integer. ``Invalid`` for what is too large for one."""
    if value is None:
        return NULL
    try:
        return _INTEGER.pack(4, value)
    except struct.error as exc:
        raise Invalid(f"the number {value} is too large for an integer column") from exc


def json_field(data: bytes) -> bytes:
    """Of type jsonb."""
    return _JSON.pack(1 + len(data), 1) + data


def texts_field(values: Sequence[str]) -> bytes:
    """Of type text[]."""
    if not values:
        return _EMPTY_ARRAY
    data = _ARRAY.pack(1, 0, _TEXT_TYPE, len(values), 1) + b"".join(map(text_field, values))
    return _LENGTH.pack(len(data)) + data


def time_field(value: datetime) -> bytes:
    """Of type timestamptz; one without a zone is of UTC."""
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    return _TIME.pack(8, (aware - _EPOCH) // _MICROSECOND)


_LENGTH: Final = struct.Struct("!i")
_INTEGER: Final = struct.Struct("!ii")
_TIME: Final = struct.Struct("!iq")
_JSON: Final = struct.Struct("!ib")
_ARRAY: Final = struct.Struct("!iiIii")
_TEXT_TYPE: Final = 25
"""Its oid in the catalogue, the same in every installation."""
_EMPTY_ARRAY: Final = struct.pack("!iiiI", 12, 0, 0, _TEXT_TYPE)
_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
