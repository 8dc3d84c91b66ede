"""Headings of a PDF: the lines that its outline names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from latent_core.domain.chunk import BlockType

_NUMBERING: Final = re.compile(r"^[\W\d]*\d[\d.]*[\s.)]*(?=\D)")
_NO_LETTER: Final = re.compile(r"[\W_]+")
_MAX_HEADING_LINES = 3


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the outline; levels count from 1."""

    level: int
    title: str
    key: str = field(init=False)
    """What of the title is compared with the lines of a page."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", _key(self.title))


@dataclass(frozen=True, slots=True)
class Part:
    """A block of a page, or the part of one between headings."""

    kind: BlockType
    text: str
    heading_path: tuple[str, ...]
    level: int | None = None


class Outlined:
    """Goes through the pages in order and remembers which headings hold."""

    def __init__(self, entries: Mapping[int, Sequence[Entry]]) -> None:
        self._entries = entries
        self._stack: list[Entry] = []

    def parts(self, page: int, blocks: Sequence[str]) -> Iterator[Part]:
        """The blocks of ``page``, cut where a line is a heading."""
        expected = list(self._entries.get(page, ()))
        shown = {key for block in blocks for key in _keys(block)}
        # What the page does not show (a chapter's opening picture) holds from its top.
        while expected and expected[0].key not in shown:
            self._enter(expected.pop(0))
        for block in blocks:
            yield from self._cut(block, expected)
        for entry in expected:
            self._enter(entry)

    def _cut(self, block: str, expected: list[Entry]) -> Iterator[Part]:
        lines = block.split("\n")
        pending: list[str] = []
        while lines:
            count, passed = _heading(lines, expected)
            if not count:
                pending.append(lines.pop(0))
                continue
            if pending:
                yield self._part(pending)
                pending = []
            for entry in expected[:passed]:
                self._enter(entry)
            del expected[:passed]
            yield self._part(lines[:count], self._stack[-1].level)
            del lines[:count]
        if pending:
            yield self._part(pending)

    def _enter(self, entry: Entry) -> None:
        self._stack = [above for above in self._stack if above.level < entry.level]
        self._stack.append(entry)

    def _part(self, lines: Sequence[str], level: int | None = None) -> Part:
        kind = BlockType.HEADING if level else BlockType.PARAGRAPH
        return Part(kind, "\n".join(lines), tuple(entry.title for entry in self._stack), level)


def _heading(lines: Sequence[str], expected: Sequence[Entry]) -> tuple[int, int]:
    """How many of the next lines are a heading, and how many of the expected ones it passes."""
    for count in range(1, min(_MAX_HEADING_LINES, len(lines)) + 1 if expected else 1):
        key = _key(" ".join(lines[:count]))
        for passed, entry in enumerate(expected, start=1):
            if key and key == entry.key:
                return count, passed
    return 0, 0


def _keys(block: str) -> Iterator[str]:
    lines = block.split("\n")
    for start in range(len(lines)):
        for count in range(1, _MAX_HEADING_LINES + 1):
            yield _key(" ".join(lines[start : start + count]))


def _key(text: str) -> str:
    """Letters and digits only, without a number in front: outlines and pages number differently."""
    return _NO_LETTER.sub("", _NUMBERING.sub("", text)).casefold()
