"""Mailboxes (.mbox): one record per message, read in batches from a cursor, so that one of any size streams.

A message begins at a line ``From …`` with a time in it, at the start or after an empty line. The ``mailbox`` module of
the standard library also splits at a sentence that begins with "From", which not every program that writes mailboxes
marks.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from latent_core.domain.errors import IngestFailed
from latent_workers.parse.mail.message import read_eml, written
from latent_workers.parse.signatures import ENVELOPE
from latent_workers.parse.structured.jsonl import MAX_ID_CHARS, Record, RecordBatch, RecordFailure
from latent_workers.parse.text.decode import clean, clean_value

MAX_MESSAGE_BYTES: Final = 32 * 1024 * 1024
"""With its attachments."""
MAX_TEXT_CHARS: Final = 4_000_000
"""Of one message: a batch must fit into one answer of the sandbox."""
_MAX_LINE: Final = 1024 * 1024
_QUOTED: Final = re.compile(rb"^>(>*From )", re.MULTILINE)


@dataclass(slots=True)
class _Piece:
    """A message with its envelope. ``data`` is None if it is too long to be held."""

    data: bytearray | None = field(default_factory=bytearray)
    size: int = 0
    lines: int = 0

    def add(self, line: bytes) -> None:
        self.size += len(line)
        self.lines += line.endswith(b"\n")
        if self.data is not None:
            self.data += line
            if self.size > MAX_MESSAGE_BYTES:
                self.data = None


def read_batch(
    file: BinaryIO, *, offset: int = 0, line: int = 1, max_records: int, max_bytes: int
) -> RecordBatch:
    """Read from byte ``offset``, where a message begins in line number ``line``."""
    total = os.fstat(file.fileno()).st_size
    file.seek(offset)
    records: list[Record] = []
    failures: list[RecordFailure] = []
    at = offset
    while at < total and len(records) + len(failures) < max_records and at - offset < max_bytes:
        piece = _next(file)
        if not piece.size:
            break
        outcome = _outcome(piece, line)
        if isinstance(outcome, Record):
            records.append(outcome)
        elif outcome is not None:
            failures.append(outcome)
        at, line = at + piece.size, line + piece.lines
    return RecordBatch(tuple(records), tuple(failures), at, line, total)


def _next(file: BinaryIO) -> _Piece:
    """The message at the position of ``file``, whose new position is the next message."""
    piece = _Piece()
    blank = False
    while line := file.readline(_MAX_LINE):
        if blank and line.startswith(b"From ") and ENVELOPE.match(line):
            file.seek(-len(line), os.SEEK_CUR)
            break
        piece.add(line)
        blank = not line.strip()
    return piece


def _outcome(piece: _Piece, line: int) -> Record | RecordFailure | None:
    """``None`` for blank lines."""
    if piece.data is None:
        limit = MAX_MESSAGE_BYTES // (1024 * 1024)
        return RecordFailure(line, f"the message is longer than {limit} MB")
    data = bytes(piece.data)
    if not data.strip():
        return None
    if data.startswith(b"From "):
        data = data.partition(b"\n")[2]
    name = f"message in line {line}"
    try:
        mail = read_eml(_QUOTED.sub(rb"\1", data), name)
        read = written(mail, name)
    except IngestFailed as exc:
        return RecordFailure(line, exc.message)
    identity = clean(mail.identity)[0][:MAX_ID_CHARS] or hashlib.sha256(data).hexdigest()
    text, replaced = clean(read.text.partition("\n\n")[2])
    if len(text) > MAX_TEXT_CHARS:
        return RecordFailure(line, f"the message has more than {MAX_TEXT_CHARS:,} characters")
    return Record(
        identity,
        clean(mail.subject or name)[0],
        text,
        clean_value(read.meta),
        line,
        replaced,
        mail=True,
    )
