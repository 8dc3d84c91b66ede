"""Runs parsers in the sandbox and validates their results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Final, TypeVar

from pydantic import TypeAdapter

from latent_core.domain.chunk import SourceType
from latent_core.domain.conversation import read_conversation
from latent_core.domain.errors import IngestFailed, Invalid
from latent_core.domain.page_words import PageWord, PageWords
from latent_workers.parse import wire
from latent_workers.parse.conversation.messages import (
    FoundConversation,
    TranscriptOptions,
    UnreadPart,
)
from latent_workers.parse.conversation.recognise import ConversationFormat
from latent_workers.parse.parsed import ParsedDocument
from latent_workers.parse.registry import parser_of
from latent_workers.parse.structured.jsonl import RecordBatch
from latent_workers.sandbox.budget import MIB, Budget
from latent_workers.sandbox.frames import FrameItem
from latent_workers.sandbox.pool import Sandbox

T = TypeVar("T")
PARSE_BUDGET: Final = Budget(cpu_seconds=120, wall_seconds=300, output_bytes=64 * MIB)
RECORDS_BUDGET: Final = Budget(cpu_seconds=60, wall_seconds=120, memory_bytes=1024 * MIB)
WORDS_BUDGET: Final = Budget(cpu_seconds=20, wall_seconds=30, output_bytes=16 * MIB)
"""Of one page, for which a user waits."""
UNLOCK_BUDGET: Final = Budget(cpu_seconds=60, wall_seconds=180)
CONVERSATIONS_BUDGET: Final = Budget(
    cpu_seconds=300, wall_seconds=600, memory_bytes=2048 * MIB, output_bytes=512 * MIB
)
_BATCH: Final = TypeAdapter(RecordBatch)
_IDENTITY: Final = TypeAdapter(str)
_UNREAD: Final = TypeAdapter(UnreadPart)


async def parse_file(
    sandbox: Sandbox,
    file: Path | int,
    *,
    name: str,
    source_type: SourceType,
    max_pages: int = 1000,
    charset: str | None = None,
    sanitize_rules: Sequence[str] = (),
    budget: Budget = PARSE_BUDGET,
) -> ParsedDocument:
    """Parse one file (a path, or an open descriptor that the caller closes).

    ``IngestFailed`` says why it cannot be ingested: the parser's message, or how it ended.
    """
    label = parser_of(source_type).label
    arguments = {
        "name": name,
        "source_type": source_type,
        "max_pages": max_pages,
        "charset": charset,
        "sanitize_rules": list(sanitize_rules),
    }
    item = await sandbox.run("parse", arguments, files=[file], budget=budget, label=label)
    return _checked(wire.unpack, item, label)


async def unlock_file(
    sandbox: Sandbox,
    file: Path | int,
    *,
    name: str,
    password: str,
    into: IO[bytes],
    budget: Budget = UNLOCK_BUDGET,
) -> bool:
    """Write ``file`` without its encryption; returns False, and writes nothing, if it has none. ``IngestFailed`` if
    the password is wrong."""
    label = "the decryption"
    arguments = {"name": name, "password": password}
    is_encrypted = False
    task = sandbox.stream("unlock", arguments, files=[file], budget=budget, label=label)
    async with task as items:
        async for item in items:
            await asyncio.to_thread(into.write, item.attachment)
            is_encrypted = True
    await asyncio.to_thread(into.flush)
    return is_encrypted


async def page_words(
    sandbox: Sandbox,
    file: Path | int,
    *,
    name: str,
    number: int,
    budget: Budget = WORDS_BUDGET,
) -> tuple[PageWord, ...]:
    """The words of page ``number`` of a PDF, from 1, with their boxes. ``IngestFailed`` says why they cannot be read."""
    label = "the PDF reader"
    arguments = {"name": name, "number": number}
    item = await sandbox.run("page_words", arguments, files=[file], budget=budget, label=label)
    return _checked(lambda answer: PageWords.validate_json(answer.value), item, label)


async def read_records(
    sandbox: Sandbox,
    file: Path | int,
    *,
    offset: int = 0,
    line: int = 1,
    max_records: int = 256,
    max_bytes: int = 8 * MIB,
    conversations: bool = False,
    mailbox: bool = False,
    budget: Budget = RECORDS_BUDGET,
) -> RecordBatch:
    """The next batch of a JSONL corpus, or of a ``mailbox``, from byte ``offset``, where line number ``line`` starts."""
    label = "the reader of mailboxes" if mailbox else "the JSONL reader"
    arguments: dict[str, Any] = {
        "mailbox": mailbox,
        "offset": offset,
        "line": line,
        "max_records": max_records,
        "max_bytes": max_bytes,
        **({} if mailbox else {"conversations": conversations}),
    }
    item = await sandbox.run("records", arguments, files=[file], budget=budget, label=label)
    return _checked(lambda answer: _BATCH.validate_json(answer.value), item, label)


@asynccontextmanager
async def read_conversations(
    sandbox: Sandbox,
    file: Path | int,
    *,
    name: str,
    written_as: ConversationFormat,
    options: TranscriptOptions,
    budget: Budget = CONVERSATIONS_BUDGET,
) -> AsyncIterator[AsyncIterator[FoundConversation | UnreadPart]]:
    """The conversations of a transcript or an export one by one, and what of it cannot be read. ``IngestFailed``
    while iterating says why it cannot go on."""
    label = "the reader of conversations"
    arguments = {"name": name, "format": written_as, "options": asdict(options)}
    task = sandbox.stream("conversations", arguments, files=[file], budget=budget, label=label)
    async with task as items:
        yield (_checked(_outcome, item, label) async for item in items)


def _outcome(item: FrameItem) -> FoundConversation | UnreadPart:
    if item.attachment:
        identity = _IDENTITY.validate_json(item.value)
        return FoundConversation(identity, read_conversation(bytes(item.attachment)))
    return _UNREAD.validate_json(item.value)


def _checked(check: Callable[[FrameItem], T], item: FrameItem, label: str) -> T:
    try:
        return check(item)
    except (ValueError, Invalid) as exc:
        raise IngestFailed(f"{label} gave an inconsistent answer") from exc
