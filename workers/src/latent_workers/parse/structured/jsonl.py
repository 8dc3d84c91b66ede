"""JSONL corpora: one record per line, read in batches from a cursor, so that a corpus of any size streams.

A record is ``{"_id", "title", "text", …}``; other fields are meta. A bad line is a failure of that record, reported
with its line number; the rest continues.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, Final, NoReturn

import orjson

from latent_core.domain.chunk import BlockType
from latent_core.domain.conversation import read_conversation
from latent_core.domain.errors import IngestFailed
from latent_workers.parse.conversation.parser import of_conversation
from latent_workers.parse.parsed import ParsedDocument, TextBlock
from latent_workers.parse.text import parser as plain_text
from latent_workers.parse.text.decode import clean, clean_value, decode

MAX_LINE_BYTES: Final = 8 * 1024 * 1024
MAX_ID_CHARS: Final = 512


@dataclass(frozen=True, slots=True)
class Record:
    """One document of a corpus."""

    id: str
    title: str
    text: str
    meta: dict[str, Any] = field(default_factory=dict)
    line: int = 1
    replaced_characters: int = 0
    conversation: dict[str, Any] | None = None
    """The stored form of a conversation, which is then the text of the record."""
    mail: bool = False
    """Whether it is a message of a mailbox."""


@dataclass(frozen=True, slots=True)
class RecordFailure:
    """A malformed line with its error."""

    line: int
    message: str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Records and failures up to a cursor; finished when ``next_offset == total_bytes``."""

    records: tuple[Record, ...]
    failures: tuple[RecordFailure, ...]
    next_offset: int
    """Bytes read so far: the start of the next batch."""
    next_line: int
    total_bytes: int


def read_batch(
    file: BinaryIO,
    *,
    offset: int = 0,
    line: int = 1,
    max_records: int,
    max_bytes: int,
    conversations: bool = False,
) -> RecordBatch:
    """Read from byte ``offset``, where line number ``line`` starts. ``conversations``: the records are conversations
    of an export, in the stored form.

    Ends after ``max_records`` records or failures, or with the line that reaches ``max_bytes``. A line over
    ``MAX_LINE_BYTES`` is a failure and is never held in memory.
    """
    total = os.fstat(file.fileno()).st_size
    file.seek(offset)
    records: list[Record] = []
    failures: list[RecordFailure] = []
    at = offset
    while at < total and len(records) + len(failures) < max_records and at - offset < max_bytes:
        raw, size = _line(file)
        if not size:
            break
        outcome = _outcome(raw, line, first=at == 0, conversations=conversations)
        if isinstance(outcome, Record):
            records.append(outcome)
        elif outcome is not None:
            failures.append(outcome)
        at, line = at + size, line + 1
    return RecordBatch(tuple(records), tuple(failures), at, line, total)


def parsed(record: Record) -> ParsedDocument:
    """A record as a document: its title as heading, its text as paragraphs; or its conversation."""
    if record.conversation is not None:
        document = of_conversation(read_conversation(record.conversation))
        return replace(document, meta={**document.meta, **record.meta})
    title = " ".join(record.title.split())
    text = "\n\n".join(part for part in (title, record.text) if part)
    return ParsedDocument(
        text=text,
        title=title or None,
        blocks=tuple(_blocks(title, text)),
        meta=record.meta,
        replaced_characters=record.replaced_characters,
    )


def _blocks(title: str, text: str) -> Iterator[TextBlock]:
    for block in plain_text.paragraphs(text, BlockType.PARAGRAPH):
        if not title:
            yield block
        elif block.line_start == 1:
            yield replace(block, kind=BlockType.HEADING, heading_path=(title,), level=1)
        else:
            yield replace(block, heading_path=(title,))


def _line(file: BinaryIO) -> tuple[bytes | None, int]:
    """The next line, or ``None`` if it is too long, and its bytes including its end."""
    raw = file.readline(MAX_LINE_BYTES + 1)
    size = len(raw)
    if size <= MAX_LINE_BYTES or raw.endswith(b"\n"):
        return raw, size
    while raw and not raw.endswith(b"\n"):
        raw = file.readline(MAX_LINE_BYTES)
        size += len(raw)
    return None, size


def _outcome(
    raw: bytes | None, line: int, *, first: bool, conversations: bool
) -> Record | RecordFailure | None:
    """``None`` for a blank line."""
    if raw is None:
        limit = MAX_LINE_BYTES // (1024 * 1024)
        return RecordFailure(line, f"line {line} is longer than {limit} MB")
    if first:
        raw = raw.removeprefix(b"\xef\xbb\xbf")
    if not raw.strip():
        return None
    try:
        value = json.loads(_text(raw), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as exc:
        return RecordFailure(line, f"line {line} is not valid JSON: {str(exc)[:200]}")
    try:
        return _conversation(value, line) if conversations else _record(value, line)
    except IngestFailed as exc:
        return RecordFailure(line, f"line {line}: {exc.message}", exc.details.get("id"))


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return decode(raw).text


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _record(value: Any, line: int) -> Record:
    if not isinstance(value, dict):
        raise IngestFailed("a record is an object, not " + type(value).__name__)
    identity = _identity(value)
    title, text = (_string(value, key, identity) for key in ("title", "text"))
    if not title.strip() and not text.strip():
        raise IngestFailed("title and text are empty", id=identity)
    clean_title, bad_in_title = clean(title)
    clean_text, bad_in_text = clean(text)
    rest = {key: item for key, item in value.items() if key not in ("_id", "title", "text")}
    return Record(
        identity, clean_title, clean_text, clean_value(rest), line, bad_in_title + bad_in_text
    )


def _conversation(value: Any, line: int) -> Record:
    """A line of ``conversation_line``."""
    identity = _identity(value)
    rest = {key: item for key, item in value.items() if key not in ("_id", "conversation")}
    title = value["conversation"].get("title") or identity
    return Record(identity, title, "", rest, line, conversation=value["conversation"])


def conversation_line(identity: str, conversation: dict[str, Any], **meta: Any) -> bytes:
    """A conversation of an export as a line of a corpus."""
    value = {"_id": clean(identity)[0][:MAX_ID_CHARS], "conversation": conversation, **meta}
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)


def _identity(value: dict[str, Any]) -> str:
    given = value.get("_id")
    if isinstance(given, bool) or not isinstance(given, str | int) or not str(given).strip():
        raise IngestFailed("a record needs an '_id' (text or a whole number)")
    identity = clean(str(given))[0]
    if len(identity) > MAX_ID_CHARS:
        raise IngestFailed(f"the '_id' is longer than {MAX_ID_CHARS} characters")
    return identity


def _string(value: dict[str, Any], key: str, identity: str) -> str:
    given = value.get(key)
    if given is None:
        return ""
    if not isinstance(given, str):
        raise IngestFailed(f"'{key}' is {type(given).__name__}, not text", id=identity)
    return given
