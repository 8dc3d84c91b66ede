"""The text of a document from its chunks, in parts that fit a budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from latent_core.db.connection import Connection
from latent_core.db.documents import chunk_listing
from latent_core.db.documents.chunk_listing import ChunkRow, ChunkSelection
from latent_core.domain import cursors
from latent_core.domain.chunk import Modality, SourceType
from latent_core.domain.errors import Invalid
from latent_gateway.mcp.results import longest, size

CHUNKS_PER_READ: Final = 50
MAX_READS: Final = 40
SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """The position to continue: a chunk, and the number of its characters already read."""

    chunk_no: int
    skip: int = 0

    def encoded(self) -> str:
        return cursors.encode(f"{self.chunk_no}:{self.skip}")


@dataclass(frozen=True, slots=True)
class TextPiece:
    text: str
    next_place: ReadPosition | None
    """None at the end."""


def place_of(cursor: str) -> ReadPosition:
    """Raises ``Invalid`` for a foreign cursor."""
    chunk_no, _, skip = cursors.decode(cursor).partition(":")
    if not (chunk_no.isdecimal() and skip.isdecimal() and len(chunk_no) < 19 and len(skip) < 10):
        raise Invalid(
            "invalid cursor: it does not come from this API. Start again without a cursor"
        )
    return ReadPosition(int(chunk_no), int(skip))


@dataclass(frozen=True, slots=True)
class ChunkSpan:
    """The chunks of a section."""

    first: int
    """chunk_no"""
    last: int


async def read(
    conn: Connection,
    container_id: str,
    doc_id: UUID,
    *,
    begin: ReadPosition | None,
    max_bytes: int,
    page: int | None = None,
    span: ChunkSpan | None = None,
) -> TextPiece:
    """The document's text from ``begin`` on; the overlap of neighbouring chunks appears once. Only that of a page, or of
    the chunks in ``span``."""
    selection = ChunkSelection(doc_id=doc_id, page=page)
    written = _TextSoFar(max_bytes)
    after = -1 if begin is None else begin.chunk_no - 1
    if span is not None:
        after = max(after, span.first - 1)
    for number in range(MAX_READS):
        found = await chunk_listing.find(
            conn, container_id, selection, after=after, limit=CHUNKS_PER_READ, seconds=SECONDS
        )
        if number == 0 and begin is not None:
            _check_unchanged(found.rows, begin)
        for row in found.rows:
            if span is not None and row.chunk_no > span.last:
                return TextPiece(written.text, None)
            resumes_here = begin is not None and row.chunk_no == begin.chunk_no
            if _shows_a_page(row) and not resumes_here:
                continue
            stopped = written.add(row, begin.skip if begin and resumes_here else 0)
            if stopped is not None:
                return TextPiece(written.text, stopped)
        if found.more_after is None:
            return TextPiece(written.text, None)
        after = found.more_after
    return TextPiece(written.text, ReadPosition(after + 1))


async def read_lines(
    conn: Connection, container_id: str, doc_id: UUID, first: int, last: int, max_bytes: int
) -> tuple[str, int | None]:
    """The lines ``first`` to ``last`` of a document with lines, as many as fit; and the first one that did not fit."""
    selection = ChunkSelection(doc_id=doc_id)
    lines: dict[int, str] = {}
    after = -1
    for _ in range(MAX_READS):
        found = await chunk_listing.find(
            conn, container_id, selection, after=after, limit=CHUNKS_PER_READ, seconds=SECONDS
        )
        for row in found.rows:
            if row.line_start is None or row.modality != Modality.TEXT:
                continue
            for number, line in enumerate(row.text.split("\n"), row.line_start):
                if first <= number <= last:
                    lines.setdefault(number, line)
        past = bool(found.rows) and (found.rows[-1].line_start or 0) > last
        if found.more_after is None or past:
            break
        after = found.more_after
    left = max_bytes
    for number in sorted(lines):
        left -= size(lines[number]) + 2
        if left < 0:
            return _joined({n: lines[n] for n in lines if n < number}), number
    return _joined(lines), None


def _joined(lines: dict[int, str]) -> str:
    return "\n".join(lines[number] for number in sorted(lines))


def _shows_a_page(row: ChunkRow) -> bool:
    """Whether it is an image chunk of a page, whose text the earlier chunks have."""
    return (row.modality, row.source_type == SourceType.IMAGE) == (Modality.IMAGE, False)


def _check_unchanged(rows: list[ChunkRow], begin: ReadPosition) -> None:
    """Chunk numbers are never reused: another first number means another version of the document."""
    if not rows or rows[0].chunk_no != begin.chunk_no:
        raise Invalid(
            "the document has changed since this cursor was created: start again without it"
        )


class _TextSoFar:
    """The text so far."""

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes
        self._parts: list[str] = []
        self._last: ChunkRow | None = None

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def add(self, row: ChunkRow, skip: int) -> ReadPosition | None:
        """Add a chunk; returns the position to continue if it does not fit."""
        shared = skip or (_shared(self._last, row) if self._last else 0)
        between = _between(self._last, row, shared) if self._parts else ""
        rest = between + row.text[shared:]
        needed = size(rest) - 2
        if needed <= self._left:
            self._parts.append(rest)
            self._left -= needed
            self._last = row
            return None
        taken = _beginning(rest, self._left)
        if not self._parts and not taken:
            taken = rest[:1]  # always advance, even with a tiny budget
        if len(taken) <= len(between):
            return ReadPosition(row.chunk_no, shared)
        self._parts.append(taken)
        return ReadPosition(row.chunk_no, shared + len(taken) - len(between))


def _shared(last: ChunkRow, row: ChunkRow) -> int:
    """Characters at the start of the chunk that the previous chunk ended with."""
    overlap = last.offset_end - row.offset_start
    if not 0 < overlap < len(row.text):
        return 0
    return overlap if last.text.endswith(row.text[:overlap]) else 0


def _between(last: ChunkRow | None, row: ChunkRow, shared: int) -> str:
    """Line ends in place of characters that the chunker dropped."""
    if last is None or shared:
        return ""
    gap = row.offset_start - last.offset_end
    return "\n" * min(gap, 2) if 0 <= gap <= 2 else "\n\n"


def _beginning(text: str, budget: int) -> str:
    """The part that fits, cut at a word if possible."""
    head = longest(text, budget)
    word = max(head.rfind(" "), head.rfind("\n")) + 1
    return head[:word] if word > len(head) // 2 else head
