"""A part of a page as Markdown: headings, paragraphs, lists, tables and code.

Reads HTML and trafilatura's tree, which uses other names for the same elements. Iterative, because the author of a
page decides its depth.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from lxml import etree
from lxml.etree import _Element as Element

from latent_workers.parse.text.compose import (
    MAX_CELLS_OF_ROW,
    cell,
    escaped,
    fenced,
    table,
    tidied,
)

_HEADINGS: Final = {f"h{n}": n for n in range(1, 7)}
_BLOCKS: Final = frozenset(
    [
        "p",
        "div",
        "section",
        "article",
        "main",
        "aside",
        "header",
        "footer",
        "nav",
        "figure",
        "figcaption",
        "address",
        "details",
        "summary",
        "center",
        "fieldset",
        "form",
        "dl",
        "dt",
        "dd",
        "hgroup",
        "body",
        "html",
        "table",
        "tbody",
        "thead",
        "tfoot",
        "tr",
        "td",
        "th",
        "caption",
        "row",
        "cell",
        "quote",
        "blockquote",
        "list",
        "ul",
        "ol",
        "menu",
        "item",
        "li",
        "fw",
        "ab",
        "head",
        "hr",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
    ]
)
_LISTS: Final = frozenset({"list", "ul", "ol", "dl", "menu"})
_ITEMS: Final = frozenset({"item", "li", "dt", "dd"})
_QUOTES: Final = frozenset({"quote", "blockquote"})
_BREAKS: Final = frozenset({"br", "lb"})
_ROWS: Final = ("tr", "row")
_CELLS: Final = frozenset({"td", "th", "cell"})
_SILENT: Final = frozenset(
    [
        "script",
        "style",
        "template",
        "noscript",
        "head_",
        "svg",
        "math_",
        "button",
        "select",
        "option",
        "textarea",
        "input",
        "iframe",
        "object",
        "graphic",
        "img",
    ]
)
_BREAK: Final = "\n"
_DEEPEST_LIST: Final = 8


def markdown_of(tree: Element) -> str:
    """Markdown; empty if there are no words."""
    writer = _MarkdownWriter()
    walker = etree.iterwalk(tree, events=("start", "end"))
    for event, element in walker:
        if event == "end":
            writer.close(element)
            if element is not tree:
                writer.say(element.tail)
        elif writer.open(element):
            writer.say(element.text)
        else:
            walker.skip_subtree()
    return writer.text()


@dataclass(slots=True)
class _List:
    ordered: bool
    number: int = 0


@dataclass(slots=True)
class _MarkdownWriter:
    parts: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    """Words of the current block."""
    lists: list[_List] = field(default_factory=list)
    quotes: int = 0
    heading: int = 0
    fresh_item: bool = False
    """The next words start a list item."""
    skipped: Element | None = None

    def say(self, text: str | None) -> None:
        if text:
            self.words.append(text.replace("\n", " "))

    def open(self, element: Element) -> bool:
        """Whether to descend into it; other elements are written here."""
        tag = element.tag
        if not isinstance(tag, str) or tag in _SILENT:
            self.skipped = element
            return False
        if tag in _BREAKS:
            self.words.append(_BREAK)
            return True
        if tag == "pre" or (tag == "code" and _is_block_of_code(element)):
            self._finish()
            self._put(fenced(_code_of(element)))
            self.skipped = element
            return False
        if tag == "table" and (rows := _rows(element)):
            self._finish()
            self._put(table(rows))
            self.skipped = element
            return False
        if tag in _BLOCKS:
            self._finish()
            self._enter(element, tag)
        elif tag == "code":
            self.words.append("`")
        return True

    def close(self, element: Element) -> None:
        if self.skipped is element:
            self.skipped = None
            return
        tag = element.tag
        if tag in _BLOCKS:
            self._finish()
            self._leave(tag)
        elif tag == "code":
            self.words.append("`")

    def text(self) -> str:
        self._finish()
        return "".join(self.parts).strip("\n")

    def _enter(self, element: Element, tag: str) -> None:
        if tag in _LISTS:
            self.lists.append(_List(tag == "ol" or element.get("rend") == "ol"))
        elif tag in _ITEMS:
            if self.lists:
                self.lists[-1].number += 1
                self.fresh_item = True
        elif tag in _QUOTES:
            self.quotes += 1
        else:
            self.heading = _level(element, tag) or self.heading

    def _leave(self, tag: str) -> None:
        if tag in _HEADINGS or tag == "head":
            self.heading = 0
        elif tag in _LISTS and self.lists:
            self.lists.pop()
            self.fresh_item = False
        elif tag in _QUOTES:
            self.quotes -= 1

    def _finish(self) -> None:
        """Write the current words as a block."""
        text = tidied("".join(self.words))
        self.words.clear()
        if not text:
            return
        if self.heading:
            text = f"{'#' * self.heading} {' '.join(text.split())}"
        else:
            text = "\n".join(map(escaped, text.split("\n")))
        self._put(text)

    def _put(self, text: str) -> None:
        """A block, inside its list item or quotation."""
        if not text:
            return
        if self.quotes and not self.lists:
            text = "\n".join(f"> {line}".rstrip() for line in text.split("\n"))
        tight = False
        if self.lists:
            tight = self.fresh_item
            text = self._indented(text)
        self.parts.append(("\n" if tight and self._after_item() else "\n\n") + text)

    def _after_item(self) -> bool:
        return bool(self.parts) and _IN_LIST.match(self.parts[-1]) is not None

    def _indented(self, text: str) -> str:
        depth = min(len(self.lists), _DEEPEST_LIST) - 1
        within = self.lists[-1]
        marker = f"{within.number}. " if within.ordered else "- "
        margin = "  " * depth if not within.ordered else "   " * depth
        first = margin + (marker if self.fresh_item else " " * len(marker))
        rest = margin + " " * len(marker)
        self.fresh_item = False
        lines = text.split("\n")
        return "\n".join([first + lines[0], *((rest + line).rstrip() for line in lines[1:])])


_IN_LIST: Final = re.compile(r"\n+ *(?:- |\d+\. )")


def _level(element: Element, tag: str) -> int:
    if tag == "head":
        tag = element.get("rend", "h2")
    return _HEADINGS.get(tag, 0)


def _is_block_of_code(element: Element) -> bool:
    """Trafilatura's name for ``pre``, unless it is inline code."""
    return "\n" in _code_of(element).strip("\n")


def _code_of(element: Element) -> str:
    """Its whole text; a break ends a line."""
    pieces: list[str] = []
    for event, inner in etree.iterwalk(element, events=("start", "end")):
        if event == "start":
            pieces += [_BREAK if inner.tag in _BREAKS else "", inner.text or ""]
        elif inner is not element:
            pieces.append(inner.tail or "")
    return "".join(pieces)


def _rows(table: Element) -> list[list[str]]:
    """Cells of a data table; empty for a layout table and for a table that is too wide."""
    if any(inner is not table for inner in table.iter("table")):
        return []
    rows = [
        [cell(" ".join(one.itertext())) for one in row if one.tag in _CELLS]
        for row in table.iter(*_ROWS)
    ]
    rows = [row for row in rows if any(row)]
    if len(rows) < 2 or not 2 <= max(map(len, rows)) <= MAX_CELLS_OF_ROW:
        return []
    return rows
