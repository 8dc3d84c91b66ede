"""Parsing in the sandbox's children."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, BinaryIO

from latent_core.domain.chunk import SourceType
from latent_workers.parse import wire
from latent_workers.parse.conversation.messages import TranscriptOptions, UnreadPart
from latent_workers.parse.conversation.readers import READERS
from latent_workers.parse.conversation.recognise import ConversationFormat
from latent_workers.parse.parsed import SourceFile
from latent_workers.parse.registry import parser_of
from latent_workers.parse.structured import jsonl
from latent_workers.sandbox.frames import TaskOutput


def parse(arguments: dict[str, Any], files: Sequence[BinaryIO]) -> Iterator[TaskOutput]:
    """The fields of ``SourceFile`` and the file; yields one packed ``Parsed``."""
    source_type = SourceType(arguments["source_type"])
    source = SourceFile(
        name=arguments["name"],
        file=files[0],
        source_type=source_type,
        max_pages=arguments["max_pages"],
        charset=arguments.get("charset"),
        sanitize_rules=tuple(arguments.get("sanitize_rules", ())),
    )
    parser = importlib.import_module(parser_of(source_type).module)
    yield wire.pack(parser.parse(source))


def records(arguments: dict[str, Any], files: Sequence[BinaryIO]) -> Iterator[TaskOutput]:
    """The arguments of ``jsonl.read_batch``, or with ``mailbox`` those of ``mailbox.read_batch``, and the file; yields
    one batch."""
    if arguments.pop("mailbox"):
        # Here, since no other source needs the readers of mail.
        from latent_workers.parse.mail import mailbox

        yield TaskOutput(asdict(mailbox.read_batch(files[0], **arguments)))
    else:
        yield TaskOutput(asdict(jsonl.read_batch(files[0], **arguments)))


def page_words(arguments: dict[str, Any], files: Sequence[BinaryIO]) -> Iterator[TaskOutput]:
    """``name``, ``number`` and the PDF; yields the words of that page."""
    # Here, since no other source needs MuPDF.
    from latent_workers.parse.pdf import words

    found = words.page_words(files[0], arguments["name"], arguments["number"])
    yield TaskOutput([list(word) for word in found])


def conversations(arguments: dict[str, Any], files: Sequence[BinaryIO]) -> Iterator[TaskOutput]:
    """``name``, ``format``, ``options`` and the file; one item per conversation, with the stored form attached, and one
    per part that cannot be read."""
    read = READERS[ConversationFormat(arguments["format"])]
    options = TranscriptOptions(**arguments["options"])
    for outcome in read(files[0], arguments["name"], options):
        if isinstance(outcome, UnreadPart):
            yield TaskOutput(asdict(outcome))
        else:
            yield TaskOutput(outcome.id, outcome.conversation.encode())
