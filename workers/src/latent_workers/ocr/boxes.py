"""Boxes of text found anywhere on a page, in the order people read them: columns, lines, words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from latent_workers.ocr.words import OcrWord

_COLUMN: Final = 8.0
"""Least width of a column's usual line, in line heights: what is narrower is a cell of a table,
which is read row by row."""
_PARAGRAPH: Final = 0.9
"""White between two lines, in line heights, that makes a paragraph end."""


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
                yield OcrWord(box.text, box.confidence, paragraph, number)


def _regions(boxes: list[Box], line: float) -> Iterator[list[Box]]:
    """Parts of the page that are read from side to side: columns, and what stands across them."""
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
    """The middle of the widest white from top to bottom with a column on either side.

    Any white will do: the boxes of engines are wider than their lines, and columns stand close.
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
    """Boxes that no white line across divides, from top to bottom."""
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
    """Boxes side by side, from left to right."""
    row: list[Box] = []
    for box in sorted(boxes, key=lambda box: box.middle):
        if row and box.middle - row[-1].middle > (row[-1].bottom - row[-1].top) / 2:
            yield sorted(row, key=lambda box: box.left)
            row = []
        row.append(box)
    if row:
        yield sorted(row, key=lambda box: box.left)
