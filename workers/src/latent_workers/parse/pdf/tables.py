"""Tables of a PDF page with rulings, as Markdown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from latent_workers.parse.pdf.grid import Edge, Grid, Rulings, grids, stray_edges
from latent_workers.parse.pdf.lines import Box, PdfWord, around, is_rtl

_MIN_FILLED: Final = 0.4
"""Minimum share of filled slots; below it the lines are a drawing, a form or a frame."""
_MAX_CELL_CHARS: Final = 1500
_MEAN_CELL_CHARS: Final = 300
_SAME_ENDS: Final = 4.0
_FEWEST_RULES: Final = 3
_MAX_COLUMNS: Final = 60
_CROSSED: Final = 0.12
"""Share of a table's lines that may cross a gap between columns: headings over several columns."""
_SHORT_CELL: Final = 32

Rows = list[list[str]]


@dataclass(frozen=True, slots=True)
class PdfTable:
    """The page's lines do not repeat its words; ``title`` was in its first row, over all columns."""

    box: Box
    markdown: str
    title: str
    words: frozenset[int]
    """Indexes of its words in the list in which it was found."""


def find(rulings: Rulings, words: Sequence[PdfWord]) -> Iterator[PdfTable]:
    """Tables from the top down, without overlaps."""
    taken: set[int] = set()
    for grid in sorted(grids(rulings), key=lambda grid: -_area(grid.box)):
        table = _of_grid(grid, words)
        if table is not None and not table.words & taken:
            taken |= table.words
            yield table
    for region in _ruled(stray_edges(rulings)):
        table = _of_region(region, words)
        if table is not None and not table.words & taken:
            taken |= table.words
            yield table


def _area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def _center(word: PdfWord) -> tuple[float, float]:
    return (word.box[0] + word.box[2]) / 2, (word.box[1] + word.box[3]) / 2


def _of_grid(grid: Grid, words: Sequence[PdfWord]) -> PdfTable | None:
    slots: dict[tuple[int, int], list[PdfWord]] = defaultdict(list)
    inside: set[int] = set()
    for number, word in enumerate(words):
        slot = grid.slot(*_center(word))
        if slot is not None:
            slots[slot].append(word)
            inside.add(number)
    columns = len(grid.xs) - 1
    rows: list[list[list[PdfWord]]] = []
    for row in range(len(grid.ys) - 1):
        cells = [slots.get((row, column), []) for column in range(columns)]
        rows += _unruled_rows(cells)
    texts = [[_cell_text(cell) for cell in row] for row in rows]
    if is_rtl(" ".join(word.text for cells in slots.values() for word in cells)):
        texts = [row[::-1] for row in texts]
    return _table(grid.box, texts, inside)


def _unruled_rows(cells: Sequence[list[PdfWord]]) -> list[list[list[PdfWord]]]:
    """A band of cells without rules between its rows is split where most cells start a new line."""
    filled = [cell for cell in cells if cell]
    lines = _baselines([word for cell in filled for word in cell])
    if len(filled) < 2 or len(lines) < 2:
        return [list(cells)]
    shared = 0
    for line in lines:
        held = {id(word) for word in line}
        shared += sum(1 for cell in filled if any(id(w) in held for w in cell)) * 3 >= 2 * len(
            filled
        )
    if shared < 0.8 * len(lines) or len(lines) < 3:
        return [list(cells)]
    return [
        [[word for word in cell if any(word is other for other in line)] for cell in cells]
        for line in lines
    ]


def _baselines(words: Iterable[PdfWord]) -> list[list[PdfWord]]:
    """Words by line, from the top."""
    lines: list[list[PdfWord]] = []
    bottom = float("-inf")
    for word in sorted(words, key=lambda word: _center(word)[1]):
        if not lines or _center(word)[1] > bottom:
            lines.append([])
        lines[-1].append(word)
        bottom = _center(lines[-1][0])[1] + 0.5 * (word.box[3] - word.box[1])
    return lines


def _cell_text(cell: Sequence[PdfWord]) -> str:
    lines = _baselines(cell)
    return " ".join(
        word.text for line in lines for word in sorted(line, key=lambda word: word.line)
    )


