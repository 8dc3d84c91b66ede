"""One page of a PDF: its lines and tables in order, independent of the other pages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from latent_workers.parse.pdf import grid as pdf_rulings
from latent_workers.parse.pdf.grid import Log
from latent_workers.parse.pdf.lines import (
    CELL_BREAK,
    Line,
    PageText,
    PdfWord,
    around,
    on_one_baseline,
    read,
    rows,
)
from latent_workers.parse.pdf.order import PageItem, ordered, split_columns
from latent_workers.parse.pdf.tables import PdfTable, find

_PICTURES: Final = frozenset({"fill-image", "fill-imgmask", "fill-shade"})
_MIN_PICTURE: Final = 0.02
"""Fraction of the page: a smaller picture is a logo or a rule."""
_MANY_PATHS: Final = 20
_ROW_GAP: Final = 1.5


@dataclass(frozen=True, slots=True)
class Sheet:
    """``items`` is ``None`` if the page cannot be read; sizes in points, ``height`` in reading direction."""

    number: int
    width: float
    height: float
    items: tuple[PageItem, ...] | None = None
    text_height: float = 0.0
    replaced: int = 0
    pictured: bool = False
    """Whether it shows anything besides text."""

    @property
    def lines(self) -> list[Line]:
        return [line for item in self.items or () for line in item.lines]


def sheet_of(page: Any, number: int) -> Sheet:
    """The contents of a page; raises MuPDF's errors."""
    text = read(page)
    log: Log = page.get_bboxlog()
    tables = _tables(page, log, text)
    outside = _outside(text, tables)
    items = ordered([*map(_of_table, tables), *_blocks(outside)])
    askew = [replace(PageItem.of(lines), aside=True) for lines in _by_block(text.askew)]
    return Sheet(
        number=number,
        width=page.rect.width,
        height=page.rect.height,
        items=(*_together(items), *askew),
        text_height=text.frame.height,
        replaced=text.replaced,
        pictured=_is_pictured(log, page.rect.width * page.rect.height),
    )


def _tables(page: Any, log: Log, text: PageText) -> list[tuple[PdfTable, list[PdfWord]]]:
    """Tables, each with its words."""
    if not text.lines:
        return []
    rulings = pdf_rulings.read(page, log, text.frame)
    if not rulings.across:
        return []
    words = text.words()
    found = find(rulings, words)
    return [(table, [words[number] for number in sorted(table.words)]) for table in found]


def _of_table(found: tuple[PdfTable, list[PdfWord]]) -> PageItem:
    table, words = found
    return PageItem(table.box, min(word.line for word in words), table=table)


def _outside(text: PageText, tables: Sequence[tuple[PdfTable, list[PdfWord]]]) -> Iterator[Line]:
    """The lines outside of tables."""
    if not tables:
        yield from text.lines
        return
    inside = {word for _, words in tables for word in words}
    words_of_line = defaultdict(list)
    for word in text.words():
        words_of_line[word.line].append(word)
    for line in text.lines:
        rest = [word for word in words_of_line[line.number] if word not in inside]
        if len(rest) == len(words_of_line[line.number]):
            yield line
        elif rest:
            rest_text = " ".join(word.text for word in rest)
            yield replace(line, text=rest_text, box=around(word.box for word in rest))


def _by_block(lines: Sequence[Line]) -> list[list[Line]]:
    blocks: dict[int, list[Line]] = defaultdict(list)
    for line in lines:
        blocks[line.number[0]].append(line)
    return list(blocks.values())


def _blocks(lines: Iterator[Line]) -> Iterator[PageItem]:
    """MuPDF's blocks, split at gutters, with the text on one baseline as one line."""
    for block in _by_block(list(lines)):
        for column in split_columns(block):
            yield PageItem.of(list(rows(column)))


def _together(items: Sequence[PageItem]) -> list[PageItem]:
    """Joins neighbours on one baseline into one line, and rows of cells above each other into one block."""
    found: list[PageItem] = []
    for item in items:
        last = found[-1] if found else None
        merged = _merged(last, item) if last is not None else None
        if merged is None:
            found.append(item)
        else:
            found[-1] = PageItem.of(merged)
    return found


def _merged(last: PageItem, item: PageItem) -> list[Line] | None:
    if not last.lines or len(item.lines) != 1:
        return None
    one, other = last.lines[-1], item.lines[0]
    if on_one_baseline(one, other):
        row = list(rows([one, other]))
        return [*last.lines[:-1], *row] if len(row) == 1 else None
    above = last.lines[-2] if len(last.lines) > 1 else one
    if CELL_BREAK in one.text and CELL_BREAK in other.text and CELL_BREAK in above.text:
        gap = other.box[1] - one.box[3]
        return [*last.lines, other] if 0 <= gap < _ROW_GAP * one.height else None
    return None


def _is_pictured(log: Log, area: float) -> bool:
    paths = 0
    for kind, (x0, y0, x1, y1) in log:
        if kind in _PICTURES and (x1 - x0) * (y1 - y0) >= _MIN_PICTURE * area:
            return True
        paths += kind in pdf_rulings.PATHS
    return paths >= _MANY_PATHS
