"""Runs parsers in the sandbox and validates their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from pydantic import TypeAdapter

from latent_core.domain.chunk import SourceType
from latent_core.domain.errors import IngestFailed
from latent_workers.parse import wire
from latent_workers.parse.parsed import ParsedDocument
from latent_workers.parse.registry import parser_of
from latent_workers.parse.structured.jsonl import RecordBatch
from latent_workers.sandbox.budget import MIB, Budget
from latent_workers.sandbox.frames import FrameItem
from latent_workers.sandbox.pool import Sandbox

T = TypeVar("T")
PARSE_BUDGET: Final = Budget(cpu_seconds=120, wall_seconds=300, output_bytes=64 * MIB)
RECORDS_BUDGET: Final = Budget(cpu_seconds=60, wall_seconds=120, memory_bytes=1024 * MIB)
_BATCH: Final = TypeAdapter(RecordBatch)


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


async def read_records(
    sandbox: Sandbox,
    file: Path | int,
    *,
    offset: int = 0,
    line: int = 1,
    max_records: int = 256,
    max_bytes: int = 8 * MIB,
    budget: Budget = RECORDS_BUDGET,
) -> RecordBatch:
    """The next batch of a JSONL corpus from byte ``offset``, where line number ``line`` starts."""
    label = "the JSONL reader"
    arguments = {
        "offset": offset,
        "line": line,
        "max_records": max_records,
        "max_bytes": max_bytes,
    }
    item = await sandbox.run("records", arguments, files=[file], budget=budget, label=label)
    return _checked(lambda answer: _BATCH.validate_json(answer.value), item, label)


def _checked(check: Callable[[FrameItem], T], item: FrameItem, label: str) -> T:
    try:
        return check(item)
    except ValueError as exc:
        raise IngestFailed(f"{label} gave an inconsistent answer") from exc
