"""The protocol between parent and child: ``kind, length of JSON, length of attachment``, then both.

The parent trusts nothing from a child: lengths are limited before any byte is read, and the caller validates the
JSON of an item from its bytes.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, BinaryIO, Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict

from latent_workers.sandbox.budget import MIB

HEADER: Final = struct.Struct("!BII")
MAX_JSON_BYTES: Final = 24 * MIB
MAX_ATTACHMENT_BYTES: Final = 64 * MIB
MAX_FILES: Final = 8

Reason = Literal["refused", "memory", "error"]


class FrameKind(IntEnum):
    REQUEST = 0
    READY = 1
    ITEM = 2
    DONE = 3
    FAILED = 4


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """An output of a task, in the child."""

    value: Any
    """Any value that orjson serialises."""
    attachment: bytes | memoryview = b""


@dataclass(frozen=True, slots=True)
class FrameItem:
    """An item in the parent: JSON that is not validated yet, and its attachment."""

    value: bytes
    attachment: bytes


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Start(_Message):
    """How a child confines itself, and where its tasks are."""

    programs: bool
    niceness: int
    import_paths: list[str]
    reads: list[str]


class TaskRequest(_Message):
    """A task: its function as ``module:name``, its arguments, and the limits that the child sets for itself."""

    function: str
    arguments: dict[str, Any]
    files: int
    cpu_seconds: int
    memory_bytes: int


class ChildReady(_Message):
    layers: dict[str, bool | str]


class TaskDone(_Message):
    resident_bytes: int


class TaskFailed(_Message):
    """Why a task ended early: a refusal for the user, memory, or a parser error."""

    reason: Reason
    message: str
    resident_bytes: int
    details: dict[str, Any] = {}
    trace: str = ""


def send(
    sock: socket.socket, kind: FrameKind, value: Any, attachment: bytes | memoryview = b""
) -> None:
    """Write one frame to a blocking socket (the child's side)."""
    body = orjson.dumps(value)
    sock.sendall(HEADER.pack(kind, len(body), len(attachment)))
    sock.sendall(body)
    if len(attachment):
        sock.sendall(attachment)


def receive_request(sock: socket.socket) -> tuple[TaskRequest, list[int]] | None:
    """The next request and its open files, or ``None`` when the parent has closed (the child's side)."""
    first, fds, _, _ = socket.recv_fds(sock, HEADER.size, MAX_FILES)
    if not first:
        return None
    header = first + _exactly(sock, HEADER.size - len(first))
    _, length, _ = HEADER.unpack(header)
    return TaskRequest.model_validate_json(_exactly(sock, length)), list(fds)


def _exactly(sock: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = sock.recv(size - len(parts))
        if not part:
            raise EOFError("the parent closed in the middle of a request")
        parts += part
    return bytes(parts)


Task = Callable[[dict[str, Any], Sequence[BinaryIO]], Iterator[TaskOutput]]
"""Arguments and read-only files in, outputs one by one."""

TASKS: Final[Mapping[str, str]] = {
    "parse": "latent_workers.parse.task:parse",
    "unlock": "latent_workers.parse.encryption:unlock",
    "records": "latent_workers.parse.task:records",
    "page_words": "latent_workers.parse.task:page_words",
    "conversations": "latent_workers.parse.task:conversations",
    "pdf_pages": "latent_workers.render.task:pdf_pages",
    "page_pdf": "latent_workers.render.task:page_pdf",
    "story_pages": "latent_workers.render.task:story_pages",
    "picture": "latent_workers.render.task:picture",
    "ocr_page": "latent_workers.ocr.task:page",
}
