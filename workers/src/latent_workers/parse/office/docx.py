"""Word documents (OOXML): paragraphs by their outline level, lists, tables with merged cells, footnotes.

Read from the XML itself: python-docx and mammoth lose the text of content controls, inserted runs and text boxes
(docs/adr/0040-office-formats.md).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from lxml.etree import _Element as Element

from latent_workers.parse.office.package import (
    Package,
    attribute,
    child,
    children,
    local,
    properties,
    whole_number,
)
from latent_workers.parse.office.writing import OfficeText
from latent_workers.parse.text.compose import MarkdownText, Span, spread

_HEADING: Final = re.compile(r"heading ?([1-9])")
_BODY_TEXT: Final = 9
"""The outline level of text that is no heading."""
_DELETED: Final = frozenset(
    {"del", "moveFrom", "delText", "instrText", "Fallback", "pPr", "rPr", "sdtPr", "sdtEndPr"}
)
_READ_PROPERTIES: Final = frozenset({"pStyle", "outlineLvl", "numPr", "gridSpan", "vMerge"})
_BREAKS: Final = frozenset({"br", "cr"})
_HYPHENS: Final = {"noBreakHyphen": "-", "softHyphen": ""}
_BLOCKS: Final = frozenset({"p", "tbl"})
_OFF: Final = frozenset({"0", "false", "off"})
_MAX_CELL_CHARS: Final = 1_000
"""A table with a longer cell is the layout of a page, and is read cell by cell."""
_MAX_STYLES_DEEP: Final = 20


@dataclass(frozen=True, slots=True)
class _Style:
    name: str
    based_on: str | None
    level: int | None
    """Outline level, from 0."""
    numbering: tuple[str, int] | None


@dataclass(slots=True)
class _Lists:
    """Which lists are numbered, and how far."""

    numbered: dict[tuple[str, int], bool] = field(default_factory=dict)
    counts: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def next(self, number_id: str, depth: int) -> int | None:
        if not self.numbered.get((number_id, depth), False):
            return None
        counts = self.counts[number_id]
        del counts[depth + 1 :]
        counts += [0] * (depth + 1 - len(counts))
        counts[depth] += 1
        return counts[depth]


def read(package: Package, name: str) -> OfficeText:
    main = next(
        (r.target for r in package.relationships().values() if r.kind == "officeDocument"),
        "word/document.xml",
    )
    related = {one.kind: one.target for one in package.relationships(main).values()}
    reader = _Reader(MarkdownText(name), _styles(package, related), _numbering(package, related))
    for body in children(package.xml(main, of_each="tr", shrink=_shrink_row), "body"):
        reader.blocks(body)
    for kind in ("footnotes", "endnotes"):
        if related.get(kind, "") in package:
            reader.notes(package.xml(related[kind]))
    meta = properties(package)
    return OfficeText(reader.text.text(), title=meta.pop("title", None) or reader.title, meta=meta)


def _styles(package: Package, related: dict[str, str]) -> dict[str, _Style]:
    part = related.get("styles", "")
    if part not in package:
        return {}
    return {
        attribute(one, "styleId") or "": _Style(
            (attribute(child(one, "name"), "val") or "").lower(),
            attribute(child(one, "basedOn"), "val"),
            _outline(child(one, "pPr")),
            _number_of(child(one, "pPr")),
        )
        for one in children(package.xml(part), "style")
    }


def _outline(properties: Element | None) -> int | None:
    value = attribute(child(properties, "outlineLvl"), "val")
    return None if value is None else whole_number(value, _BODY_TEXT)


def _number_of(properties: Element | None) -> tuple[str, int] | None:
    number = child(properties, "numPr")
    identity = attribute(child(number, "numId"), "val")
    if identity is None:
        return None
    return identity, whole_number(attribute(child(number, "ilvl"), "val"))


def _numbering(package: Package, related: dict[str, str]) -> _Lists:
    part = related.get("numbering", "")
    lists = _Lists()
    if part not in package:
        return lists
    root = package.xml(part)
    abstract = {
        attribute(one, "abstractNumId"): {
            whole_number(attribute(level, "ilvl")): attribute(child(level, "numFmt"), "val")
            for level in children(one, "lvl")
        }
        for one in children(root, "abstractNum")
    }
    for one in children(root, "num"):
        levels = abstract.get(attribute(child(one, "abstractNumId"), "val"), {})
        for depth, style in levels.items():
            lists.numbered[attribute(one, "numId") or "", depth] = style not in ("bullet", "none")
    return lists


def _shrink_row(row: Element) -> None:
    """Removes what is not read of a table's row: a table of 300,000 cells would take 300 MB."""
    for unread in list(row.iter("{*}rPr", "{*}tcPr", "{*}pPr")):
        parent = unread.getparent()
        if parent is not None and not any(local(one) in _READ_PROPERTIES for one in unread):
            parent.remove(unread)
    for run in list(row.iter("{*}r")):
        parent = run.getparent()
        if parent is not None and len(run) == 1 and local(run[0]) == "t":
            parent.replace(run, run[0])


