"""Elements of a layout: pieces of HTML with marks that map them to the source."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from latent_workers.render.rows import SourceRow

_LONG_WORD: Final = re.compile(r"\S{31,}")
_ROWS_AT_ONCE: Final = 100
BREAK: Final = "\u200b"
_MARK_CHARS: Final = 80
"""Less than a row of text, so that the end of a page is known to within a row."""
_JOINTS: Final = re.compile(r"(?<=[_./:\-=&?#,;])(?=\w)(?<!\d[.,:\-])|(?<=\d[.,:\-])(?=[^\W\d])")
"""Positions after punctuation, but not within a number, a time or a date."""


@dataclass(frozen=True, slots=True)
class Mark:
    """An element's id, and the offset in the source where its content starts."""

    id: str
    offset: int


@dataclass(frozen=True, slots=True)
class Element:
    """A piece of HTML with its marks in the order of the source."""

    html: str
    marks: tuple[Mark, ...]
    smaller: str | None = None
    """The same in small print, if ``html`` does not fit the page."""
    fallback: tuple[Element, ...] = ()
    """Used if ``smaller`` does not fit either."""


def mark_id(offset: int) -> str:
    return f"o{offset}"


def code(rows: Iterable[SourceRow], *, numbered: bool) -> Iterator[Element]:
    """Rows of code in blocks that are small enough for the layout."""
    remaining_rows = iter(rows)
    batch = list(islice(remaining_rows, _ROWS_AT_ONCE))
    while batch:
        following = list(islice(remaining_rows, _ROWS_AT_ONCE))
        yield _code(batch, numbered, last=not following)
        batch = following


def _code(rows: list[SourceRow], numbered: bool, *, last: bool) -> Element:
    shown = "".join(
        f'<div id="{mark_id(row.offset)}">{_number(row) if numbered else ""}{row.html or "&#160;"}</div>'
        for row in rows
    )
    marks = tuple(Mark(mark_id(row.offset), row.offset) for row in rows)
    look = ("file" if numbered else "fence") + (" last" if last else "")
    return Element(f'<pre class="{look}">{shown}</pre>', marks)


def _number(row: SourceRow) -> str:
    return f'<span class="n">{"" if row.line is None else row.line:>5}</span>  '


def prose(lines: Iterable[tuple[int, str]]) -> Iterator[Element]:
    """Lines of plain text; a very long line becomes several elements."""
    batch: list[str] = []
    marks: list[Mark] = []
    for offset, text in lines:
        for start, part in _parts(text):
            identity = mark_id(offset + start)
            shown, inner = _marked(part, offset + start)
            batch.append(f'<div class="line" id="{identity}">{shown or "&#160;"}</div>')
            marks += [Mark(identity, offset + start), *inner]
        if len(batch) >= _ROWS_AT_ONCE:
            yield Element("".join(batch), tuple(marks))
            batch, marks = [], []
    if batch:
        yield Element("".join(batch), tuple(marks))


def _parts(text: str, size: int = 1500) -> Iterator[tuple[int, str]]:
    start = 0
    while len(text) - start > size:
        stop = text.rfind(" ", start + size // 2, start + size) + 1 or start + size
        yield start, text[start:stop]
        start = stop
    yield start, text[start:]


def _marked(text: str, offset: int) -> tuple[str, list[Mark]]:
    """``text`` as HTML, with a mark about every row: where a page ends is then known within a line, too."""
    pieces = [text[start:end] for start, end in mark_spans(text)]
    shown = [html.escape(softened(piece), quote=False) for piece in pieces]
    marks: list[Mark] = []
    for number in range(1, len(pieces)):
        offset += len(pieces[number - 1])
        marks.append(Mark(mark_id(offset), offset))
        shown[number] = f'<span id="{mark_id(offset)}">{shown[number]}</span>'
    return "".join(shown), marks


def mark_spans(text: str) -> Iterator[tuple[int, int]]:
    """Parts of ``text`` that begin with a word, of at least ``_MARK_CHARS``; the last one may be shorter."""
    start = 0
    while (space := text.find(" ", start + _MARK_CHARS)) >= 0:
        yield start, space + 1
        start = space + 1
    yield start, len(text)


def softened(text: str, *, narrow: bool = False) -> str:
    """``text`` with invisible break positions in words that are too long for a line."""
    if narrow:
        text = _JOINTS.sub(BREAK, text)
        return re.sub(r"\w{15,}", _broken, text)
    return _LONG_WORD.sub(_broken, text)


def _broken(match: re.Match[str]) -> str:
    word = match[0]
    return BREAK.join(word[at : at + 12] for at in range(0, len(word), 12))
