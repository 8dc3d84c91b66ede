"""Splits a block that is too long: at items, sentences, lines, words, or anywhere if nothing else fits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from latent_core.domain.chunk import BlockType
from latent_workers.chunk.counting import CHARS_PER_TOKEN, WordCounter, cost_of

_LINE_END: Final = re.compile(r"\r\n|\n|\r")
# A run of marks is looked at once, from its beginning, and never given back: a line of a million dots is a line.
_SENTENCE_END: Final = re.compile(
    r"(?<![.!?…])[.!?…]++[\"'”’)\]]*+\s+|(?<![。！？；])[。！？；]++[”’」』）]*+\s*"  # noqa: RUF001 - CJK
)
_ITEM: Final = re.compile(r"(?:\r\n|\n|\r)(?=[ \t>]*(?:[-*+]|\d{1,9}[.)])[ \t])")
_WORD: Final = re.compile(r"\S+")
_MAX_TOKENISED: Final = 50_000
"""A longer word is cut by length without counting its tokens."""
_ROW_MARKS: Final = ("|", "\t")

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class PackingPiece:
    """The smallest unit of packing."""

    start: int
    end: int
    kind: BlockType
    tokens: int

    @property
    def cost(self) -> int:
        """The part of a chunk's budget that it uses."""
        return cost_of(self.tokens, self.end - self.start)


@dataclass(frozen=True, slots=True)
class Cutter:
    """Cuts spans of ``text`` into pieces of at most ``limit`` tokens; white space between pieces is dropped."""

    text: str
    counter: WordCounter
    grain: int
    """Tokens of a run of words: small, so that two chunks can share the last run."""

    def cut(self, whole: PackingPiece, limit: int) -> list[PackingPiece]:
        """Pieces that together contain all of it except white space."""
        return list(self._refine(whole, _patterns(whole, self.text), limit))

    def _refine(
        self, piece: PackingPiece, patterns: Sequence[re.Pattern[str]], limit: int
    ) -> Iterator[PackingPiece]:
        if piece.cost <= limit:
            yield piece
        elif not patterns:
            yield from self._runs(piece, limit)
        else:
            for part in self._counted(_parts(self.text, piece, patterns[0]), piece.kind):
                yield from self._refine(part, patterns[1:], limit)

    def _runs(self, piece: PackingPiece, limit: int) -> Iterator[PackingPiece]:
        """Runs of words of about ``grain`` tokens."""
        words = (match.span() for match in _WORD.finditer(self.text, piece.start, piece.end))
        run: PackingPiece | None = None
        for word in self._counted(words, piece.kind):
            if word.cost > limit:
                if run:
                    yield run
                run = None
                yield from self._anywhere(word, limit)
            elif run and run.cost + word.cost <= self.grain:
                run = PackingPiece(run.start, word.end, run.kind, run.tokens + word.tokens)
            else:
                if run:
                    yield run
                run = word
        if run:
            yield run

    def _anywhere(self, word: PackingPiece, limit: int) -> Iterator[PackingPiece]:
        """A word over the limit, cut between its tokens, and by length if one token is too long."""
        text = self.text[word.start : word.end]
        size = min(limit, self.grain)
        marks = (
            [at for at, _ in self.counter.offsets(text)[size::size]]
            if len(text) <= _MAX_TOKENISED
            else []
        )
        stride = size * CHARS_PER_TOKEN
        spans = (
            (word.start + at, word.start + min(at + stride, stop))
            for begin, stop in pairwise([0, *marks, len(text)])
            for at in range(begin, stop, stride)
        )
        yield from self._counted(spans, word.kind)

    def _counted(self, spans: Iterable[Span], kind: BlockType) -> Iterator[PackingPiece]:
        found = list(spans)
        counts = self.counter.count([self.text[start:end] for start, end in found])
        for (start, end), tokens in zip(found, counts, strict=True):
            yield PackingPiece(start, end, kind, tokens)


def _patterns(piece: PackingPiece, text: str) -> tuple[re.Pattern[str], ...]:
    if piece.kind is BlockType.LIST:
        return (_ITEM, _LINE_END, _SENTENCE_END)
    if piece.kind is BlockType.CODE or _is_rows(text[piece.start : piece.end]):
        return (_LINE_END,)
    return (_SENTENCE_END, _LINE_END)


def _is_rows(text: str) -> bool:
    """Whether most lines contain column marks: a table in plain text, which is cut between rows."""
    lines = text.splitlines()
    marked = sum(1 for line in lines if any(mark in line for mark in _ROW_MARKS))
    return marked * 2 > len(lines)


def _parts(text: str, piece: PackingPiece, pattern: re.Pattern[str]) -> Iterator[Span]:
    """The parts between the matches of ``pattern``, without white space at their ends."""
    start, end = piece.start, piece.end
    for match in (*pattern.finditer(text, start, end), None):
        stop = match.end() if match else end
        filled = start + len(text[start:stop].rstrip())
        if filled > start:
            yield start, filled
        start = stop
