"""Source code as rows of coloured words, wrapped here so that the place of each row is known."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name, get_lexer_for_filename
from pygments.lexers.special import TextLexer
from pygments.token import (
    Comment,
    Generic,
    Keyword,
    Name,
    Number,
    Operator,
    String,
    _TokenType,
    is_token_subtype,
)
from pygments.util import ClassNotFound

COLUMNS: Final = 100
MAX_HIGHLIGHTED_CHARS: Final = 400_000
_TAB: Final = 4
_RAGGED: Final = 30
"""Columns by which a row may be shorter so that no word is split."""
_BREAKS: Final = frozenset(" \t,;:([{/|=")
_STYLES: Final[Sequence[tuple[_TokenType, str]]] = (
    (Comment, "c"),
    (String, "s"),
    (Number, "m"),
    (Keyword, "k"),
    (Operator.Word, "k"),
    (Name.Function, "f"),
    (Name.Class, "f"),
    (Name.Tag, "k"),
    (Name.Decorator, "d"),
    (Name.Builtin, "b"),
    (Generic.Heading, "k"),
    (Generic.Deleted, "m"),
    (Generic.Inserted, "s"),
)


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A visual row: its offset in the text, its HTML, and its line number if it starts a line."""

    offset: int
    html: str
    line: int | None


def lexer_for(name: str | None = None, language: str | None = None) -> Lexer:
    """By file name or by the language of a fence; plain text for unknown ones."""
    # Blank lines at the ends are kept: lines are counted.
    try:
        if language:
            return get_lexer_by_name(language, stripnl=False, ensurenl=False)
        if name:
            return get_lexer_for_filename(name, stripnl=False, ensurenl=False)
    except ClassNotFound:
        pass
    return TextLexer(stripnl=False, ensurenl=False)


def rows(lines: Sequence[tuple[int, str]], lexer: Lexer, first_line: int) -> Iterator[SourceRow]:
    """Rows of consecutive ``lines``, each with its offset in the text."""
    if not lines:
        return
    code = "\n".join(text for _, text in lines)
    plain = len(code) > MAX_HIGHLIGHTED_CHARS
    coloured = _by_line([("", code)] if plain else _coloured(code, lexer))
    for index, ((offset, _), words) in enumerate(zip(lines, coloured, strict=True)):
        yield from _wrapped(offset, words, first_line + index)


def _coloured(code: str, lexer: Lexer) -> list[tuple[str, str]]:
    tokens = list(lexer.get_tokens(code))
    styles = {kind: _style(kind) for kind in {kind for kind, _ in tokens}}
    words = [(styles[kind], text) for kind, text in tokens]
    # A lexer that changes the text (some normalise it) cannot be trusted with places.
    return words if "".join(text for _, text in words) == code else [("", code)]


def _style(kind: _TokenType) -> str:
    return next((style for parent, style in _STYLES if is_token_subtype(kind, parent)), "")


def _by_line(words: Sequence[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    line: list[tuple[str, str]] = []
    for style, text in words:
        first, *others = text.split("\n")
        line.append((style, first))
        for other in others:
            yield line
            line = [(style, other)]
    yield line


def _wrapped(offset: int, words: Sequence[tuple[str, str]], line: int) -> Iterator[SourceRow]:
    """Rows of at most ``COLUMNS`` columns."""
    text = "".join(part for _, part in words)
    if len(text) * 2 <= COLUMNS and "\t" not in text:
        yield SourceRow(offset, "".join(_span(style, part) for style, part in words), line)
        return
    starts = list(_row_starts(text))
    cuts = _cut(words, [*starts[1:], len(text)])
    for start, parts in zip(starts, cuts, strict=True):
        shown = "".join(_span(style, part) for style, part in parts)
        yield SourceRow(offset + start, shown, None if start else line)


def _row_starts(text: str) -> Iterator[int]:
    """Starts of rows: after a blank or a mark near the end of the previous row, else anywhere."""
    start = at = column = 0
    narrow = text.isascii() and "\t" not in text
    yield 0
    while at < len(text):
        if narrow and column == 0:  # each character takes a column: no need to look at them
            at = min(len(text), start + COLUMNS)
            column = at - start
            continue
        width = _width(text[at], column)
        if column + width > COLUMNS:
            near = range(at, max(start, at - _RAGGED), -1)
            start = at = next((k for k in near if text[k - 1] in _BREAKS), at)
            column = 0
            yield start
        else:
            column += width
            at += 1


def _cut(words: Sequence[tuple[str, str]], stops: Sequence[int]) -> Iterator[list[tuple[str, str]]]:
    """The words of each row, by the ends of the rows in their line; tabs become blanks."""
    row: list[tuple[str, str]] = []
    at = column = ended = 0
    for style, text in words:
        taken = 0
        while taken < len(text):
            part = text[taken : taken + stops[ended] - at]
            taken, at = taken + len(part), at + len(part)
            shown, column = _without_tabs(part, column)
            row.append((style, shown))
            if at == stops[ended] and ended + 1 < len(stops):
                yield row
                row, column, ended = [], 0, ended + 1
    yield row


def _without_tabs(text: str, column: int) -> tuple[str, int]:
    """``text`` from ``column`` on with blanks for tabs, and the column after it."""
    if "\t" not in text and text.isascii():
        return text, column + len(text)
    shown: list[str] = []
    for char in text:
        width = _width(char, column)
        shown.append(" " * width if char == "\t" else char)
        column += width
    return "".join(shown), column


def _width(char: str, column: int) -> int:
    if char == "\t":
        return _TAB - column % _TAB
    if char.isascii():
        return 1
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _span(style: str, text: str) -> str:
    escaped = html.escape(text, quote=False)
    return f'<span class="{style}">{escaped}</span>' if style and escaped else escaped
