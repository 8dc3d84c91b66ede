"""Reading order of a page's blocks: the order in the file, unless their positions contradict it.

Programs mostly write text in reading order. If blocks jump upwards or between columns, the order comes from the
page: full-width blocks from the top down, columns in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from latent_workers.parse.pdf.lines import Box, Line, around, is_rtl
from latent_workers.parse.pdf.tables import PdfTable

_GUTTER: Final = 6.0
"""Minimum gap between columns, in points."""
_WIDE: Final = 0.6
"""Fraction of a region's width: a wider block is not part of a column."""
_FEWEST_LINES: Final = 3
_PROSE_CHARS: Final = 18
"""Minimum average characters per line of prose in a column: shorter ones are labels, numbers or cells."""
_OVERLAP: Final = 0.25
_MAX_BLOCKS: Final = 600
"""Pages with more blocks keep the order of the file."""


@dataclass(frozen=True, slots=True)
class PageItem:
    """A unit in reading order: lines, or a table."""

    box: Box
    number: tuple[int, int]
    """Its position in the file: that of its first line."""
    lines: tuple[Line, ...] = ()
    table: PdfTable | None = None
    aside: bool = False
    """It runs in another direction than the page: a stamp in the margin, an axis label."""

    @classmethod
    def of(cls, lines: Sequence[Line]) -> PageItem:
        return cls(around(line.box for line in lines), lines[0].number, tuple(lines))

    @property
    def width(self) -> float:
        return self.box[2] - self.box[0]

    @property
    def middle(self) -> float:
        return (self.box[1] + self.box[3]) / 2


@dataclass(slots=True)
class _Order:
    """``places`` are numbers of items; ``broken`` says that the file has another order."""

    places: list[int] = field(default_factory=list)
    broken: bool = False


def ordered(given: Sequence[PageItem]) -> list[PageItem]:
    """Items in reading order."""
    items = sorted(given, key=lambda item: item.number)
    if len(items) > _MAX_BLOCKS:
        return items
    found = _Order()
    _read(items, list(range(len(items))), found, rtl=_is_rtl(items))
    return [items[place] for place in found.places] if found.broken else items


def _is_rtl(items: Sequence[PageItem]) -> bool:
    return is_rtl(" ".join(line.text for item in items[:20] for line in item.lines[:5]))


def _read(items: Sequence[PageItem], region: list[int], found: _Order, *, rtl: bool) -> None:
    """Sort the items of ``region``, given in file order, into reading order."""
    columns = _columns(items, region)
    if len(columns) > 1:
        found.broken = found.broken or _alternates(region, columns, rtl=rtl)
        for column in reversed(columns) if rtl else columns:
            _read(items, column, found, rtl=rtl)
        return
    left, _, right, _ = around(items[number].box for number in region) if region else (0, 0, 0, 0)
    wide = [number for number in region if items[number].width > _WIDE * (right - left)]
    if not wide or len(wide) == len(region) or not _worth_bands(items, region, wide):
        _down(items, region, found)
        return
    for band in _bands(items, region, wide):
        if len(band) < len(region):
            _read(items, band, found, rtl=rtl)
    placed = found.places[-len(region) :]
    found.broken = found.broken or _climbs(items, region, placed)


def _worth_bands(items: Sequence[PageItem], region: Sequence[int], wide: Sequence[int]) -> bool:
    return any(len(_columns(items, band)) > 1 for band in _bands(items, region, wide))


def _bands(
    items: Sequence[PageItem], region: Sequence[int], wide: Sequence[int]
) -> Iterator[list[int]]:
    """Wide items and the groups between them, from the top down."""
    separators = sorted(wide, key=lambda number: items[number].middle)
    narrow = [number for number in region if number not in set(wide)]
    for separator in separators:
        middle = items[separator].middle
        above = [number for number in narrow if items[number].middle < middle]
        if above:
            yield above
            narrow = [number for number in narrow if items[number].middle >= middle]
        yield [separator]
    if narrow:
        yield narrow


def _columns(items: Sequence[PageItem], region: Sequence[int]) -> list[list[int]]:
    """The region's columns of prose from left to right; one without gutters."""
    groups: list[list[int]] = []
    end = float("-inf")
    for number in sorted(region, key=lambda number: items[number].box[0]):
        if not groups or items[number].box[0] - end >= _GUTTER:
            groups.append([])
        groups[-1].append(number)
        end = max(end, items[number].box[2])
    if len(groups) < 2 or not all(_is_prose(items, group) for group in groups):
        return [list(region)]
    if not _side_by_side(items, groups):
        return [list(region)]
    return [sorted(group) for group in groups]


def _is_prose(items: Sequence[PageItem], group: Sequence[int]) -> bool:
    lines = [line for number in group for line in items[number].lines]
    chars = sum(len(line.text) for line in lines)
    return len(lines) >= _FEWEST_LINES and chars >= _PROSE_CHARS * len(lines)


def _side_by_side(items: Sequence[PageItem], groups: Sequence[Sequence[int]]) -> bool:
    """Whether each group is beside the next, not above or below."""
    boxes = [around(items[number].box for number in group) for group in groups]
    return all(
        min(one[3], other[3]) - max(one[1], other[1])
        > _OVERLAP * min(one[3] - one[1], other[3] - other[1])
        for one, other in pairwise(boxes)
    )


def _alternates(written: Sequence[int], columns: Sequence[Sequence[int]], *, rtl: bool) -> bool:
    """Whether the columns were not written one after the other."""
    of = {number: index for index, column in enumerate(columns) for number in column}
    visits = [of[number] for number in written]
    runs = [one for one, before in zip(visits, [None, *visits], strict=False) if one != before]
    return runs != sorted(range(len(columns)), reverse=rtl)


def _down(items: Sequence[PageItem], region: list[int], found: _Order) -> None:
    """One column, from top to bottom, unless the file has that order already."""
    if not _climbs(items, region, region):
        found.places += region
        return
    found.broken = True
    found.places += sorted(region, key=lambda number: (items[number].box[1], items[number].box[0]))


def _climbs(items: Sequence[PageItem], written: Sequence[int], order: Sequence[int]) -> bool:
    """Whether an item was written after one below it in the same column."""
    if list(written) != list(order):
        return True
    return any(_above(items[other].box, items[one].box) for one, other in pairwise(written))


def _above(box: Box, other: Box) -> bool:
    shared = min(box[2], other[2]) - max(box[0], other[0])
    return box[3] <= other[1] + 1 and shared > 0.3 * min(box[2] - box[0], other[2] - other[0])


def split_columns(lines: Sequence[Line]) -> list[list[Line]]:
    """The lines of one block, split where it covers several columns of prose."""
    if len(lines) < 2 * _FEWEST_LINES:
        return [list(lines)]
    items = [PageItem.of([line]) for line in lines]
    columns = _columns(items, range(len(lines)))
    return [[lines[number] for number in column] for column in columns]
