"""The outline of a PDF: which lines of a page it names as headings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

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


Outline = Mapping[int, Sequence[Entry]]
"""Entries by the page they point to."""


def found(lines: Sequence[str], expected: Sequence[Entry]) -> tuple[int, int]:
    """How many of the next lines are a heading, and how many of the expected ones it passes."""
    for count in range(1, min(_MAX_HEADING_LINES, len(lines)) + 1 if expected else 1):
        key = _key(" ".join(lines[:count]))
        for passed, entry in enumerate(expected, start=1):
            if key and key == entry.key:
                return count, passed
    return 0, 0


def shown(entries: Sequence[Entry], blocks: Sequence[Sequence[str]]) -> list[bool]:
    """Of each entry, whether a page says it."""
    if not entries:
        return []
    keys = {key for block in blocks for key in _keys(block)}
    return [bool(entry.key) and entry.key in keys for entry in entries]


def _keys(lines: Sequence[str]) -> Iterator[str]:
    for start in range(len(lines)):
        for count in range(1, _MAX_HEADING_LINES + 1):
            yield _key(" ".join(lines[start : start + count]))


def _key(text: str) -> str:
    """Letters and digits only, without a number in front: outlines and pages number differently."""
    return _NO_LETTER.sub("", _NUMBERING.sub("", text)).casefold()
