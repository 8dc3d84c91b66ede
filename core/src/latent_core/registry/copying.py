"""COPY of rows that are bytes already: made in a thread, before the transaction that sends them begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, LiteralString

from latent_core.registry.connection import Connection

BINARY_HEAD: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
BINARY_END: Final = b"\xff\xff"
PIECE: Final = 256 * 1024
"""Sent at once: the loop serves others between two."""
NULL: Final = "\\N"
_ESCAPES: Final = (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))


async def copy_bytes(conn: Connection, statement: LiteralString, data: bytes | memoryview) -> None:
    """Rows as the statement's format has them, with its head and end where it has such."""
    sent = memoryview(data)
    async with conn.cursor() as cursor, cursor.copy(statement) as copy:
        for start in range(0, len(sent), PIECE):
            await copy.write(sent[start : start + PIECE])


def fields(values: Sequence[Any]) -> str:
    """Fields of a row in the text format, tabs between them; nothing before the first or after the last."""
    return "\t".join([_field(value) for value in values])


def _field(value: Any) -> str:
    if value is None:
        return NULL
    if isinstance(value, list):
        value = _array(value)
    elif not isinstance(value, str):
        return str(value)  # numbers, ids, times
    for char, escaped in _ESCAPES:
        if char in value:
            value = value.replace(char, escaped)
    return str(value)


def _array(texts: Sequence[str]) -> str:
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return "{" + ",".join([f'"{text}"' for text in quoted]) + "}"
