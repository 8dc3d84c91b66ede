"""Messages between the first gateway process and a further one: JSON objects, one per line, over a socket pair."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self

import orjson

MAX_LINE_BYTES: Final = 64 * 1024 * 1024


class Kind(StrEnum):
    """Of a message, with its fields."""

    READY = "ready"
    """From a further process: connections may be passed on."""
    ALIVE = "alive"
    """From a further process: its event loop runs."""
    CLOSED = "closed"
    """From a further process: a connection that was passed on has ended."""
    SEARCHED = "searched"
    """From a further process: a ``search`` for the query log."""
    SHED = "shed"
    """To a further process: close ``count`` connections after their next answers."""
    ASK_METRICS = "ask_metrics"
    """Answered by ``METRICS``: the first process answers with the ``text`` of all, a further one with its ``values``."""
    METRICS = "metrics"


class Message(NamedTuple):
    kind: Kind
    fields: dict[str, Any]


class Channel:
    """One end. ``messages`` ends when the other process closes its end or dies."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, end: socket.socket) -> Self:
        end.setblocking(False)
        return cls(*await asyncio.open_unix_connection(sock=end, limit=MAX_LINE_BYTES))

    def send(self, kind: Kind, **fields: Any) -> None:
        """Nothing happens if the other process is gone."""
        if not self._writer.is_closing():
            self._writer.write(orjson.dumps([kind, fields]) + b"\n")

    async def messages(self) -> AsyncIterator[Message]:
        try:
            while line := await self._reader.readline():
                kind, fields = orjson.loads(line)
                yield Message(Kind(kind), fields)
        except OSError:  # it was killed
            return

    def close(self) -> None:
        self._writer.close()
