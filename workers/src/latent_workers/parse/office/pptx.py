"""PowerPoint presentations (OOXML): a heading with the number of each slide, its text in the order of its shapes, and
the speaker's notes.

Read from the XML itself: python-pptx loads every picture and film into memory and gives no text of diagrams
(docs/adr/0040-office-formats.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from lxml.etree import _Element as Element

from latent_workers.parse.office.package import (
    Package,
    Relationship,
    attribute,
    child,
    children,
    local,
    properties,
    whole_number,
)
from latent_workers.parse.office.writing import OfficeText
from latent_workers.parse.text.compose import MarkdownText, Span, spread

NOTES: Final = "Speaker notes"
_TITLES: Final = frozenset({"title", "ctrTitle"})
_RUNNING: Final = frozenset({"dt", "ftr", "sldNum", "hdr", "sldImg"})
"""Placeholders that repeat on every slide."""
_LISTED: Final = frozenset({"body", "obj", ""})
"""Placeholders whose paragraphs are points of a list."""
_SHAPES: Final = frozenset({"sp", "grpSp", "graphicFrame", "pic", "cxnSp"})
_BULLETS: Final = frozenset({"buChar", "buAutoNum", "buBlip"})
_MAX_POINTS: Final = 500
"""Of a chart: rows of its table."""


def read(package: Package, name: str) -> OfficeText:
    main = next(
        (r.target for r in package.relationships().values() if r.kind == "officeDocument"),
        "ppt/presentation.xml",
    )
    related = package.relationships(main)
    text = MarkdownText(name)
    title = None
    order = children(child(package.xml(main), "sldIdLst"), "sldId")
    for number, slide in enumerate(order, start=1):
        link = related.get(_relation(slide))
        if link is not None and link.target in package:
            shown = _Slide(package, link.target, text).write(number)
            title = title or shown
    meta = {**properties(package), "slides": len(order)}
    return OfficeText(text.text(), title=meta.pop("title", None) or title, meta=meta)


def _relation(element: Element) -> str:
    """The id of the relationship; the element may have an id of its own besides."""
    return next(
        (str(v) for k, v in element.attrib.items() if str(k).endswith("relationships}id")), ""
    )


class _Slide:
    def __init__(self, package: Package, part: str, text: MarkdownText) -> None:
        self._package = package
        self._text = text
        self._root = package.xml(part)
        self._related = package.relationships(part)

    def write(self, number: int) -> str | None:
        """Writes the slide; its title."""
        shapes = list(_shapes(child(self._root, "cSld", "spTree")))
        title = next((shape for shape in shapes if _placeholder(shape) in _TITLES), None)
        words = " ".join(_text_of(title).split()) if title is not None else ""
        self._text.heading(1, f"Slide {number}: {words}" if words else f"Slide {number}")
        for shape in shapes:
            if shape is not title:
                self._shape(shape)
        self._notes()
        return words or None

    def _shape(self, shape: Element) -> None:
        kind = _placeholder(shape)
        if kind in _RUNNING:
            return
        if local(shape) == "graphicFrame":
            self._graphic(shape)
            return
        body = child(shape, "txBody")
        for paragraph in children(body, "p"):
            words = _words(paragraph)
            if not words.strip():
                continue
            depth = whole_number(attribute(child(paragraph, "pPr"), "lvl"))
            if kind in _LISTED or depth or _has_bullet(paragraph):
                self._text.item(words, depth=depth)
            else:
                self._text.paragraph(words)

    def _graphic(self, frame: Element) -> None:
        for one in frame.iter():
            tag = local(one)
            if tag == "tbl":
                self._table(one)
            elif tag == "chart" and (link := self._related.get(_relation(one))):
                self._chart(link)
            elif tag == "relIds":
                identity = next(
                    (str(v) for k, v in one.attrib.items() if str(k).endswith("}dm")), ""
                )
                self._diagram(self._related.get(identity))

    def _table(self, table: Element) -> None:
        grid: list[list[str]] = []
        merged: list[Span] = []
        for number, row in enumerate(children(table, "tr")):
            cells = children(row, "tc")
            for at, cell in enumerate(cells):
                columns = whole_number(cell.get("gridSpan"), 1)
                rows = whole_number(cell.get("rowSpan"), 1)
                if columns > 1 or rows > 1:
                    merged.append(Span(number, at, rows, columns))
            grid.append([" ".join(_text_of(cell).split()) for cell in cells])
        spread(grid, merged)
        self._text.grid(grid)

    def _chart(self, link: Relationship) -> None:
        """A chart as a table of its stored values."""
        if link.target not in self._package:
            return
        root = self._package.xml(link.target)
        title = next((one for one in root.iter() if local(one) == "title"), None)
        if title is not None:
            self._text.paragraph(_text_of(title))
        series = [one for one in root.iter() if local(one) == "ser"]
        columns = [
            [" ".join(_values(child(one, "tx"))), *_values(_first(one, "val", "yVal"))]
            for one in series
        ]
        named = max((_values(_first(one, "cat", "xVal")) for one in series), key=len, default=[])
        columns.insert(0, ["", *named])
        height = min(max(map(len, columns)), _MAX_POINTS)
        self._text.grid([[c[n] if n < len(c) else "" for c in columns] for n in range(height)])

    def _diagram(self, link: Relationship | None) -> None:
        """The points of a diagram, in the order of its data."""
        if link is None or link.target not in self._package:
            return
        for point in self._package.xml(link.target).iter():
            if local(point) == "pt" and (words := _text_of(point)).strip():
                self._text.item(words)

    def _notes(self) -> None:
        link = next((one for one in self._related.values() if one.kind == "notesSlide"), None)
        if link is None or link.target not in self._package:
            return
        tree = child(self._package.xml(link.target), "cSld", "spTree")
        notes = [
            shape
            for shape in _shapes(tree)
            if _placeholder(shape) not in _RUNNING and _text_of(shape).strip()
        ]
        if notes:
            self._text.heading(2, NOTES)
        for shape in notes:
            for paragraph in _paragraphs(shape):
                self._text.paragraph(_words(paragraph))


def _shapes(tree: Element | None) -> Iterator[Element]:
    """Shapes in their order, those of groups in place; of alternatives the first."""
    for one in () if tree is None else tree:
        tag = local(one)
        if tag == "grpSp":
            yield from _shapes(one)
        elif tag in _SHAPES:
            yield one
        elif tag == "AlternateContent":
            yield from _shapes(next(iter(one), None))


def _placeholder(shape: Element) -> str | None:
    """The type of a placeholder, empty for the general one; ``None`` for other shapes."""
    for one in shape:
        if local(one).startswith("nv"):
            mark = child(one, "nvPr", "ph")
            return None if mark is None else mark.get("type", "")
    return None


def _has_bullet(paragraph: Element) -> bool:
    own = child(paragraph, "pPr")
    return own is not None and any(local(one) in _BULLETS for one in own)


def _paragraphs(element: Element) -> Iterable[Element]:
    return (one for one in element.iter() if local(one) == "p")


def _text_of(element: Element) -> str:
    return "\n".join(map(_words, _paragraphs(element)))


def _words(paragraph: Element) -> str:
    parts: list[str] = []
    for one in paragraph.iter():
        tag = local(one)
        if tag == "t":
            parts.append(one.text or "")
        elif tag == "br":
            parts.append("\n")
    return "".join(parts)


def _first(element: Element, *names: str) -> Element | None:
    return next((one for name in names if (one := child(element, name)) is not None), None)


def _values(element: Element | None) -> list[str]:
    return (
        [] if element is None else [one.text or "" for one in element.iter() if local(one) == "v"]
    )
