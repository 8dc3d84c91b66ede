"""Exports of ChatGPT and Claude: a JSON array of conversations, read one by one."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final

from latent_core.domain.conversation import Role
from latent_core.domain.errors import IngestFailed
from latent_workers.parse.conversation.messages import (
    FoundConversation,
    MessageList,
    TranscriptOptions,
    UnreadPart,
    call_text,
    texts_of,
)

MAX_CONVERSATION_CHARS: Final = 64 * 1024 * 1024
"""Of the JSON of one conversation."""
_PIECE: Final = 1024 * 1024
_BETWEEN: Final = " \t\r\n,"

Outcome = FoundConversation | UnreadPart
_Reader = Callable[[dict[str, Any], str, TranscriptOptions], FoundConversation]


def chatgpt(file: BinaryIO, _name: str, options: TranscriptOptions) -> Iterator[Outcome]:
    """An export of ChatGPT. Of a conversation with several branches, the current one."""
    return _conversations(file, options, _chatgpt)


def claude(file: BinaryIO, _name: str, options: TranscriptOptions) -> Iterator[Outcome]:
    """An export of Claude."""
    return _conversations(file, options, _claude)


def _conversations(file: BinaryIO, options: TranscriptOptions, read: _Reader) -> Iterator[Outcome]:
    number = 0
    try:
        for value in _elements(file):
            number += 1
            try:
                if not isinstance(value, dict):
                    raise IngestFailed(f"is {type(value).__name__}, not an object")
                yield read(value, f"conversation-{number}", options)
            except IngestFailed as exc:
                yield UnreadPart(number, exc.message)
    except ValueError as exc:
        yield UnreadPart(number + 1, f"is not valid JSON: {str(exc)[:200]}")


class _TextReader:
    """UTF-8 in pieces. Leaves the file open, unlike ``io.TextIOWrapper``."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")

    def read(self, size: int) -> str:
        """Text of up to ``size`` bytes; empty at the end."""
        text = ""
        while not text and (data := self._file.read(size)):
            text = self._decoder.decode(data)
        return text


def _elements(file: BinaryIO) -> Iterator[Any]:
    """The elements of the array; an object is one conversation, or holds them below ``conversations``. ``ValueError``
    where the file is malformed."""
    text = _TextReader(file)
    decoder = json.JSONDecoder()
    buffer = text.read(_PIECE).lstrip()
    if not buffer.startswith("["):
        whole = _decoded(decoder, buffer, text)[0]
        inner = whole.get("conversations") if isinstance(whole, dict) else None
        yield from inner if isinstance(inner, list) else [whole]
        return
    buffer = buffer[1:]
    while True:
        buffer = buffer.lstrip(_BETWEEN)
        if not buffer:
            buffer = text.read(_PIECE)
            if not buffer:
                raise ValueError("the array has no end")
        elif buffer.startswith("]"):
            return
        else:
            value, buffer = _decoded(decoder, buffer, text)
            yield value


def _decoded(decoder: json.JSONDecoder, buffer: str, text: _TextReader) -> tuple[Any, str]:
    """The value at the start of ``buffer``, which grows until it holds all of it, and the rest."""
    while True:
        try:
            value, end = decoder.raw_decode(buffer)
        except RecursionError as exc:
            raise ValueError("it is nested too deeply") from exc
        except ValueError:
            more = text.read(max(_PIECE, len(buffer)))
            if not more or len(buffer) > MAX_CONVERSATION_CHARS:
                raise
            buffer += more
        else:
            return value, buffer[end:]


