"""What the readers of all formats share: messages as they find them, and conversations within bounds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from latent_core.domain.conversation import (
    MAX_MESSAGE_CHARS,
    MAX_NAME_CHARS,
    Conversation,
    Role,
    read_conversation,
)
from latent_core.domain.errors import IngestFailed, Invalid

TITLE_CHARS: Final = 80
_CUT: Final = " […]"
_COLOURS: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_UNSTORABLE: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class TranscriptOptions:
    """What is kept besides the messages of people and models."""

    tools: bool = False
    reasoning: bool = False

    def keeps(self, role: Role) -> bool:
        if role is Role.TOOL:
            return self.tools
        return self.reasoning if role is Role.REASONING else role is not Role.SYSTEM


@dataclass(frozen=True, slots=True)
class FoundConversation:
    """A conversation of a file with its id there."""

    id: str
    conversation: Conversation


@dataclass(frozen=True, slots=True)
class UnreadPart:
    """A malformed line, or a conversation of an export that cannot be read."""

    number: int
    """Of the line or of the conversation, from 1."""
    message: str


@dataclass(slots=True)
class MessageList:
    """Collects the messages of one conversation."""

    options: TranscriptOptions
    messages: list[dict[str, Any]] = field(default_factory=list)
    _last_part: str | None = None

    def add(self, role: Role, content: str, time: Any = None, part_of: str | None = None) -> None:
        """Skips what the options do not keep. A text that continues the last one (``part_of`` the same id, same role)
        is joined with it; calls of tools stay apart."""
        text = clean_text(content)
        if not self.options.keeps(role) or not text:
            return
        if role is Role.TOOL:
            part_of = None
        last = self.messages[-1] if self.messages else None
        if part_of and last and part_of == self._last_part and last["role"] == role.value:
            text = f"{last['content']}\n\n{text}"
            self.messages.pop()
            moment = last.get("time")
        else:
            moment = moment_of(time)
        self.messages.append(
            {"role": role.value, "content": _bounded(text), **({"time": moment} if moment else {})}
        )
        self._last_part = part_of

    def found(self, identity: str, title: str | None, session: str | None) -> FoundConversation:
        """``IngestFailed`` without messages, and beyond the bounds of a conversation."""
        if not self.messages:
            raise IngestFailed("has no messages of people or models")
        try:
            conversation = read_conversation(
                {
                    "title": one_line(title or "") or self._first_words(),
                    "session": one_line(session or "")[:MAX_NAME_CHARS] or None,
                    "messages": self.messages,
                }
            )
        except Invalid as exc:
            raise IngestFailed(f"is {exc.message}") from exc
        return FoundConversation(identity, conversation)

    def _first_words(self) -> str:
        first = next((m for m in self.messages if m["role"] == Role.USER.value), self.messages[0])
        return one_line(first["content"][: 4 * TITLE_CHARS])[:TITLE_CHARS]


def clean_text(text: str) -> str:
    """``text`` without the control characters of terminals."""
    return _UNSTORABLE.sub("", _COLOURS.sub("", text)).strip()


def one_line(text: str) -> str:
    return " ".join(clean_text(text).split())[:500]


def _bounded(text: str) -> str:
    if len(text) <= MAX_MESSAGE_CHARS:
        return text
    return text[: MAX_MESSAGE_CHARS - len(_CUT)] + _CUT


def moment_of(value: Any) -> str | None:
    """A time as ISO 8601: from that or from seconds since 1970; None if it is neither."""
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            moment = datetime.fromtimestamp(value, UTC)
        else:
            return None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()
    except (ValueError, OverflowError, OSError):
        return None


def texts_of(content: Any, kinds: Sequence[str]) -> str:
    """The texts of the blocks of these kinds; a plain text is a block of kind ``text``."""
    if isinstance(content, str):
        return content if "text" in kinds else ""
    if not isinstance(content, list):
        return ""
    blocks = (one for one in content if isinstance(one, dict) and one.get("type") in kinds)
    return "\n\n".join(text for one in blocks if isinstance(text := one.get("text"), str))


def call_text(name: Any, arguments: Any) -> str:
    """A call of a tool in one line."""
    written = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
    return f"{name}: {written}"
