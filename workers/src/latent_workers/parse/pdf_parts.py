"""Parts of a PDF document: headings, paragraphs, lists and tables, page by page, under their headings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from latent_core.domain.chunk import BlockType
from latent_workers.parse.pdf_headings import Typography
from latent_workers.parse.pdf_lines import Line
from latent_workers.parse.pdf_order import Item
from latent_workers.parse.pdf_outline import Entry, Outline, found, shown
from latent_workers.parse.pdf_sheet import Sheet
from latent_workers.parse.pdf_text import (
    Vocabulary,
    ends_sentence,
    is_full,
    is_item,
    paragraph,
)

_TOLD: Final = 3
"""Entries of the outline that pages show, from which on it is believed to name all headings."""


@dataclass(frozen=True, slots=True)
class Part:
    """A block, or the part of one between headings; ``lines`` are those it is made of, of a table none."""

    kind: BlockType
    text: str
    path: tuple[str, ...] = ()
    level: int | None = None
    lines: tuple[Line, ...] = ()
    aside: bool = False


class Writer:
    """Goes through the pages in order and remembers which headings hold."""

    def __init__(self, outline: Outline, types: Typography, vocabulary: Vocabulary) -> None:
        self._outline = outline
        self._types = types
        self._vocabulary = vocabulary
        self._deepest = max((e.level for page in outline.values() for e in page), default=0)
        self._stack: list[tuple[int, str]] = []

    def parts(self, page: int, items: Sequence[Item]) -> Iterator[Part]:
        """The items of ``page``, cut where a line is a heading."""
        expected = list(self._outline.get(page, ()))
        said = shown(expected, [[line.text for line in item.lines] for item in items])
        # What the page does not show (a chapter's opening picture) holds from its top.
        while expected and not said.pop(0):
            self._enter_entry(expected.pop(0))
        for item in _titles_joined(items, self._types):
            if item.table is not None:
                yield from self._table(item)
            elif item.aside:
                yield replace(self._text(item.lines), aside=True)
            else:
                yield from self._cut(item.lines, expected)
        for entry in expected:
            self._enter_entry(entry)

    def _table(self, item: Item) -> Iterator[Part]:
        if item.table is None:
            return
        path = self._path()
        if item.table.title:
            yield Part(BlockType.PARAGRAPH, item.table.title, path)
        yield Part(BlockType.TABLE, item.table.markdown, path)

    def _cut(self, lines: Sequence[Line], expected: list[Entry]) -> Iterator[Part]:
        pending: list[Line] = []
        rest = list(lines)
        while rest:
            count = self._heading(rest, pending, expected)
            if not count:
                pending.append(rest.pop(0))
                continue
            if pending:
                yield self._text(pending)
                pending = []
            yield self._title(rest[:count], expected)
            del rest[:count]
        if pending:
            yield self._text(pending)

    def _heading(
        self, lines: Sequence[Line], before: Sequence[Line], expected: Sequence[Entry]
    ) -> int:
        """How many of the next lines are a heading."""
        count, _ = found([line.text for line in lines[:3]], expected)
        if count:
            return count
        count, level = self._types.heading(lines)
        if count and before and self._is_within(before, lines[0], level):
            return 0
        return count

    def _is_within(self, before: Sequence[Line], line: Line, level: int | None) -> bool:
        """Whether large or bold words are a part of the paragraph that stands ``before`` them."""
        last = before[-1]
        if self._types.level(last) == level:
            return True
        left = min(one.box[0] for one in before)
        right = max(one.box[2] for one in before)
        alike = line.size == last.size and not ends_sentence(last.text)
        return alike and len(before) > 1 and is_full(last, line, left, right)

    def _title(self, lines: Sequence[Line], expected: list[Entry]) -> Part:
        _, passed = found([line.text for line in lines], expected)
        words = " ".join(line.text for line in lines)
        if passed:
            for entry in expected[:passed]:
                self._enter_entry(entry)
            del expected[:passed]
        else:
            _, level = self._types.heading(lines)
            self._enter(self._deepest + (level or 1), words)
        return Part(BlockType.HEADING, words, self._path(), self._stack[-1][0], tuple(lines))

    def _text(self, lines: Sequence[Line]) -> Part:
        text = paragraph(lines, self._vocabulary)
        said = text.split("\n")
        listed = sum(map(is_item, said)) * 2 >= len(said)
        kind = BlockType.LIST if listed and is_item(text) else BlockType.PARAGRAPH
        return Part(kind, text, self._path(), lines=tuple(lines))

    def _enter_entry(self, entry: Entry) -> None:
        self._enter(entry.level, entry.title)

    def _enter(self, level: int, title: str) -> None:
        self._stack = [above for above in self._stack if above[0] < level]
        self._stack.append((level, title))

    def _path(self) -> tuple[str, ...]:
        return tuple(title for _, title in self._stack)


def _titles_joined(items: Sequence[Item], types: Typography) -> Iterator[Item]:
    """Items, those as one that are lines of one heading in large type."""
    last: Item | None = None
    for item in items:
        if last is not None and _is_one_title(last, item, types):
            last = Item.of([*last.lines, *item.lines])
            continue
        if last is not None:
            yield last
        last = item
    if last is not None:
        yield last


def _is_one_title(one: Item, other: Item, types: Typography) -> bool:
    sizes = {line.size for item in (one, other) for line in item.lines}
    if (
        one.aside
        or other.aside
        or len(sizes) != 1
        or not sizes <= set(types.sizes)
        or not one.lines
        or not other.lines
    ):
        return False
    gap = other.box[1] - one.box[3]
    height = other.lines[0].height
    return -0.2 * height <= gap < 0.6 * height


def is_told(outline: Outline, sheets: Iterable[Sheet]) -> bool:
    """Whether the outline names headings that the pages show, rather than file names or nothing."""
    count = 0
    for sheet in sheets:
        blocks = [[line.text for line in item.lines] for item in sheet.items or ()]
        count += sum(shown(outline.get(sheet.number, ()), blocks))
        if count >= _TOLD:
            return True
    return False
