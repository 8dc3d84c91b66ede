"""Writes Markdown block by block, for sources that are not text themselves. Words cannot become markup of a block."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Final

from latent_core.domain.errors import IngestFailed

# What would make a line of words into something else.
_MARKUP: Final = re.compile(r"(?:#{1,6}(?=\s|$)|>|[-+*](?=\s|$)|=+\s*$|-{2,}\s*$|`{3,}|~{3,}|\|)")
_NUMBERED: Final = re.compile(r"(\d{1,9})([.)])(?=\s|$)")
_FENCE: Final = re.compile(r"`{3,}")
MAX_CELLS_OF_ROW: Final = 200
"""A wider table is written in words: every row would be padded to its width."""
MAX_CHARS: Final = 48_000_000
"""Of a text that is written here; as UTF-8 it must fit the output of the sandbox."""
_DEEPEST_LIST: Final = 8
_DEEPEST_HEADING: Final = 6
_MAX_REPEATED: Final = 80
"""Characters of a merged cell that every covered cell repeats; a longer one is written once."""

Grid = Sequence[Sequence[str]]


def escaped(line: str) -> str:
    """A line of words that begins no block of another kind."""
    if _MARKUP.match(line):
        return "\\" + line
    return _NUMBERED.sub(r"\1\\\2", line, count=1) if _NUMBERED.match(line) else line


def fenced(code: str, language: str = "") -> str:
    code = code.replace("\r\n", "\n").replace("\r", "\n").strip("\n").rstrip()
    if not code:
        return ""
    longest = max((len(found[0]) for found in _FENCE.finditer(code)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{code}\n{fence}"


def cell(words: str) -> str:
    return " ".join(words.split()).replace("\\", "\\\\").replace("|", "\\|")


def table(rows: Grid) -> str:
    """Rows of written cells, the first one as header."""
    return "\n".join(_lines(rows, max(map(len, rows))))


def _lines(rows: Iterable[Sequence[str]], width: int) -> Iterator[str]:
    for number, row in enumerate(rows):
        yield f"| {' | '.join([*row, *[''] * (width - len(row))])} |"
        if number == 0:
            yield f"|{' --- |' * width}"


def tidied(text: str) -> str:
    """Lines without surplus blanks, and without empty lines."""
    lines = (" ".join(line.split()) for line in text.split("\n"))
    return "\n".join(line for line in lines if line)


@dataclass(frozen=True, slots=True)
class Span:
    """A merged cell: its first row and column, and how many rows and columns it covers."""

    row: int
    column: int
    rows: int
    columns: int


def spread(rows: list[list[str]], merged: Sequence[Span]) -> None:
    """Gives each cell that a merged one covers its words, so that every row makes sense alone."""
    for span in merged:
        if span.row >= len(rows) or span.column >= len(rows[span.row]):
            continue
        words = rows[span.row][span.column]
        if not words or len(words) > _MAX_REPEATED:
            continue
        for row in rows[span.row : span.row + span.rows]:
            for column in range(span.column, min(span.column + span.columns, len(row))):
                row[column] = row[column] or words


def with_one_header(rows: Sequence[list[str]], headers: int) -> list[list[str]]:
    """The first ``headers`` rows as one: the different words of each column from top to bottom."""
    if headers < 2:
        return list(rows)
    joined = [
        " / ".join(word for above, word in pairwise(("", *column)) if word and word != above)
        for column in zip(*rows[:headers], strict=True)
    ]
    return [joined, *rows[headers:]]


@dataclass(slots=True)
class MarkdownText:
    """A text in progress. ``IngestFailed`` when it becomes longer than ``MAX_CHARS``."""

    name: str
    parts: list[str] = field(default_factory=list)
    _chars: int = 0
    _in_list: bool = False

    def heading(self, level: int, words: str) -> None:
        line = " ".join(words.split())
        if line:
            self._put(f"{'#' * min(level, _DEEPEST_HEADING)} {line}")

    def paragraph(self, words: str) -> None:
        self._put("\n".join(map(escaped, tidied(words).split("\n"))))

    def item(self, words: str, *, depth: int = 0, number: int | None = None) -> None:
        """A list item; ``depth`` from 0, ``number`` for one of an ordered list."""
        marker = "- " if number is None else f"{number}. "
        margin = "   " * min(depth, _DEEPEST_LIST)
        lines = [escaped(line) for line in tidied(words).split("\n")]
        rest = f"\n{margin}{' ' * len(marker)}"
        if any(lines):
            self._put(margin + marker + rest.join(lines), in_list=True)

    def code(self, code: str, language: str = "") -> None:
        self._put(fenced(code, language))

    def markdown(self, text: str) -> None:
        """Blocks that are Markdown already."""
        self._put(text.strip("\n"))

    def grid(self, rows: Sequence[Sequence[str]], headers: int = 1) -> None:
        """A table of plain words; one that has a single row or column, or is too wide, as paragraphs."""
        filled = [row for row in rows if any(row)]
        width = max(map(len, filled), default=0)
        if len(filled) < 2 or not 2 <= width <= MAX_CELLS_OF_ROW:
            for row in filled:
                self.paragraph("\n".join(row) if len(filled) < 2 else ", ".join(filter(None, row)))
            return
        headers = min(headers, len(filled) - 1)
        first = [[*row, *[""] * (width - len(row))] for row in filled[:headers]]
        whole = chain(with_one_header(first, headers), filled[headers:])
        # Row by row: a table may have a million cells.
        self._put("\n".join(_lines(([cell(words) for words in row] for row in whole), width)))

    def text(self) -> str:
        return "".join(self.parts).strip("\n")

    def _put(self, block: str, *, in_list: bool = False) -> None:
        if not block.strip():
            return
        self._chars += len(block)
        if self._chars > MAX_CHARS:
            raise IngestFailed(
                f"'{self.name}' has more than {MAX_CHARS:,} characters of text: split it",
                reason="size",
            )
        self.parts.append(("\n" if in_list and self._in_list else "\n\n") + block)
        self._in_list = in_list
