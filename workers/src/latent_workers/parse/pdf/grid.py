"""Ruled tables: drawn lines, and the cells that they form with columns of words."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from latent_workers.parse.pdf.lines import Box, PageFrame

SNAP: Final = 2.5
"""Two edges within this many points are the same."""
_THIN: Final = 2.5
_SHORTEST: Final = 6.0
_LONG: Final = 20.0
_FEWEST: Final = 3
_MAX_PATHS: Final = 20_000
"""A page with more is a map or a plot, and reading it would take seconds."""
_MAX_EDGES: Final = 40_000
_MAX_CROSSINGS: Final = 200_000
_WHITE: Final = 0.99
PATHS: Final = frozenset({"fill-path", "stroke-path"})


@dataclass(frozen=True, slots=True)
class Edge:
    """A line parallel to an axis: at ``at`` on the other axis, from ``start`` to ``end``."""

    at: float
    start: float
    end: float

    @property
    def length(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Rulings:
    """Horizontal edges by y, vertical edges by x, joined where they touch."""

    across: tuple[Edge, ...] = ()
    down: tuple[Edge, ...] = ()


Log = Sequence[tuple[str, Sequence[float]]]
"""The drawing operations of a page in order: kind and box, from MuPDF's log."""


def read(page: Any, log: Log, frame: PageFrame) -> Rulings:
    """The rulings of a page; none if there are too few or too many drawings for a table."""
    paths = [box for kind, box in log if kind in PATHS]
    long = [box for box in paths if _is_long(box)]
    if len(paths) > _MAX_PATHS or (len(long) < _FEWEST and not any(map(_is_broad, long))):
        return Rulings()
    across: list[Edge] = []
    down: list[Edge] = []
    for box, outline in _boxes(page.get_cdrawings()):
        _add(frame.box(box), across, down, outline=outline)
        if len(across) + len(down) > _MAX_EDGES:
            return Rulings()
    found = Rulings(tuple(_merged(across)), tuple(_merged(down)))
    return found if len(found.across) * len(found.down) <= _MAX_CROSSINGS else Rulings()


def _is_long(box: Sequence[float]) -> bool:
    return max(box[2] - box[0], box[3] - box[1]) >= _LONG


def _is_broad(box: Sequence[float]) -> bool:
    """Whether a single path may be a whole grid."""
    return box[2] - box[0] >= 5 * _LONG and box[3] - box[1] >= 2 * _LONG


def _boxes(drawings: Iterable[dict[str, Any]]) -> Iterator[tuple[Box, bool]]:
    """Straight parts of drawings as boxes, and whether only the outline is drawn."""
    for path in drawings:
        kind = path.get("type") or ""
        fill = path.get("fill")
        if kind not in ("s", "f", "fs") or (kind == "f" and fill and min(fill) >= _WHITE):
            continue
        for item in path["items"]:
            if item[0] == "l":
                yield _span(item[1:3]), False
            elif item[0] == "re":
                yield _span([item[1][:2], item[1][2:4]]), True
            elif item[0] == "qu":
                yield _span(item[1]), True


def _span(points: Sequence[Sequence[float]]) -> Box:
    xs, ys = [point[0] for point in points], [point[1] for point in points]
    return min(xs), min(ys), max(xs), max(ys)


def _add(box: Box, across: list[Edge], down: list[Edge], *, outline: bool) -> None:
    x0, y0, x1, y1 = box
    width, height = x1 - x0, y1 - y0
    if height <= _THIN and width >= _SHORTEST:
        across.append(Edge((y0 + y1) / 2, x0, x1))
    elif width <= _THIN and height >= _SHORTEST:
        down.append(Edge((x0 + x1) / 2, y0, y1))
    elif outline and width >= _SHORTEST and height >= _SHORTEST:
        across += [Edge(y0, x0, x1), Edge(y1, x0, x1)]
        down += [Edge(x0, y0, y1), Edge(x1, y0, y1)]


def _merged(edges: Iterable[Edge]) -> Iterator[Edge]:
    """Edges on one line that touch or overlap, as one."""
    for group in _levels(sorted(edges, key=lambda edge: edge.at)):
        at = sum(edge.at for edge in group) / len(group)
        start = end = None
        for edge in sorted(group, key=lambda edge: edge.start):
            if start is None or end is None:
                start, end = edge.start, edge.end
            elif edge.start <= end + SNAP:
                end = max(end, edge.end)
            else:
                yield Edge(at, start, end)
                start, end = edge.start, edge.end
        if start is not None and end is not None:
            yield Edge(at, start, end)


