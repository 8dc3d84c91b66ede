"""OpenDocument texts: headings by their outline level, lists, tables with merged cells, footnotes in place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from lxml.etree import _Element as Element

from latent_core.domain.errors import IngestFailed
from latent_workers.parse.office.package import Package, attribute, child, local, whole_number
from latent_workers.parse.office.writing import OfficeText
from latent_workers.parse.text.compose import MarkdownText, Span, spread

_MAX_REPEATS: Final = 1_000
"""Of a cell or row; an empty rest of a table may be repeated a million times."""
_MAX_SPACES: Final = 100
_SILENT: Final = frozenset(
    ["tracked-changes", "sequence-decls", "variable-decls", "forms", "annotation", "note-citation"]
)
_INLINE_BLOCKS: Final = frozenset({"text-box", "note-body"})


def read(package: Package, name: str) -> OfficeText:
    _refuse_encrypted(package, name)
    text = MarkdownText(name)
    root = package.xml("content.xml")
    reader = _Reader(text, _numbered(root))
    body = child(root, "body", "text")
    reader.blocks(() if body is None else body)
    meta = _meta(package)
    return OfficeText(text.text(), title=meta.pop("title", None), meta=meta)


def _refuse_encrypted(package: Package, name: str) -> None:
    listed = "META-INF/manifest.xml"
    if listed in package and b"encryption-data" in package.read(listed):
        raise IngestFailed(
            f"'{name}' is encrypted: save it without a password",
            reason="encrypted",
        )


def _meta(package: Package) -> dict[str, Any]:
    if "meta.xml" not in package:
        return {}
    named = {"title": "title", "creator": "author", "creation-date": "date", "date": "modified"}
    found = {
        named.get(local(one), ""): " ".join((one.text or "").split())
        for one in package.xml("meta.xml").iter()
    }
    return {key: value for key, value in found.items() if key and value}


def _numbered(root: Element) -> frozenset[tuple[str | None, int]]:
    return frozenset(
        (attribute(style, "name"), whole_number(attribute(level, "level"), 1) - 1)
        for style in root.iter()
        if local(style) == "list-style"
        for level in style
        if local(level) == "list-level-style-number" and attribute(level, "num-format")
    )


class _Reader:
    def __init__(self, text: MarkdownText, numbered: frozenset[tuple[str | None, int]]) -> None:
        self._text = text
        self._numbered = numbered
        """Styles of lists, with the depths that they number."""

    def blocks(self, elements: Iterable[Element]) -> None:
        for element in elements:
            tag = local(element)
            if tag == "h":
                words, boxes = _words(element)
                self._text.heading(whole_number(attribute(element, "outline-level"), 1), words)
                self.blocks(boxes)
            elif tag == "p":
                words, boxes = _words(element)
                self._text.paragraph(words)
                self.blocks(boxes)
            elif tag == "list":
                self._list(element, 0)
            elif tag == "table":
                self._table(element)
            elif tag not in _SILENT:
                self.blocks(element)

    def _list(self, element: Element, depth: int, style: str | None = None) -> None:
        style = attribute(element, "style-name") or style
        number = 1 if (style, depth) in self._numbered else None
        for item in element:
            if local(item) not in ("list-item", "list-header"):
                continue
            is_first = True
            for one in item:
                if local(one) == "list":
                    self._list(one, depth + 1, style)
                elif local(one) == "p":
                    words, boxes = _words(one)
                    if is_first:
                        self._text.item(words, depth=depth, number=number)
                    else:
                        self._text.paragraph(words)
                    self.blocks(boxes)
                    is_first = False
                else:
                    self.blocks([one])
            if number is not None and not is_first:
                number += 1

    def _table(self, table: Element) -> None:
        rows = list(_rows(table, header=False))
        nested = any(local(inner) == "table" and inner is not table for inner in table.iter())
        if nested or all(len(_cells(row)) < 2 for row, _ in rows):
            for row, _ in rows:
                for cell in _cells(row):
                    self.blocks(cell)
            return
        grid: list[list[str]] = []
        merged: list[Span] = []
        for row, _ in rows:
            words: list[str] = []
            for cell in _cells(row):
                columns = whole_number(attribute(cell, "number-columns-spanned"), 1)
                height = whole_number(attribute(cell, "number-rows-spanned"), 1)
                if columns > 1 or height > 1:
                    merged.append(Span(len(grid), len(words), height, columns))
                repeated = whole_number(attribute(cell, "number-columns-repeated"), 1)
                words += [_words_of_cell(cell)] * min(repeated, _MAX_REPEATS)
            grid.append(words)
        spread(grid, merged)
        self._text.grid(grid, headers=max(1, sum(header for _, header in rows)))


def _rows(element: Element, *, header: bool) -> Iterator[tuple[Element, bool]]:
    for one in element:
        if local(one) == "table-row":
            yield one, header
        elif local(one).startswith("table-"):
            yield from _rows(one, header=header or local(one) == "table-header-rows")


def _cells(row: Element) -> list[Element]:
    return [one for one in row if local(one) in ("table-cell", "covered-table-cell")]


def _words_of_cell(cell: Element) -> str:
    parts: list[str] = []
    for one in cell.iter():
        if local(one) in ("p", "h"):
            words, _ = _words(one)
            parts.append(words)
    return " ".join(" ".join(parts).split())


def _words(paragraph: Element) -> tuple[str, list[Element]]:
    """The words of a paragraph, and the text boxes and footnotes that stand in it."""
    parts: list[str] = [paragraph.text or ""]
    boxes: list[Element] = []
    for one in paragraph:
        _collect(one, parts, boxes)
    return "".join(parts).replace("\r", " "), boxes


def _collect(element: Element, parts: list[str], boxes: list[Element]) -> None:
    tag = local(element)
    if tag in _INLINE_BLOCKS:
        boxes.append(element)
    elif tag == "s":
        parts.append(" " * min(_MAX_SPACES, whole_number(attribute(element, "c"), 1)))
    elif tag == "tab":
        parts.append(" ")
    elif tag == "line-break":
        parts.append("\n")
    elif tag and tag not in _SILENT:
        parts.append(element.text or "")
        for one in element:
            _collect(one, parts, boxes)
    parts.append(element.tail or "")