@dataclass(slots=True)
class _Reader:
    text: MarkdownText
    styles: dict[str, _Style]
    lists: _Lists
    title: str | None = None

    def blocks(self, elements: Iterable[Element]) -> None:
        """Paragraphs and tables in order; what only contains them is looked through."""
        for element in elements:
            tag = local(element)
            if tag == "p":
                self._paragraph(element)
            elif tag == "tbl":
                self._table(element)
            elif tag not in _DELETED:
                self.blocks(element)

    def notes(self, root: Element) -> None:
        for note in root:
            if attribute(note, "type") in (None, "normal"):
                words = _words_of_blocks(note)
                if words:
                    self.text.paragraph(f"[{attribute(note, 'id')}] {words}")

    def _paragraph(self, paragraph: Element) -> None:
        words, boxes = _words(paragraph)
        if words.strip():
            self._write(words, child(paragraph, "pPr"))
        for box in boxes:
            self.blocks(box)

    def _write(self, words: str, properties: Element | None) -> None:
        style = attribute(child(properties, "pStyle"), "val")
        chain = list(self._chain(style))
        level = self._level(properties, chain)
        if chain and chain[0].name == "title" and self.title is None:
            self.title = " ".join(words.split())
        if level is not None and level < _BODY_TEXT:
            self.text.heading(level + 1, words)
            return
        numbering = _number_of(properties)
        if numbering is None:
            numbering = next((one.numbering for one in chain if one.numbering), None)
        if numbering is None or numbering[0] == "0":
            self.text.paragraph(words)
            return
        number = self.lists.next(*numbering)
        self.text.item(words, depth=numbering[1], number=number)

    def _chain(self, style: str | None) -> Iterator[_Style]:
        for _ in range(_MAX_STYLES_DEEP):
            found = self.styles.get(style or "")
            if found is None:
                return
            yield found
            style = found.based_on

    def _level(self, properties: Element | None, chain: list[_Style]) -> int | None:
        own = _outline(properties)
        if own is not None:
            return own
        for style in chain:
            if style.level is not None:
                return style.level
            if match := _HEADING.fullmatch(style.name):
                return int(match[1]) - 1
        return None

    def _table(self, table: Element) -> None:
        rows = list(_rows(table))
        grid, merged = ([], []) if _is_layout(table, rows) else _grid(rows)
        if any(len(words) > _MAX_CELL_CHARS for line in grid for words in line):
            grid = []
        if not grid:
            for row in rows:
                for cell in _cells(row):
                    self.blocks(cell)
            return
        headers = max(1, _header_rows(rows))
        del rows
        table.clear()  # a large one takes more memory than its words
        spread(grid, merged)
        self.text.grid(grid, headers=headers)


def _is_layout(table: Element, rows: list[Element]) -> bool:
    """Whether a table only places blocks: it has one row or one column, or contains tables."""
    if len(rows) < 2 or all(sum(1 for _ in _cells(row)) < 2 for row in rows):
        return True
    return any(local(inner) == "tbl" and inner is not table for inner in table.iter())


def _rows(table: Element) -> Iterator[Element]:
    for one in table:
        if local(one) == "tr":
            yield one
        elif local(one) not in _DELETED and local(one) not in _BLOCKS:
            yield from _rows(one)


def _cells(row: Element) -> Iterator[Element]:
    for one in row:
        if local(one) == "tc":
            yield one
        elif local(one) not in _DELETED and local(one) not in _BLOCKS:
            yield from _cells(one)


def _header_rows(rows: list[Element]) -> int:
    """The first rows that are repeated on every page."""
    count = 0
    for row in rows:
        mark = child(row, "trPr", "tblHeader")
        if mark is None or (attribute(mark, "val") or "") in _OFF:
            break
        count += 1
    return count


def _grid(rows: list[Element]) -> tuple[list[list[str]], list[Span]]:
    grid: list[list[str]] = []
    merged: list[Span] = []
    open_below: dict[int, Span] = {}
    for number, row in enumerate(rows):
        words: list[str] = [""] * whole_number(attribute(child(row, "trPr", "gridBefore"), "val"))
        below: dict[int, Span] = {}
        for cell in _cells(row):
            own = child(cell, "tcPr")
            columns = max(1, whole_number(attribute(child(own, "gridSpan"), "val"), 1))
            columns = min(columns, 1_000)
            vertical = child(own, "vMerge")
            at = len(words)
            goes_on = vertical is not None and attribute(vertical, "val") != "restart"
            span = open_below.get(at)
            if goes_on and span is not None:
                span = Span(span.row, at, number - span.row + 1, columns)
            else:
                span = Span(number, at, 1, columns)
            if vertical is not None:
                below[at] = span
            if span.columns > 1 or span.rows > 1:
                merged.append(span)
            words += [_words_of_blocks(cell), *[""] * (columns - 1)]
        grid.append(words)
        open_below = below
    return grid, merged


def _words_of_blocks(element: Element) -> str:
    """The words of all paragraphs in it, in order."""
    parts: list[str] = []
    for paragraph in _paragraphs(element):
        words, boxes = _words(paragraph)
        parts += [words, *map(_words_of_blocks, boxes)]
    return " ".join(" ".join(parts).split())


def _paragraphs(element: Element) -> Iterator[Element]:
    for one in element:
        if local(one) == "p":
            yield one
        elif local(one) not in _DELETED:
            yield from _paragraphs(one)


def _words(paragraph: Element) -> tuple[str, list[Element]]:
    """The words of a paragraph without what was deleted, and the text boxes that are anchored in it."""
    parts: list[str] = []
    boxes: list[Element] = []
    _collect(paragraph, parts, boxes)
    return "".join(parts), boxes


def _collect(element: Element, parts: list[str], boxes: list[Element]) -> None:
    for one in element:
        tag = local(one)
        if tag == "t":
            parts.append(one.text or "")
        elif tag == "txbxContent":
            boxes.append(one)
        elif tag == "tab":
            parts.append(" ")
        elif tag in _BREAKS:
            parts.append("\n")
        elif tag in _HYPHENS:
            parts.append(_HYPHENS[tag])
        elif tag in ("footnoteReference", "endnoteReference"):
            parts.append(f" [{attribute(one, 'id')}] ")
        elif tag not in _DELETED:
            _collect(one, parts, boxes)