def _levels(edges: Sequence[Edge]) -> Iterator[list[Edge]]:
    """Groups of edges, sorted by position, that are near the first of their group."""
    group: list[Edge] = []
    for edge in edges:
        if group and edge.at - group[0].at > SNAP:
            yield group
            group = []
        group.append(edge)
    if group:
        yield group


_NEAR = 3.5
"""Edges that miss each other by this many points still meet."""
_MAX_LINES = 400
"""Rows or columns of one grid."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Borders of columns and rows; ``owner`` says for each slot, row by row, which slot shows its text.

    Slots without a border between them are one cell, shown in its first slot.
    """

    xs: tuple[float, ...]
    ys: tuple[float, ...]
    owner: tuple[tuple[tuple[int, int], ...], ...]

    @property
    def box(self) -> Box:
        return self.xs[0], self.ys[0], self.xs[-1], self.ys[-1]

    def slot(self, x: float, y: float) -> tuple[int, int] | None:
        """Row and column of the cell that holds a point."""
        column, row = bisect_right(self.xs, x) - 1, bisect_right(self.ys, y) - 1
        if 0 <= row < len(self.ys) - 1 and 0 <= column < len(self.xs) - 1:
            return self.owner[row][column]
        return None


def grids(rulings: Rulings) -> Iterator[Grid]:
    """A grid for each set of connected edges with at least two rows or columns."""
    for across, down in _components(rulings):
        ys = _places([edge.at for edge in across], [e for d in down for e in (d.start, d.end)])
        xs = _places([edge.at for edge in down], [e for a in across for e in (a.start, a.end)])
        if len(xs) < 2 or len(ys) < 2 or len(xs) + len(ys) < 5 or len(xs) + len(ys) > _MAX_LINES:
            continue
        yield Grid(xs, ys, _owners(xs, ys, across, down))


def stray_edges(rulings: Rulings) -> list[Edge]:
    """Horizontal edges that meet no vertical edge."""
    return [one for one in rulings.across if not any(_meet(one, other) for other in rulings.down)]


def _components(rulings: Rulings) -> Iterator[tuple[list[Edge], list[Edge]]]:
    """Horizontal and vertical edges that are connected."""
    edges = [*rulings.across, *rulings.down]
    count = len(rulings.across)
    above = list(range(len(edges)))

    def root(index: int) -> int:
        while above[index] != index:
            above[index] = above[above[index]]
            index = above[index]
        return index

    for one in range(count):
        for other in range(count, len(edges)):
            if _meet(edges[one], edges[other]):
                above[root(one)] = root(other)
    found: dict[int, tuple[list[Edge], list[Edge]]] = defaultdict(lambda: ([], []))
    for index, edge in enumerate(edges):
        found[root(index)][index >= count].append(edge)
    for across, down in found.values():
        if across and down:
            yield across, down


def _meet(across: Edge, down: Edge) -> bool:
    return (
        across.start - _NEAR <= down.at <= across.end + _NEAR
        and down.start - _NEAR <= across.at <= down.end + _NEAR
    )


def _places(drawn: Iterable[float], ends: Sequence[float]) -> tuple[float, ...]:
    """Positions of edges; the outermost ends count too, for tables without side borders."""
    places: list[float] = []
    for at in sorted([*drawn, min(ends), max(ends)]):
        if not places or at - places[-1] > _NEAR:
            places.append(at)
    return tuple(places)


def _owners(
    xs: Sequence[float], ys: Sequence[float], across: Sequence[Edge], down: Sequence[Edge]
) -> tuple[tuple[tuple[int, int], ...], ...]:
    rows, columns = len(ys) - 1, len(xs) - 1
    walls = _borders(down, xs, ys)
    floors = _borders(across, ys, xs)
    owner = [[(row, column) for column in range(columns)] for row in range(rows)]
    for row in range(rows):
        for column in range(columns):
            left = column and (column, row) not in walls
            top = row and (row, column) not in floors
            # A cell is joined to the left or upwards, not both: its first slot stays the same either way.
            if left:
                owner[row][column] = owner[row][column - 1]
            elif top:
                owner[row][column] = owner[row - 1][column]
    return tuple(tuple(line) for line in owner)


def _borders(
    edges: Iterable[Edge], levels: Sequence[float], steps: Sequence[float]
) -> set[tuple[int, int]]:
    """Numbers of the level and the step at which an edge is drawn."""
    middles = [(one + other) / 2 for one, other in pairwise(steps)]
    found: set[tuple[int, int]] = set()
    for edge in edges:
        level = min(range(len(levels)), key=lambda index: abs(levels[index] - edge.at))
        found.update(
            (level, step)
            for step, middle in enumerate(middles)
            if edge.start - SNAP <= middle <= edge.end + SNAP
        )
    return found
