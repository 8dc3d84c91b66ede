"""Turns words into lines and paragraphs; drops guesses of the engine on pictures."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from latent_core.domain.page_words import MAX_WORDS, PageWord, bounded, placed
from latent_workers.parse.text.decode import clean

Paragraph = Annotated[str, Field(max_length=100_000)]
"""Lines, separated by line breaks."""


class OcrText(BaseModel):
    """Paragraphs in reading order; an empty text is a result, too."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paragraphs: Annotated[tuple[Paragraph, ...], Field(max_length=20_000)] = ()
    confidence: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """The engine's confidence, averaged over all words by their length."""
    replaced: Annotated[int, Field(ge=0)] = 0
    """Characters that cannot be stored, each replaced by U+FFFD."""
    words: Annotated[tuple[PageWord, ...], Field(max_length=MAX_WORDS)] = ()
    """With their boxes on the page as it is shown."""


Edges = tuple[float, float, float, float]
"""Left, top, right, bottom."""
Placement = Callable[[Edges], Edges]
"""From pixels of the image that an engine has read to fractions of the page."""


def placement(size: tuple[int, int], quarters: int = 0) -> Placement:
    """For an image of that size, which is the page turned counter-clockwise by quarters of a circle."""
    width, height = size

    def place(edges: Edges) -> Edges:
        left, top, right, bottom = edges
        left, top, right, bottom = left / width, top / height, right / width, bottom / height
        for _ in range(quarters):
            left, top, right, bottom = 1 - bottom, left, 1 - top, right
        return left, top, right, bottom

    return place


_PART: Final = re.compile(r"\S+")
MIN_CONFIDENCE: Final = 0.4
"""Of a whole paragraph: below it, engines read the shapes of a photograph."""


@dataclass(frozen=True, slots=True)
class OcrWord:
    """A word, or a run of words, with its paragraph and line, in reading order."""

    text: str
    confidence: float
    """0 to 1; NaN and other values count as 0."""
    paragraph: Hashable
    line: Hashable
    edges: Edges
    """Pixels."""


def reading_of(words: Iterable[OcrWord], place: Placement) -> OcrText:
    paragraphs: list[str] = []
    boxes: list[PageWord | None] = []
    weight = total = 0.0
    replaced = 0
    for _, group in groupby(words, key=lambda word: word.paragraph):
        members = list(group)
        letters = sum(len(word.text) for word in members)
        sure = sum(_share(word.confidence) * len(word.text) for word in members)
        text, bad = clean(_joined(members))
        if sure < MIN_CONFIDENCE * letters or not any(map(str.isalnum, text)):
            continue
        paragraphs.append(text)
        boxes += [box for word in members for box in _placed(word, place)]
        weight, total, replaced = weight + sure, total + letters, replaced + bad
    confidence = weight / total if total else 0.0
    return OcrText(
        paragraphs=tuple(paragraphs),
        confidence=round(confidence, 3),
        replaced=replaced,
        words=bounded(boxes),
    )


def _placed(word: OcrWord, place: Placement) -> Iterator[PageWord | None]:
    """A run of words as single ones: each gets its share of the run, by its letters."""
    left, top, right, bottom = word.edges
    step = (right - left) / max(1, len(word.text))
    for part in _PART.finditer(word.text):
        edges = place((left + step * part.start(), top, left + step * part.end(), bottom))
        yield placed(clean(part.group())[0], *edges)


def _joined(words: list[OcrWord]) -> str:
    lines = groupby(words, key=lambda word: word.line)
    return "\n".join(" ".join(word.text for word in line) for _, line in lines)


def _share(confidence: float) -> float:
    return min(confidence, 1.0) if confidence > 0.0 else 0.0


_COLUMN: Final = 8.0
"""Minimum width of a column's usual line, in line heights: narrower ones are cells of a table, which is read row by
row."""
_PARAGRAPH: Final = 0.9
"""White space between two lines, in line heights, that ends a paragraph."""


@dataclass(frozen=True, slots=True)
class Box:
    """Pixels, from the top left corner."""

    left: float
    top: float
    right: float
    bottom: float
    text: str
    confidence: float

    @property
    def middle(self) -> float:
        return (self.top + self.bottom) / 2


def in_order(boxes: Sequence[Box]) -> Iterator[OcrWord]:
    """Each box with its paragraph and line."""
    if not boxes:
        return
    line = max(1.0, median(box.bottom - box.top for box in boxes))
    paragraph = number = 0
    for region in _regions(list(boxes), line):
        reach = float("-inf")
        for row in _rows(region):
            if min(box.top for box in row) - reach > _PARAGRAPH * line or reach == float("-inf"):
                paragraph += 1
            number += 1
            reach = max(box.bottom for box in row)
            for box in row:
                edges = box.left, box.top, box.right, box.bottom
                yield OcrWord(box.text, box.confidence, paragraph, number, edges)


def _regions(boxes: list[Box], line: float) -> Iterator[list[Box]]:
    """Regions that are read from side to side: columns, and lines across them."""
    middle = _gutter(boxes, line)
    if middle is not None:
        yield from _regions([box for box in boxes if box.right <= middle], line)
        yield from _regions([box for box in boxes if box.right > middle], line)
        return
    groups: list[list[Box]] = []
    parted = False
    for band in _bands(boxes):
        in_columns = _gutter([*groups[-1], *band] if groups and parted else band, line) is not None
        if groups and parted == in_columns:
            groups[-1] += band
        else:
            groups.append(band)
            parted = _gutter(band, line) is not None
    if len(groups) == 1:
        yield groups[0]
        return
    for group in groups:
        yield from _regions(group, line)


def _gutter(boxes: Sequence[Box], line: float) -> float | None:
    """The middle of the widest white gap from top to bottom with a column on either side.

    Any gap counts: the boxes of engines are wider than their lines, and columns are close.
    """
    across = sorted(boxes, key=lambda box: box.left)
    best, widest = None, 0.0
    reach = across[0].right
    for index, box in enumerate(across[1:], start=1):
        wide = box.left - reach
        if wide > widest and _is_column(across[:index], line) and _is_column(across[index:], line):
            best, widest = (box.left + reach) / 2, wide
        reach = max(reach, box.right)
    return best


def _is_column(boxes: Sequence[Box], line: float) -> bool:
    return median(box.right - box.left for box in boxes) >= _COLUMN * line


def _bands(boxes: Sequence[Box]) -> list[list[Box]]:
    """Groups of boxes that no horizontal white line divides, from top to bottom."""
    bands: list[list[Box]] = []
    reach = float("-inf")
    for box in sorted(boxes, key=lambda box: box.top):
        # Neighbouring lines overlap a little: their cores count.
        core = (box.bottom - box.top) / 4
        if bands and box.top + core < reach:
            bands[-1].append(box)
        else:
            bands.append([box])
        reach = max(reach, box.bottom - core)
    return bands


def _rows(boxes: Sequence[Box]) -> Iterator[list[Box]]:
    """Boxes beside each other, from left to right."""
    row: list[Box] = []
    for box in sorted(boxes, key=lambda box: box.middle):
        if row and box.middle - row[-1].middle > (row[-1].bottom - row[-1].top) / 2:
            yield sorted(row, key=lambda box: box.left)
            row = []
        row.append(box)
    if row:
        yield sorted(row, key=lambda box: box.left)
