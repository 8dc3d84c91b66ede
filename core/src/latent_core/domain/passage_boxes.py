"""Finds a part of a page's text among the words that the page shows, and draws boxes around it.

The text of a page is not the sequence of its words: hyphens at line ends are gone, ligatures and white space differ,
running headers are missing, tables are rows of Markdown, and columns are in another order. So the whole text is aligned
with all words by their letters and digits, the longest common runs first; the part is then a range of that alignment.
That keeps repeated sentences apart, which a search for the part would not.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from latent_core.domain.page_words import SCALE, PageWord

MAX_LETTERS: Final = 20_000
"""Of a page and of its words; the rest is not aligned."""
RUNS: Final = (24, 12, 6, 3)
"""Letters that two runs must at least share, in the passes of the alignment."""
_PLACES: Final = 16
"""Places of a run that are compared; a page of nothing but dots or zeros has thousands."""
_GAP: Final = 1.6
"""Space between two words of one box, in line heights."""
_OVERLAP: Final = 0.5
_LONG: Final = 4
"""Letters of a word whose box tells whether its line runs across the page or down."""


class Box(NamedTuple):
    """Edges from the top left corner, as fractions of the page's width and height."""

    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True, slots=True)
class _Letters:
    """The letters and digits of a text, and where each is in it."""

    letters: str
    places: list[int]


def _of_text(text: str) -> _Letters:
    letters: list[str] = []
    places: list[int] = []
    for place, char in enumerate(text):
        if char.isalnum() or not char.isascii():
            for one in unicodedata.normalize("NFKD", char).casefold():
                if one.isalnum():
                    letters.append(one)
                    places.append(place)
        if len(letters) >= MAX_LETTERS:
            break
    return _Letters("".join(letters), places)


def _of_words(words: Sequence[PageWord]) -> _Letters:
    letters: list[str] = []
    places: list[int] = []
    for place, word in enumerate(words):
        own = _of_text(word.text).letters
        letters.append(own)
        places += [place] * len(own)
        if len(places) >= MAX_LETTERS:
            break
    return _Letters("".join(letters), places)


class PageAlignment:
    """Which word of a page shows each letter of its text."""

    def __init__(self, text: str, words: Sequence[PageWord]) -> None:
        self._words = words
        self._text, self._page = _of_text(text), _of_words(words)
        self._match = _aligned(self._text.letters, self._page.letters)
        self._counts: dict[int, int] = defaultdict(int)
        for word in self._page.places:
            self._counts[word] += 1

    def words(self, start: int, end: int) -> list[int]:
        """Numbers of the words that show most of their letters from ``text[start:end]``, and those between them."""
        shown: dict[int, int] = defaultdict(int)
        for place, match in zip(self._text.places, self._match, strict=True):
            if start <= place < end and match >= 0:
                shown[self._page.places[match]] += 1
        chosen = {word for word, count in shown.items() if 2 * count >= self._counts[word]}
        return sorted(chosen | set(self._between(chosen)))

    def boxes(self, ranges: Iterable[tuple[int, int]]) -> list[Box]:
        """Boxes around ranges of the text: one per line and range."""
        return [
            box
            for start, end in ranges
            for box in around([self._words[n] for n in self.words(start, end)])
        ]

    def _between(self, chosen: set[int]) -> Iterator[int]:
        """Single words without a match (a dash, a bullet, a masked secret) with matches on either side in their line."""
        for word in chosen:
            middle, after = word + 1, word + 2
            if after in chosen and middle not in chosen:
                line = [self._words[n] for n in (word, middle, after)]
                if all(_same_line(line[0], one) for one in line[1:]):
                    yield middle


def _aligned(text: str, page: str) -> list[int]:
    """For each letter of ``text`` its place in ``page``, or -1; no place twice."""
    match, used = [-1] * len(text), bytearray(len(page))
    for size in RUNS:
        _pass(text, page, size, match, used)
    for at in range(1, len(text)):  # short cells of tables continue what is before them
        place = match[at - 1] + 1
        if match[at] < 0 < place < len(page) and not used[place] and page[place] == text[at]:
            match[at], used[place] = place, 1
    return match


def _pass(text: str, page: str, size: int, match: list[int], used: bytearray) -> None:
    """Match runs of at least ``size`` letters that neither side has matched yet."""
    runs: dict[str, list[int]] = defaultdict(list)
    for at in range(len(page) - size + 1):
        if not any(used[at : at + size]):
            places = runs[page[at : at + size]]
            if len(places) < _PLACES:
                places.append(at)
    at = 0
    while at <= len(text) - size:
        taken = next((n for n in range(at + size - 1, at - 1, -1) if match[n] >= 0), None)
        if taken is not None:
            at = taken + 1
            continue
        expected = match[at - 1] + 1 if at else 0
        best = _longest(text, page, at, runs.get(text[at : at + size], ()), expected, match, used)
        if best is None:
            at += 1
            continue
        start, length = best
        match[at : at + length] = range(start, start + length)
        used[start : start + length] = b"\1" * length
        at += length


def _longest(
    text: str,
    page: str,
    at: int,
    places: Sequence[int],
    expected: int,
    match: Sequence[int],
    used: bytearray,
) -> tuple[int, int] | None:
    """Start and length of the best run on the page: the one that continues the last match, else the longest, else the
    one that is nearest."""
    best: tuple[tuple[bool, int, int], int, int] | None = None
    for place in places:
        length = 0
        while (
            at + length < len(text)
            and place + length < len(page)
            and match[at + length] < 0
            and not used[place + length]
            and text[at + length] == page[place + length]
        ):
            length += 1
        worth = (place == expected, length, -abs(place - expected))
        if length and (best is None or worth > best[0]):
            best = worth, place, length
    return None if best is None else best[1:]


def around(words: Sequence[PageWord]) -> list[Box]:
    """Boxes around words in the order of the page, one per line and column."""
    long = [word for word in words if len(word.text) >= _LONG]
    down = 2 * sum(map(_is_tall, long)) > len(long)
    boxes: list[list[int]] = []
    last: PageWord | None = None
    for word in words:
        edges = list(word[1:])
        if last is not None and _adjacent(last, word, down=down):
            box = boxes[-1]
            box[:] = [*map(min, box[:2], edges[:2]), *map(max, box[2:], edges[2:])]
        else:
            boxes.append(edges)
        last = word
    return [Box(*(edge / SCALE for edge in box)) for box in boxes]


def _same_line(one: PageWord, other: PageWord) -> bool:
    return _overlap(one.top, one.bottom, other.top, other.bottom) or _overlap(
        one.left, one.right, other.left, other.right
    )


def _overlap(start: int, end: int, other_start: int, other_end: int) -> bool:
    shared = min(end, other_end) - max(start, other_start)
    return shared >= _OVERLAP * max(1, min(end - start, other_end - other_start))


def _adjacent(one: PageWord, other: PageWord, *, down: bool) -> bool:
    """Whether the second word follows in the same line, which runs across the page or, of turned text, down."""
    if down:
        gap = max(other.top - one.bottom, one.top - other.bottom)
        near = gap <= _GAP * max(one.right - one.left, other.right - other.left)
        return near and _overlap(one.left, one.right, other.left, other.right)
    gap = max(other.left - one.right, one.left - other.right)
    near = gap <= _GAP * max(one.bottom - one.top, other.bottom - other.top)
    return near and _overlap(one.top, one.bottom, other.top, other.bottom)


def _is_tall(word: PageWord) -> bool:
    return word.bottom - word.top > 1.5 * (word.right - word.left)
