"""The stored form of a conversation as text: one block per turn, below a line with its speaker and time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from latent_core.domain.chunk import BlockType
from latent_core.domain.conversation import Conversation, Message, read_conversation
from latent_core.domain.errors import IngestFailed, Invalid
from latent_workers.parse.parsed import ParsedDocument, SourceFile, TextBlock


def parse(source: SourceFile) -> ParsedDocument:
    try:
        conversation = read_conversation(source.read())
    except Invalid as exc:
        raise IngestFailed(f"'{source.name}' is {exc.message}") from exc
    return of_conversation(conversation)


def of_conversation(conversation: Conversation) -> ParsedDocument:
    """A block's heading path is its speaker and, where it is known, the time of the turn (ISO 8601)."""
    blocks = tuple(_blocks(conversation))
    return ParsedDocument(
        text="\n\n".join(block.text for block in blocks),
        title=conversation.title,
        blocks=blocks,
        meta=_meta(conversation),
    )


def _blocks(conversation: Conversation) -> Iterator[TextBlock]:
    at, line = 0, 1
    for message in conversation.messages:
        text = f"{heading(message)}:\n{message.content.strip()}"
        last_line = line + len(text.splitlines()) - 1
        times = [message.time.isoformat()] if message.time is not None else []
        yield TextBlock(
            BlockType.PARAGRAPH,
            text,
            at,
            at + len(text),
            line,
            last_line,
            heading_path=(message.speaker, *times),
        )
        at += len(text) + 2
        line = last_line + 2


def heading(message: Message) -> str:
    """The line above a turn: its speaker and time."""
    return message.speaker if message.time is None else f"{message.speaker} ({clock(message.time)})"


def clock(time: datetime) -> str:
    """A time as it is shown, in UTC."""
    return f"{time:%Y-%m-%d %H:%M}"


def _meta(conversation: Conversation) -> dict[str, Any]:
    meta: dict[str, Any] = {"messages": len(conversation.messages)}
    if conversation.session is not None:
        meta["session"] = conversation.session
    times = [message.time for message in conversation.messages if message.time is not None]
    if times:
        meta["date"] = min(times).isoformat()
    return meta
