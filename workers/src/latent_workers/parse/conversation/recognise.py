"""Recognises transcripts and exports of assistants by their first bytes.

A corpus of records is none of them, whatever its records are about: its lines have an ``_id``. Records with
``messages`` instead of a text are conversations.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any, Final

HEAD_BYTES: Final = 65_536
"""Bytes of a file that ``recognise`` needs: the first line of a transcript may hold long instructions."""

_LINES: Final = frozenset({".jsonl", ".ndjson"})
_CLAUDE_CODE: Final = frozenset(
    {"user", "assistant", "system", "summary", "file-history-snapshot", "queue-operation"}
)
_MAPPING: Final = re.compile(rb'"mapping"\s*:\s*\{')
_TREE: Final = re.compile(rb'"(?:current_node|author|children)"\s*:')
_CHAT_MESSAGES: Final = re.compile(rb'"chat_messages"\s*:\s*\[')
_TYPE: Final = re.compile(rb'"type"\s*:\s*"([\w-]{1,40})"')
_SESSION: Final = re.compile(rb'"sessionId"\s*:\s*"')
_IDENTITY: Final = re.compile(rb'"_id"\s*:')


class ConversationFormat(StrEnum):
    CLAUDE_CODE = "claude_code"
    CODEX = "codex"
    CHATGPT = "chatgpt"
    CLAUDE = "claude"
    RECORDS = "records"
    """JSONL with ``_id`` and the fields of the stored form on each line."""
    STORED = "stored"
    """The stored form itself."""

    @property
    def is_export(self) -> bool:
        """Whether a file may hold several conversations."""
        return self in _EXPORTS


_EXPORTS: Final = frozenset(
    {ConversationFormat.CHATGPT, ConversationFormat.CLAUDE, ConversationFormat.RECORDS}
)


def recognise(name: str, head: bytes) -> ConversationFormat | None:
    """The format of a file by its name and its first ``HEAD_BYTES`` bytes; None for any other file."""
    suffix = PurePosixPath(name.lower()).suffix
    head = head.removeprefix(b"\xef\xbb\xbf")
    if suffix in _LINES:
        return _of_lines(head)
    if suffix == ".json" and head.lstrip()[:1] in (b"[", b"{"):
        return _of_export(head)
    return None


def _of_export(head: bytes) -> ConversationFormat | None:
    if _CHAT_MESSAGES.search(head):
        return ConversationFormat.CLAUDE
    if _MAPPING.search(head) and _TREE.search(head):
        return ConversationFormat.CHATGPT
    return None


def _of_lines(head: bytes) -> ConversationFormat | None:
    """By the first line that tells; lines of other kinds may precede it."""
    lines = head.split(b"\n")
    for value in _objects(lines[:-1]):
        if "_id" in value:
            return _of_record(value)
        found = _of_line(value)
        if found is not None:
            return found
    # The last line may be cut off.
    return _of_part(lines[-1])


def _objects(lines: list[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value


def _of_line(value: dict[str, Any]) -> ConversationFormat | None:
    kind, payload = value.get("type"), value.get("payload")
    if kind in ("session_meta", "response_item") and isinstance(payload, dict):
        return ConversationFormat.CODEX
    if kind is None and {"id", "timestamp", "instructions"} <= value.keys():
        return ConversationFormat.CODEX  # its older form
    if kind in ("user", "assistant") and isinstance(value.get("message"), dict):
        return ConversationFormat.CLAUDE_CODE if "uuid" in value or "sessionId" in value else None
    if kind == "summary" and "leafUuid" in value:
        return ConversationFormat.CLAUDE_CODE
    if kind in _CLAUDE_CODE and "sessionId" in value:
        return ConversationFormat.CLAUDE_CODE
    return None


def _of_part(line: bytes) -> ConversationFormat | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        if _IDENTITY.search(line):
            return None
        kinds = set(_TYPE.findall(line))
        if b"session_meta" in kinds:
            return ConversationFormat.CODEX
        if _SESSION.search(line) and kinds & {b"user", b"assistant"}:
            return ConversationFormat.CLAUDE_CODE
        return None
    if not isinstance(value, dict):
        return None
    return _of_record(value) if "_id" in value else _of_line(value)


def _of_record(value: dict[str, Any]) -> ConversationFormat | None:
    is_conversation = isinstance(value.get("messages"), list) and "text" not in value
    return ConversationFormat.RECORDS if is_conversation else None
