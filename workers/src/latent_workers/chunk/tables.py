"""Tables: row groups that make sense alone, and their text for the embedder."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from latent_workers.chunk.counting import WordCounter

_LINE: Final = re.compile(r"[^\r\n]+")
_DELIMITER: Final = re.compile(r"[\s>]*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*")
_CELL_END: Final = re.compile(r"(?<!\\)\|")
_QUOTE: Final = re.compile(r"^[\s>]*")
_MARKUP: Final = re.compile(r"[*`]+|(?<!\w)_+|_+(?!\w)|<br\s*/?>")
_LINK: Final = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_MARKED: Final = re.compile(r"[*`_<\\\[]")
_MAX_CELL_CHARS = 400
_LINES_AT_ONCE = 8
_ID_CHARS = 16
_MAX_HEADER: Final = 32

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class MarkdownTable:
    """A Markdown table by the offsets of its rows; the header is the first row with its delimiter, if there is one."""

    text: str
    header: tuple[Span, ...]
    rows: tuple[Span, ...]

    @property
    def head(self) -> str:
        """The header with its line end; empty for a table without one."""
        after = self.rows[0][0] if self.rows else self.header[-1][1]
        return self.text[self.header[0][0] : after] if self.header else ""

    def columns(self) -> list[str]:
        return cells(self.text[slice(*self.header[0])]) if self.header else []


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows ``first`` to ``last`` of a table, from 0. The first group also contains the header."""

    table: MarkdownTable
    first: int
    last: int
    number: int | None = None
    """``None`` when the table is whole."""
    repeated: str = ""
    """The header, for groups that do not contain it."""

    @property
    def span(self) -> Span:
        """From the header (first group) or the first row to the end of the last row."""
        top = self.table.header if self.first == 0 else ()
        lines = (*top, *self.table.rows[self.first : self.last + 1])
        return lines[0][0], lines[-1][1]


def read(text: str, start: int, end: int) -> MarkdownTable:
    lines = tuple(match.span() for match in _LINE.finditer(text, start, end))
    has_header = len(lines) > 1 and _DELIMITER.fullmatch(text, *lines[1]) is not None
    top = 2 if has_header else 0
    return MarkdownTable(text, lines[:top], lines[top:])


def groups(
    table: MarkdownTable, max_rows: int, max_tokens: int, counter: WordCounter
) -> Iterator[RowGroup]:
    """Groups of at most ``max_rows`` rows that fit ``max_tokens`` tokens with the header; at least one row.

    A header takes at most half of the budget; a longer header is not repeated, or a table that consists of its
    header would grow with its rows.
    """
    # The line of dashes below the header says nothing and is not counted.
    lines = [*table.header[:1], *table.rows]
    costs = counter.count([table.text[slice(*line)] for line in lines])
    head_cost = costs.pop(0) if table.header else 0
    repeated = table.head if head_cost <= _MAX_HEADER * max_tokens else ""
    cuts = _cuts(costs, max_rows, max_tokens - min(head_cost, max_tokens // 2))
    if len(cuts) == 1:
        yield RowGroup(table, 0, len(costs) - 1)
        return
    for number, (first, after) in enumerate(zip(cuts, [*cuts[1:], len(costs)], strict=True)):
        yield RowGroup(table, first, after - 1, number, repeated if first else "")


def _cuts(costs: Sequence[int], max_rows: int, max_tokens: int) -> list[int]:
    """The first row of each group."""
    cuts = [0]
    total = 0
    for index, cost in enumerate(costs):
        if index > cuts[-1] and (total + cost > max_tokens or index - cuts[-1] >= max_rows):
            cuts.append(index)
            total = 0
        total += cost
    return cuts


def identity(table: MarkdownTable, path: Sequence[str], occurrence: int) -> str:
    """Id of a table in its document: the same for all its groups, and stable when rows are added."""
    named = "\n".join([*path, table.head, str(occurrence)])
    return hashlib.sha256(named.encode("utf-8")).hexdigest()[:_ID_CHARS]


def cells(line: str) -> list[str]:
    """The words of each cell of a row, without markup."""
    inner = _QUOTE.sub("", line).rstrip()
    inner = inner.removeprefix("|")
    if inner.endswith("|") and not inner.endswith("\\|"):
        inner = inner[:-1]
    if _MARKED.search(inner):
        return [_plain(cell) for cell in _CELL_END.split(inner)]
    return [" ".join(cell.split())[:_MAX_CELL_CHARS] for cell in inner.split("|")]


def _plain(cell: str) -> str:
    cell = cell[: _MAX_CELL_CHARS * 4].replace("\\|", "|")
    plain = _MARKUP.sub(" ", _LINK.sub(r"\1", cell))
    return " ".join(plain.split())[:_MAX_CELL_CHARS]


def summary(group: RowGroup, context: Iterable[str]) -> Iterator[str]:
    """Lines for the embedder, most important first: the place of the table, its columns, its rows."""
    yield from context
    table = group.table
    columns = [column for column in table.columns() if column]
    count = len(table.rows)
    part = f"rows {group.first + 1} to {group.last + 1} of {count}"
    extent = f"{count} rows" if group.number is None else part
    yield f"Table with columns {', '.join(columns)}; {extent}." if columns else f"Table; {extent}."
    for start, end in table.rows[group.first : group.last + 1]:
        yield ", ".join(value for value in cells(table.text[start:end]) if value)


def fitted(lines: Iterable[str], max_tokens: int, counter: WordCounter) -> str:
    """As many of ``lines`` as fit; the first that does not fit is shortened by words."""
    kept: list[str] = []
    left = max_tokens
    remaining_lines = iter(lines)
    while left >= 0 and (batch := list(islice(remaining_lines, _LINES_AT_ONCE))):
        for line, cost in zip(batch, counter.count(batch), strict=True):
            kept.append(line if cost <= left else _shortened(line, left, counter))
            left -= cost
            if left < 0:
                break
    return _surely("\n".join(filter(None, kept)), max_tokens, counter)


def _shortened(line: str, max_tokens: int, counter: WordCounter) -> str:
    words = line.split()
    kept = 0
    for cost in counter.count(words):
        if cost > max_tokens:
            break
        max_tokens -= cost
        kept += 1
    return " ".join(words[:kept])


def _surely(text: str, max_tokens: int, counter: WordCounter) -> str:
    """For tokenizers that count a whole as more than its parts."""
    while text and (count := counter.count([text])[0]) > max_tokens:
        text = text[: len(text) * max_tokens // count].rstrip()
    return text
