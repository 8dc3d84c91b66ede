"""The tables of a grid: regions between empty rows, each with its header."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from latent_core.domain.errors import IngestFailed
from latent_workers.parse.text.compose import MarkdownText, Span, spread

MAX_CELLS: Final = 1_000_000
"""Filled cells of a file."""
_MAX_HEADERS: Final = 4


def too_many_cells(name: str) -> IngestFailed:
    return IngestFailed(
        f"'{name}' has more than {MAX_CELLS:,} filled cells: split it, or keep the part that people search",
        reason="size",
    )


def write(text: MarkdownText, rows: list[list[str]], merged: Sequence[Span] = ()) -> None:
    """Every region of ``rows``: lines with one value above it as paragraphs, the rest as a table."""
    titles = {at for at, row in enumerate(rows) if sum(1 for words in row if words) == 1}
    spread(rows, merged)
    for first, end in _runs(rows):
        while end - first > 1 and first in titles and len(set(filter(None, rows[first]))) == 1:
            text.paragraph(next(words for words in rows[first] if words))
            first += 1
        region = rows[first:end]
        used = [
            at for at in range(max(map(len, region))) if any(at < len(r) and r[at] for r in region)
        ]
        left, right = used[0], used[-1] + 1
        headers = _headers([replace(span, row=span.row - first) for span in merged], end - first)
        text.grid([row[left:right] for row in region], headers)


def _runs(rows: Sequence[Sequence[str]]) -> Iterator[tuple[int, int]]:
    """Start and end of the runs of rows that are not empty."""
    first: int | None = None
    for at, row in enumerate((*rows, ())):
        if any(row):
            first = at if first is None else first
        elif first is not None:
            yield first, at
            first = None


def _headers(merged: Sequence[Span], rows: int) -> int:
    """Rows of the header: a merged cell in it has the names of its columns below, or is as high as all of it."""
    count = 1
    for span in sorted(merged, key=lambda span: span.row):
        if 0 <= span.row < count:
            count = max(count, span.row + (span.rows if span.columns == 1 else span.rows + 1))
    return count if count <= min(_MAX_HEADERS, rows - 1) else 1
