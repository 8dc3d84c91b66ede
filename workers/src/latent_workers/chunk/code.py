"""Source code in windows of lines: one per definition; other lines and long definitions in overlapping windows, which
end where a definition ends if possible."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, islice, takewhile
from operator import sub
from typing import Any, Final

from latent_core.domain.chunk import BlockType, DraftChunk, SourcePlace, SourceType
from latent_core.domain.ids import content_hash
from latent_workers.chunk.counting import WordCounter
from latent_workers.chunk.structure import under
from latent_workers.parse.parsed import ParsedDocument, TextBlock
from latent_workers.parse.text.lines import Lines

CHARS_PER_LINE: Final = 120
"""Characters per line of a window's limit: generated code has lines of any length."""
_OVERLAP_SHARE: Final = 4
"""The overlap takes at most this fraction of those characters."""
_MAX_SYMBOLS: Final = 50
_MAX_TAIL: Final = 3
"""Filled lines after a definition that belong to its window: the end of a class, a decorated name."""
_BLANK, _ANYWHERE = 98, 99
"""Ranks below those of all definitions."""
_STEPS: Final = re.compile(r"::|[.:]")
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+")
_BREAKS: Final = re.compile(r"[\s;,{}()\[\]]")

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class WindowLimits:
    """Maximum lines of a window, and lines that neighbours share."""

    lines: int
    overlap: int

    @property
    def chars(self) -> int:
        return self.lines * CHARS_PER_LINE

    @property
    def shared(self) -> int:
        """At most half of the lines: windows that share more would hardly advance."""
        return min(self.overlap, self.lines // 2)


def chunk_code(
    parsed: ParsedDocument, limits: WindowLimits, budget_tokens: int, counter: WordCounter
) -> list[DraftChunk]:
    """Chunks in text order. The embedder reads a window below the names of its definition, the last one in words, but
    not below the file name: renaming a file must not change its vectors."""
    windows = list(_Cutter(parsed, limits).windows())
    texts = [parsed.text[w.place.offset_start : w.place.offset_end] for w in windows]
    embedded = [
        under(window.above, text, budget_tokens, counter)
        for window, text in zip(windows, texts, strict=True)
    ]
    counts = counter.count(embedded)
    language = parsed.meta.get("code_language")
    return [
        DraftChunk(
            text=text,
            embed_text=embed_text,
            place=window.place,
            source_type=SourceType.CODE,
            block_type=BlockType.CODE,
            content_hash=content_hash(text),
            token_count=tokens,
            meta=_meta(language, window),
        )
        for window, text, embed_text, tokens in zip(windows, texts, embedded, counts, strict=True)
    ]


def _meta(language: str | None, window: _Window) -> dict[str, Any]:
    meta: dict[str, Any] = {}
    if language:
        meta["code_language"] = language
    if window.symbols:
        meta["symbols"] = list(window.symbols)
    if window.symbol:
        *parents, meta["symbol"] = window.symbol
        meta["parents"] = parents
        if not window.begins:
            meta["continued"] = True
    return meta


@dataclass(frozen=True, slots=True)
class _Window:
    place: SourcePlace
    above: tuple[str, ...]
    """What the embedder reads above it."""
    symbols: tuple[str, ...]
    """The definition that it is part of, and those that begin in it."""
    begins: bool
    """Whether the definition starts in it."""
    symbol: tuple[str, ...]
    """The names of the definition that it is, or is part of, below those around it."""


class _Cutter:
    """The windows of one file, over its rows: lines, and parts of lines that are too long for a window."""

    def __init__(self, parsed: ParsedDocument, limits: WindowLimits) -> None:
        self._text = parsed.text
        self._limits = limits
        self._blocks = parsed.blocks
        self._firsts = [block.line_start or 1 for block in parsed.blocks]
        lines = Lines(parsed.text)
        self._rows = lines.spans()
        self._sizes = _sizes(self._rows)
        self._numbers: Sequence[int] = range(1, len(self._rows) + 1)
        if max(map(sub, self._sizes[1:], self._sizes), default=0) <= limits.chars:
            self._filled = lines.filled()
        else:
            self._cut_long_lines()
        self._ranks = self._ranked()
        self._after = len(self._rows)
        """The end row of the part that is being split."""

    def _cut_long_lines(self) -> None:
        """Rows of a file in which some lines are too long for a window."""
        rows: list[Span] = []
        numbers: list[int] = []
        for number, line in enumerate(self._rows, start=1):
            pieces = _pieces(self._text, line, self._limits.chars)
            rows += pieces
            numbers += [number] * len(pieces)
        self._rows, self._numbers, self._sizes = rows, numbers, _sizes(rows)
        self._filled = [bool(self._text[start:end].strip()) for start, end in rows]

    def windows(self) -> Iterator[_Window]:
        for first, after in self.spans():
            line, last = self._numbers[first], self._numbers[after - 1]
            inside = self._inside(line, last)
            place = SourcePlace(
                offset_start=self._rows[first][0],
                offset_end=self._rows[after - 1][1],
                line_start=line,
                line_end=last,
                heading_path=_common(_same_definition(inside)),
            )
            symbol = _names(inside[0]) if inside and inside[0].definition is not None else ()
            begun = (".".join(_names(block)) for block in inside if _begins(block, line))
            symbols = dict.fromkeys(
                islice(chain([".".join(symbol)] if symbol else [], begun), _MAX_SYMBOLS)
            )
            begins = bool(symbol) and _begins(inside[0], line)
            above = (*symbol[:-1], _spoken(symbol[-1])) if symbol else _above(inside, line)
            yield _Window(place, above, tuple(symbols), begins, symbol)

    def spans(self) -> Iterator[Span]:
        """First row and end row of each window; no window is inside another."""
        for first, after in self._parts():
            self._after = after
            yield from self._split(first)

    def _parts(self) -> Iterator[Span]:
        """Rows of each definition that stays whole, and of the lines between them. A few lines after a definition
        belong to it."""
        begun, number = 0, None
        for block in self._blocks:
            if block.definition == number:
                continue
            first = bisect_left(self._numbers, block.line_start or 1)
            if number is None or block.definition is not None or not self._is_tail(begun, block):
                if first > begun:
                    yield begun, first
                begun, number = first, block.definition
        yield begun, len(self._rows)

    def _is_tail(self, begun: int, block: TextBlock) -> bool:
        """Whether a block after the definition that began in that row is small enough to belong to it."""
        after = bisect_right(self._numbers, block.line_end or 1)
        size = sum(map(bool, map(str.strip, block.text.splitlines())))
        fits = after - begun <= self._limits.lines
        fits = fits and self._sizes[after] - self._sizes[begun] <= self._limits.chars
        return not any(map(str.isalnum, block.text)) or (size <= _MAX_TAIL and fits)

    def _split(self, start: int) -> Iterator[Span]:
        first = self._next(start)
        fresh = first
        while first is not None and fresh is not None:
            if self._furthest(first) <= fresh:
                first = fresh  # what is shared leaves no room for what is new
            after = self._end(first, fresh)
            yield first, after
            fresh = self._next(after)
            first = self._next(max(first + 1, after - self._shared(after)))

    def _next(self, row: int) -> int | None:
        """The first row from ``row`` on, within the part, that is not blank."""
        return next((at for at in range(row, self._after) if self._filled[at]), None)

    def _furthest(self, first: int) -> int:
        """The end row of the largest window from ``first``; at least one row."""
        last_row = min(first + self._limits.lines, self._after)
        max_tokens = self._sizes[first] + self._limits.chars
        while last_row - 1 > first and self._sizes[last_row] - 1 > max_tokens:
            last_row -= 1
        return last_row

    def _end(self, first: int, fresh: int) -> int:
        """The end row of a window that must reach beyond ``fresh``: the end of the file; else, in its last third,
        before the outermost definition or after a blank line; else its limit."""
        after = self._furthest(first)
        if self._next(after) is not None:
            earliest = max(first + (after - first) * 2 // 3, fresh + 1)
            after = min(range(after, earliest - 1, -1), key=self._ranks.__getitem__, default=after)
        while not self._filled[after - 1]:
            after -= 1
        return after

    def _shared(self, after: int) -> int:
        """Rows at the end of a window with which the next one starts."""
        max_tokens = self._limits.chars // _OVERLAP_SHARE
        first = max(0, after - self._limits.shared)
        while first < after and self._sizes[after] - self._sizes[first] > max_tokens:
            first += 1
        return after - first

    def _ranked(self) -> list[int]:
        """For each row, how good a cut before it is: the level of the definition that starts there, then blank
        lines, then any other."""
        ranks = [_ANYWHERE, *map((_BLANK, _ANYWHERE).__getitem__, self._filled)]
        for block in self._blocks:
            if block.level:
                ranks[bisect_left(self._numbers, block.line_start or 1)] = block.level
        return ranks

    def _inside(self, first: int, last: int) -> list[TextBlock]:
        """The blocks that overlap the lines ``first`` to ``last``."""
        at = max(0, bisect_right(self._firsts, first) - 1)
        after = bisect_right(self._firsts, last)
        return [block for block in self._blocks[at:after] if (block.line_end or 0) >= first]


def _sizes(rows: Sequence[Span]) -> list[int]:
    """Characters above each row, and in all. Line ends count; the end of the last row counts as one."""
    nexts = [*(start for start, _ in rows[1:]), 0]
    sizes = (max(after, end + 1) - start for (start, end), after in zip(rows, nexts, strict=True))
    return [0, *accumulate(sizes)]


def _begins(block: TextBlock, line: int) -> bool:
    """Whether ``block`` starts a definition on ``line`` or below."""
    return block.level is not None and bool(block.heading_path) and (block.line_start or 0) >= line


def _names(block: TextBlock) -> tuple[str, ...]:
    """The names of the definition and of those around it, also where one step has several: ``Server.Serve``."""
    return tuple(name for step in block.heading_path for name in _STEPS.split(step) if name)


def _spoken(name: str) -> str:
    """An identifier in words: ``match short opt``."""
    return " ".join(word for word in _WORDS.findall(name)) or name


def _same_definition(inside: Sequence[TextBlock]) -> Sequence[TextBlock]:
    """The blocks of the first one's definition; all, where none is known."""
    return [block for block in inside if block.definition == inside[0].definition]


def _above(inside: Sequence[TextBlock], line: int) -> tuple[str, ...]:
    if not inside:
        return ()
    path = inside[0].heading_path
    return path[:-1] if _begins(inside[0], line) else path


def _common(blocks: Sequence[TextBlock]) -> tuple[str, ...]:
    """The innermost definition that contains all ``blocks``."""
    paths = [block.heading_path for block in blocks]
    same = takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False))
    return tuple(parts[0] for parts in same)


def _pieces(text: str, line: Span, last_row: int) -> list[Span]:
    """The line in pieces of at most ``last_row`` characters, cut after white space or punctuation if the last half
    of a piece has any."""
    start, end = line
    pieces: list[Span] = []
    while end - start > last_row:
        cut = start + last_row
        marks = [match.end() for match in _BREAKS.finditer(text, start + last_row // 2, cut)]
        cut = marks[-1] if marks else cut
        pieces.append((start, cut))
        start = cut
    return [*pieces, (start, end)]
