"""Headings by their type: larger than the body, or bold on a line of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from latent_workers.parse.pdf.lines import Line

_LARGER: Final = 1.12
_AS_LARGE: Final = 0.95
_MAX_CHARS: Final = 150
_MAX_BOLD_CHARS: Final = 90
_MAX_LINES: Final = 4
_RARE: Final = 0.2
"""Of a document's letters: larger type that is more common is text."""
_LEVELS: Final = 5
_MEAN_CHARS: Final = 100


@dataclass(frozen=True, slots=True)
class Typography:
    """Type sizes of a document: of its body, and of its headings, largest first."""

    body: float = 0.0
    sizes: tuple[float, ...] = ()
    bold: bool = False
    """Whether bold lines are headings too, below those of the sizes."""

    def level(self, line: Line) -> int | None:
        """Of a line by its type alone, from 1."""
        for level, size in enumerate(self.sizes, start=1):
            if line.size == size:
                return min(level, _LEVELS)
        if self.bold and line.bold and line.size >= _AS_LARGE * self.body:
            return min(len(self.sizes) + 1, _LEVELS + 1)
        return None

    def heading(self, lines: Sequence[Line]) -> tuple[int, int | None]:
        """How many of the first lines of a block are a heading, and its level."""
        level = self.level(lines[0]) if lines else None
        if level is None:
            return 0, None
        count = 1
        # One more than a heading may have tells that it is none.
        while count < min(len(lines), _MAX_LINES + 1) and _goes_on(lines[count - 1], lines[count]):
            count += 1
        text = " ".join(line.text for line in lines[:count])
        max_chars = _MAX_CHARS if level <= len(self.sizes) else _MAX_BOLD_CHARS
        if count > _MAX_LINES or len(text) > max_chars or not _is_title(text):
            return 0, None
        if count < len(lines) and lines[count].text[:1].islower():
            return 0, None
        return count, level


def _goes_on(line: Line, following: Line) -> bool:
    return following.size == line.size and following.bold == line.bold


def _is_title(text: str) -> bool:
    letters = sum(map(str.isalpha, text))
    return letters >= 2 and letters * 3 >= len(text) and text[-1] not in ".,;" and "\t" not in text


def typography(blocks: Iterable[Sequence[Line]]) -> Typography:
    """What the lines of all pages tell."""
    letters: Counter[float] = Counter()
    bold = total = 0
    first: Counter[float] = Counter()
    for lines in blocks:
        for line in lines:
            letters[line.size] += len(line.text)
            bold += len(line.text) if line.bold else 0
            total += len(line.text)
        first.update({line.size for line in lines})
    if not total:
        return Typography()
    body = letters.most_common(1)[0][0]
    sizes = [
        size
        for size in sorted(letters, reverse=True)
        if size >= _LARGER * body and letters[size] <= _MEAN_CHARS * first[size]
    ]
    while sizes and sum(letters[size] for size in sizes) > _RARE * total:
        sizes.remove(max(sizes, key=lambda size: letters[size]))
    return Typography(body, tuple(sizes), bold=bold <= _RARE * total)