def _table(box: Box, rows: Rows, inside: set[int]) -> PdfTable | None:
    rows = _trimmed(rows)
    title = ""
    if len(rows) > 2 and sum(map(bool, rows[0])) == 1 and rows[0][0] and len(rows[0]) > 2:
        title, rows = rows[0][0], rows[1:]
    if len(rows) < 2 or not 2 <= len(rows[0]) <= _MAX_COLUMNS:
        return None
    cells = [cell for row in rows for cell in row]
    filled = [cell for cell in cells if cell]
    if len(filled) < _MIN_FILLED * len(cells) or max(map(len, filled)) > _MAX_CELL_CHARS:
        return None
    if sum(map(len, filled)) > _MEAN_CELL_CHARS * len(filled):
        return None
    return PdfTable(box, markdown(rows), title, frozenset(inside))


def _trimmed(rows: Rows) -> Rows:
    """Without empty rows and columns."""
    kept = [row for row in rows if any(row)]
    if not kept:
        return []
    columns = [index for index in range(len(kept[0])) if any(row[index] for row in kept)]
    return [[row[index] for index in columns] for row in kept]


def markdown(rows: Rows) -> str:
    """The first row is the header."""
    lines = ["| " + " | ".join(map(_escaped, row)) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return "\n".join(lines)


def _escaped(cell: str) -> str:
    return cell.replace("\\", "\\\\").replace("|", "\\|")


def _ruled(edges: Sequence[Edge]) -> Iterator[Box]:
    """Regions between rules of the same length above each other."""
    groups: list[list[Edge]] = []
    for edge in sorted(edges, key=lambda edge: edge.at):
        for group in groups:
            first = group[0]
            if (
                abs(first.start - edge.start) < _SAME_ENDS
                and abs(first.end - edge.end) < _SAME_ENDS
            ):
                group.append(edge)
                break
        else:
            groups.append([edge])
    for group in groups:
        if len(group) >= _FEWEST_RULES:
            yield group[0].start, group[0].at, group[0].end, group[-1].at


def _of_region(region: Box, words: Sequence[PdfWord]) -> PdfTable | None:
    left, top, right, bottom = region
    inside = {
        number
        for number, word in enumerate(words)
        if left - _SAME_ENDS <= _center(word)[0] <= right + _SAME_ENDS
        and top <= _center(word)[1] <= bottom
    }
    lines = _baselines([words[number] for number in sorted(inside)])
    if len(lines) < 2:
        return None
    gaps = _gaps(lines)
    if not gaps or len(gaps) >= _MAX_COLUMNS:
        return None
    rows = [_cells(line, gaps) for line in lines]
    texts = [[" ".join(word.text for word in cell) for cell in row] for row in rows]
    filled = [cell for row in texts for cell in row if cell]
    if median(map(len, filled)) > _SHORT_CELL:
        return None  # columns of prose between rules
    box = around([region, *(words[number].box for number in inside)])
    return _table(box, texts, inside)


def _gaps(lines: Sequence[Sequence[PdfWord]]) -> list[float]:
    """Middles of the gaps between columns, which almost no line crosses."""
    height = median(word.box[3] - word.box[1] for line in lines for word in line)
    steps: dict[float, int] = defaultdict(int)
    for line in lines:
        for start, end in _spans(line, 0.6 * height):
            steps[start] += 1
            steps[end] -= 1
    places = sorted(steps)
    allowed = int(_CROSSED * len(lines))
    found: list[float] = []
    covered, opened = 0, None
    for place in places:
        covered += steps[place]
        if covered <= allowed:
            opened = place if opened is None else opened
        elif opened is not None:
            if opened > places[0] and place - opened >= 0.5 * height:
                found.append((opened + place) / 2)
            opened = None
    return found


def _spans(line: Sequence[PdfWord], joint: float) -> Iterator[tuple[float, float]]:
    """Runs of words on one line, separated by at most a space."""
    start = end = None
    for word in sorted(line, key=lambda word: word.box[0]):
        if start is None or end is None:
            start, end = word.box[0], word.box[2]
        elif word.box[0] - end <= joint:
            end = max(end, word.box[2])
        else:
            yield start, end
            start, end = word.box[0], word.box[2]
    if start is not None and end is not None:
        yield start, end


def _cells(line: Sequence[PdfWord], gaps: Sequence[float]) -> list[list[PdfWord]]:
    cells: list[list[PdfWord]] = [[] for _ in range(len(gaps) + 1)]
    for word in sorted(line, key=lambda word: word.box[0]):
        at = sum(1 for gap in gaps if _center(word)[0] > gap)
        cells[at].append(word)
    return cells
