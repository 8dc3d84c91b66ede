"""The share of a PDF page that is pictures: what a reader of its text alone misses.

Measured on a grid. Images count with their area; drawn paths count if they form a drawing or a ruled table, with
their bounding box. A frame or a coloured background behind text does not count, nor does a rule between paragraphs.
A page of images without visible text is a scan, and counts completely.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

CELLS: Final = 64
"""In each direction."""
MAX_OBJECTS: Final = 200_000
"""Objects of a page that are measured."""
SCANNED: Final = 0.5
"""Share of images from which a page without visible text is a scan."""
GROUND: Final = 0.03
"""Share of the page from which a path with text on it may be a background or a frame."""
TEXT_ON_GROUND: Final = 0.35
"""Share of its cells that have text."""
WHOLE_PAGE: Final = 0.8
"""Share of the page from which a path is its background or its border."""
MIN_PATHS: Final = 3
"""Minimum paths of a drawing."""
UPRIGHT: Final = 2.0
"""Height in points from which a path is not an underline."""

_IMAGES: Final = frozenset({"fill-image", "fill-imgmask"})
_PATHS: Final = frozenset({"fill-path", "stroke-path", "fill-shade"})
_TEXT: Final = frozenset({"fill-text", "stroke-text"})

Box = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class _Span:
    """Cells from ``left`` and ``top`` to before ``right`` and ``bottom``; at least one."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def cells(self) -> int:
        return (self.right - self.left) * (self.bottom - self.top)


class _Grid:
    def __init__(self) -> None:
        self.rows = [bytearray(CELLS) for _ in range(CELLS)]

    def mark(self, span: _Span) -> None:
        ones = b"\x01" * (span.right - span.left)
        for row in self.rows[span.top : span.bottom]:
            row[span.left : span.right] = ones

    def within(self, span: _Span) -> int:
        return sum(sum(row[span.left : span.right]) for row in self.rows[span.top : span.bottom])

    def share(self) -> float:
        return sum(map(sum, self.rows)) / CELLS**2


@dataclass(slots=True)
class _PathCluster:
    """Paths that touch each other, at the resolution of the grid."""

    left: int = CELLS
    top: int = CELLS
    right: int = 0
    bottom: int = 0
    cells: set[tuple[int, int]] = field(default_factory=set)

    def add(self, row: int, column: int) -> None:
        self.cells.add((row, column))
        self.left, self.right = min(self.left, column), max(self.right, column + 1)
        self.top, self.bottom = min(self.top, row), max(self.bottom, row + 1)

    def span(self) -> _Span:
        return _Span(self.left, self.top, self.right, self.bottom)


def visual_share(page: Any) -> float:
    """0 to 1, of a PyMuPDF page. Coordinates are those of the unrotated page."""
    width, height = page.cropbox.width, page.cropbox.height
    return share(islice(page.get_bboxlog(), MAX_OBJECTS), width, height)


def share(objects: Iterable[tuple[str, Box]], width: float, height: float) -> float:
    """The measure for the painted objects of a page of that size: kinds (as MuPDF calls them) and boxes, in points."""
    images, text = _Grid(), _Grid()
    paths: list[tuple[_Span, bool]] = []
    noted = False
    for kind, box in objects:
        span = _span(box, width, height)
        if span is None:
            continue
        if kind in _IMAGES:
            images.mark(span)
        elif kind in _TEXT:
            text.mark(span)
            noted = True
        elif kind in _PATHS:
            paths.append((span, box[3] - box[1] >= UPRIGHT))
    if not noted and images.share() >= SCANNED:
        return 1.0
    for drawing in _drawings(paths, text):
        images.mark(drawing)
    return round(images.share(), 3)


def _span(box: Box, width: float, height: float) -> _Span | None:
    """None if it is outside the page."""
    left, top, right, bottom = box
    if right < 0 or bottom < 0 or left > width or top > height or width <= 0 or height <= 0:
        return None
    across, down = CELLS / width, CELLS / height
    first, above = _cell(left * across), _cell(top * down)
    return _Span(
        first,
        above,
        max(first, _cell(right * across - 1e-6)) + 1,
        max(above, _cell(bottom * down - 1e-6)) + 1,
    )


def _cell(at: float) -> int:
    return max(0, min(CELLS - 1, int(max(-1.0, min(float(CELLS), at)))))


def _drawings(paths: Sequence[tuple[_Span, bool]], text: _Grid) -> Iterator[_Span]:
    """Cells where paths form a drawing or a table."""
    drawn, upright = _Grid(), _Grid()
    begun = [[0] * CELLS for _ in range(CELLS)]
    for span, stands in paths:
        if _is_ground(span, text):
            continue
        drawn.mark(span)
        begun[span.top][span.left] += 1
        if stands:
            upright.mark(span)
    for drawing in _parts(drawn):
        span = drawing.span()
        wide, high = span.right - span.left, span.bottom - span.top
        count = sum(begun[row][column] for row, column in drawing.cells)
        stands = any(upright.rows[row][column] for row, column in drawing.cells)
        if wide > 1 and high > 1 and count >= MIN_PATHS and stands:
            yield span


def _is_ground(span: _Span, text: _Grid) -> bool:
    size = span.cells / CELLS**2
    if size < GROUND:
        return False
    return size >= WHOLE_PAGE or text.within(span) >= TEXT_ON_GROUND * span.cells


def _parts(grid: _Grid) -> Iterator[_PathCluster]:
    """Connected marked cells, including diagonals."""
    left = {(r, c) for r in range(CELLS) for c in range(CELLS) if grid.rows[r][c]}
    while left:
        part, waiting = _PathCluster(), [left.pop()]
        while waiting:
            row, column = waiting.pop()
            part.add(row, column)
            for near in _around(row, column):
                if near in left:
                    left.remove(near)
                    waiting.append(near)
        yield part


def _around(row: int, column: int) -> Iterator[tuple[int, int]]:
    for r in (row - 1, row, row + 1):
        for c in (column - 1, column, column + 1):
            yield r, c
