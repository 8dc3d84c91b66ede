"""The protocol of the vector child and its owner: framed requests and replies over a socket.

A frame is a prefix (magic, version, two lengths), a JSON head and a raw body. Bodies hold arrays in
the machine's own byte order, since both ends are always on one machine. The child imports this module, so it has
no heavy imports: no numpy, no pydantic, no engine.
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
"""Name of the current collection, padded with blanks: shows after a crash where the engine crashed."""
BUSY_BYTES: Final = 256
WAL_FOLDER: Final = "wal"
"""The engine's log of a shard, which is replayed for data that is not in the segments."""
POINT_LOG: Final = "points"
"""The file of a collection."""
CODES: Final = "codes"
"""A copy of what is in memory of a large collection."""
_MAGIC: Final = b"LV"
_PREFIX: Final = struct.Struct("<2sBxII")

Buffer = bytes | bytearray | memoryview


class ProtocolError(Exception):
    """The other end does not speak this protocol, or a frame is too large."""


class VectorOp(StrEnum):
    PING = "ping"
    CANCEL = "cancel"
    """The caller no longer waits for the request of this id. Not answered."""
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
    DELETE_POINTS = "delete_points"


class Fault(StrEnum):
    """Why a request was refused; the owner maps each to an exception."""

    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    INVALID = "invalid"
    UNAVAILABLE = "unavailable"
    OUT_OF_SPACE = "out_of_space"
    TIMED_OUT = "timed_out"


class RequestRefused(Exception):
    """Why a request cannot be served."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault = fault
        self.message = message


@dataclass(frozen=True, slots=True)
class ProtocolFrame:
    head: dict[str, Any]
    body: bytes


@dataclass(frozen=True, slots=True)
class VectorRequest:
    id: int
    op: VectorOp
    deadline: float
    """In ``time.monotonic()``, which all processes of a machine share; later the caller no longer waits."""
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
    """The answer to the request ``id``; id 0 is the child's greeting after it locked the folder."""

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
    """One frame; ``ProtocolError`` if larger than ``MAX_FRAME``."""
    packed = orjson.dumps(head)
    if len(packed) + len(body) > MAX_FRAME:
        raise ProtocolError(f"a frame of {len(packed) + len(body)} bytes is over {MAX_FRAME}")
    return b"".join((_PREFIX.pack(_MAGIC, VERSION, len(packed), len(body)), packed, body))


class FrameDecoder:
    """Splits a stream of bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[ProtocolFrame]:
        """The frames that ``data`` completes. After a ``ProtocolError`` the stream is unusable."""
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
    """Split consecutive records of ``size`` bytes."""
    if len(packed) % size:
        raise ProtocolError(f"{len(packed)} bytes are not records of {size}")
    return [packed[start : start + size] for start in range(0, len(packed), size)]


def check_dims(dims: int, given: int) -> None:
    """Refuses a query of other dimensions than the collection has."""
    if given != dims:
        raise RequestRefused(Fault.INVALID, f"has {dims} dimensions, the query {given}")