def _chatgpt(value: dict[str, Any], fallback: str, options: TranscriptOptions) -> FoundConversation:
    messages = MessageList(options)
    for message in _branch(value):
        author = message.get("author")
        role = _ROLES.get(str(author.get("role"))) if isinstance(author, dict) else None
        hidden = (message.get("metadata") or {}).get("is_visually_hidden_from_conversation")
        content = message.get("content")
        if role is None or hidden or not isinstance(content, dict):
            continue
        if role is Role.ASSISTANT and message.get("recipient") not in (None, "all"):
            role = Role.TOOL
        if content.get("content_type") in ("thoughts", "reasoning_recap"):
            role = Role.REASONING
        messages.add(role, _content_text(content), message.get("create_time"))
    identity = _string(value, "conversation_id") or _string(value, "id")
    return messages.found(identity or fallback, _string(value, "title"), identity)


_ROLES: Final = {"user": Role.USER, "assistant": Role.ASSISTANT, "tool": Role.TOOL}
_CONTEXT: Final = ("user_editable_context", "model_editable_context")


def _branch(value: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages from the root to the current node."""
    mapping = value.get("mapping")
    if not isinstance(mapping, dict):
        raise IngestFailed("has no 'mapping' of messages")
    at = value.get("current_node")
    if at not in mapping:
        at = _last_leaf(mapping)
    found: list[dict[str, Any]] = []
    visited: set[str] = set()
    while isinstance(at, str) and at not in visited:
        visited.add(at)  # a loop in a damaged file must end
        node = mapping.get(at)
        if not isinstance(node, dict):
            break
        message = node.get("message")
        if isinstance(message, dict):
            found.append(message)
        at = node.get("parent")
    return found[::-1]


def _last_leaf(mapping: dict[str, Any]) -> str | None:
    """The leaf that was written last."""
    leaves = [
        (message.get("create_time") or 0.0, key)
        for key, node in mapping.items()
        if isinstance(node, dict)
        and not node.get("children")
        and isinstance(message := node.get("message"), dict)
        and isinstance(message.get("create_time") or 0.0, int | float)
    ]
    return max(leaves)[1] if leaves else None


def _content_text(content: dict[str, Any]) -> str:
    if content.get("content_type") in _CONTEXT:
        return ""
    parts = content.get("parts")
    if isinstance(parts, list):
        return "\n\n".join(filter(None, map(_part_text, parts)))
    thoughts = content.get("thoughts")
    if isinstance(thoughts, list):
        return "\n\n".join(
            _string(one, "content") or "" for one in thoughts if isinstance(one, dict)
        )
    return _string(content, "text") or _string(content, "content") or ""


def _part_text(part: Any) -> str:
    """Images and sounds have no text; what was said to the model has."""
    if isinstance(part, dict):
        return _string(part, "text") or ""
    return part if isinstance(part, str) else ""


def _claude(value: dict[str, Any], fallback: str, options: TranscriptOptions) -> FoundConversation:
    written = value.get("chat_messages")
    if not isinstance(written, list):
        raise IngestFailed("has no 'chat_messages'")
    messages = MessageList(options)
    for message in written:
        if isinstance(message, dict):
            _add_claude(messages, message)
    identity = _string(value, "uuid")
    return messages.found(identity or fallback, _string(value, "name"), identity)


def _add_claude(messages: MessageList, message: dict[str, Any]) -> None:
    role = Role.USER if message.get("sender") == "human" else Role.ASSISTANT
    time, identity = message.get("created_at"), _string(message, "uuid")
    blocks = message.get("content")
    if not isinstance(blocks, list) or not blocks:
        messages.add(role, _string(message, "text") or "", time)
        return
    for block in blocks:
        if not isinstance(block, dict):
            continue
        match block.get("type"):
            case "text":
                messages.add(role, _string(block, "text") or "", time, identity)
            case "thinking":
                messages.add(Role.REASONING, _string(block, "thinking") or "", time, identity)
            case "tool_use":
                call = call_text(block.get("name"), block.get("input"))
                messages.add(Role.TOOL, call, time, identity)
            case "tool_result":
                messages.add(Role.TOOL, texts_of(block.get("content"), ("text",)), time, identity)


def _string(value: dict[str, Any], key: str) -> str | None:
    found = value.get(key)
    return found if isinstance(found, str) and found.strip() else None
