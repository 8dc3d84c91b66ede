"""What the vector child and its owner say to each other: framed requests and replies over a socket.

A frame is a prefix (magic, version, two lengths), a JSON head and a raw body. Bodies hold arrays in
the machine's own byte order, since both ends are always on one machine. This module is imported by
the child, so it knows nothing heavy: no numpy, no pydantic, no engine.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Self

import orjson

VERSION: Final = 1
MAX_FRAME: Final = 64 * 1024 * 1024
"""Bytes of head and body together."""
ID_BYTES: Final = 16
LOCK_FILE: Final = "engine.lock"
"""Locked by the child as long as it lives."""
BUSY_FILE: Final = "engine.busy"
"""The collection in work, padded with blanks: after a crash it tells on which the engine crashed."""
BUSY_BYTES: Final = 256
WAL_FOLDER: Final = "wal"
"""Of a collection: the engine's log, which brings back what the segments have not."""
_MAGIC: Final = b"LV"
_PREFIX: Final = struct.Struct("<2sBxII")


class ProtocolError(Exception):
    """The other end does not speak this protocol, or a frame is over its bound."""


class VectorOp(StrEnum):
    PING = "ping"
    CANCEL = "cancel"
    """Nobody waits for the request of this id any more. Not answered."""
    CLOSE = "close"
    SEARCH = "search"
    COUNT = "count"
    VECTORS = "vectors"
    SCROLL = "scroll"
    COLLECTIONS = "collections"
    CREATE = "create"
    DROP = "drop"
    UPSERT = "upsert"
    DELETE = "delete"


class Fault(StrEnum):
    """Why a request was refused; the owner maps each to an error of the house."""

    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    INVALID = "invalid"
    UNAVAILABLE = "unavailable"
    OUT_OF_SPACE = "out_of_space"
    TIMED_OUT = "timed_out"


@dataclass(frozen=True, slots=True)
class ProtocolFrame:
    head: dict[str, Any]
    body: bytes


@dataclass(frozen=True, slots=True)
class VectorRequest:
    id: int
    op: VectorOp
    deadline: float
    """Of ``time.monotonic()``, one clock for all processes of a machine; past it nobody waits."""
    collection: str = ""
    args: dict[str, Any] = field(default_factory=dict)
    body: bytes = b""

    def encode(self) -> bytes:
        head = {"id": self.id, "op": self.op, "deadline": self.deadline}
        return encode(head | {"collection": self.collection, "args": self.args}, self.body)

    @classmethod
    def decode(cls, frame: ProtocolFrame) -> Self:
        head = frame.head
        try:
            op = VectorOp(head["op"])
            return cls(
                head["id"], op, head["deadline"], head["collection"], head["args"], frame.body
            )
        except (KeyError, ValueError) as exc:
            raise ProtocolError(f"not a request: {exc}") from exc


@dataclass(frozen=True, slots=True)
class VectorReply:
    """Answer to the request of that ``id``; id 0 is the child's greeting, once it holds the folder."""

    id: int
    fault: Fault | None = None
    message: str = ""
    args: dict[str, Any] = field(default_factory=dict)
    body: bytes = b""

    def encode(self) -> bytes:
        head = {"id": self.id, "fault": self.fault, "message": self.message, "args": self.args}
        return encode(head, self.body)

    @classmethod
    def decode(cls, frame: ProtocolFrame) -> Self:
        head = frame.head
        try:
            fault = None if head["fault"] is None else Fault(head["fault"])
            return cls(head["id"], fault, head["message"], head["args"], frame.body)
        except (KeyError, ValueError) as exc:
            raise ProtocolError(f"not a reply: {exc}") from exc


def encode(head: dict[str, Any], body: bytes) -> bytes:
    """One frame; ``ProtocolError`` when it is over ``MAX_FRAME``."""
    packed = orjson.dumps(head)
    if len(packed) + len(body) > MAX_FRAME:
        raise ProtocolError(f"a frame of {len(packed) + len(body)} bytes is over {MAX_FRAME}")
    return b"".join((_PREFIX.pack(_MAGIC, VERSION, len(packed), len(body)), packed, body))


class FrameDecoder:
    """Cuts a stream of bytes, however it arrives, into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[ProtocolFrame]:
        """The frames that ``data`` completes. Raises ``ProtocolError``; then the stream is lost."""
        self._buffer += data
        while (frame := self._take()) is not None:
            yield frame

    def _take(self) -> ProtocolFrame | None:
        if len(self._buffer) < _PREFIX.size:
            return None
        head_bytes, body_bytes = _lengths(self._buffer)
        start, end = _PREFIX.size + head_bytes, _PREFIX.size + head_bytes + body_bytes
        if len(self._buffer) < end:
            return None
        head = _head(bytes(self._buffer[_PREFIX.size : start]))
        body = bytes(self._buffer[start:end])
        del self._buffer[:end]
        return ProtocolFrame(head, body)


def _lengths(buffer: bytearray) -> tuple[int, int]:
    magic, version, head_bytes, body_bytes = _PREFIX.unpack_from(buffer)
    if magic != _MAGIC:
        raise ProtocolError(f"a frame starts with {_MAGIC!r}, not with {magic!r}")
    if version != VERSION:
        raise ProtocolError(f"version {version} is spoken, but this is version {VERSION}")
    if head_bytes + body_bytes > MAX_FRAME:
        raise ProtocolError(f"a frame of {head_bytes + body_bytes} bytes is over {MAX_FRAME}")
    return head_bytes, body_bytes


def _head(packed: bytes) -> dict[str, Any]:
    try:
        head = orjson.loads(packed)
    except orjson.JSONDecodeError as exc:
        raise ProtocolError(f"the head of a frame is not JSON: {exc}") from exc
    if not isinstance(head, dict):
        raise ProtocolError(f"the head of a frame is an object, not {type(head).__name__}")
    return head


def cut(packed: bytes, size: int = ID_BYTES) -> list[bytes]:
    """Records of ``size`` bytes that stand one after the other."""
    if len(packed) % size:
        raise ProtocolError(f"{len(packed)} bytes are not records of {size}")
    return [packed[start : start + size] for start in range(0, len(packed), size)]
