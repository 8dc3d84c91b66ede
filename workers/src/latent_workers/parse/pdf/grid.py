"""Cells of a ruled table: from edges that meet, or from rules above and below columns of words."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from latent_workers.parse.pdf.lines import Box
from latent_workers.parse.pdf.rulings import SNAP, Edge, Rulings

_NEAR = 3.5
"""Points by which edges may miss each other and still meet."""
_MAX_LINES = 400
"""Rows or columns of one grid."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Borders of columns and rows; ``owner`` says of each slot, row by row, in which one its text is shown.

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
    """A grid for each set of edges that meet, of at least two rows or columns."""
    for across, down in _components(rulings):
        ys = _places([edge.at for edge in across], [e for d in down for e in (d.start, d.end)])
        xs = _places([edge.at for edge in down], [e for a in across for e in (a.start, a.end)])
        if len(xs) < 2 or len(ys) < 2 or len(xs) + len(ys) < 5 or len(xs) + len(ys) > _MAX_LINES:
            continue
        yield Grid(xs, ys, _owners(xs, ys, across, down))


def stray_edges(rulings: Rulings) -> list[Edge]:
    """Horizontal edges that no vertical one meets."""
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
    """Where edges stand; the outermost ends count too, for tables that are open at their sides."""
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
