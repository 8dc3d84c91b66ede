"""Parts of a PDF document: headings, paragraphs, lists and tables, page by page, under their headings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from latent_core.domain.chunk import BlockType
from latent_workers.parse.pdf.lines import Line
from latent_workers.parse.pdf.order import PageItem
from latent_workers.parse.pdf.outline import Entry, Outline, found, shown
from latent_workers.parse.pdf.sheet import Sheet
from latent_workers.parse.pdf.text import (
    Vocabulary,
    ends_sentence,
    is_full,
    is_item,
    paragraph,
)

_LARGER: Final = 1.12
_AS_LARGE: Final = 0.95
_MAX_CHARS: Final = 150
_MAX_BOLD_CHARS: Final = 90
_MAX_LINES: Final = 4
_RARE: Final = 0.2
"""Share of a document's letters: larger type that is more frequent is body text."""
_LEVELS: Final = 5
_MEAN_CHARS: Final = 100


@dataclass(frozen=True, slots=True)
class Typography:
    """Font sizes of a document: of its body, and of its headings, largest first."""

    body: float = 0.0
    sizes: tuple[float, ...] = ()
    bold: bool = False
    """Bold lines are headings as well, below the larger sizes."""

    def level(self, line: Line) -> int | None:
        """The level of a line by its type alone, from 1."""
        for level, size in enumerate(self.sizes, start=1):
            if line.size == size:
                return min(level, _LEVELS)
        if self.bold and line.bold and line.size >= _AS_LARGE * self.body:
            return min(len(self.sizes) + 1, _LEVELS + 1)
        return None

    def heading(self, lines: Sequence[Line]) -> tuple[int, int | None]:
        """The number of first lines of a block that are a heading, and its level."""
        level = self.level(lines[0]) if lines else None
        if level is None:
            return 0, None
        count = 1
        # One more than a heading may have tells that it is none.
        while count < min(len(lines), _MAX_LINES + 1) and _goes_on(lines[count - 1], lines[count]):
            count += 1
        text = " ".join(line.text for line in lines[:count])
        max_chars = _MAX_CHARS if level <= len(self.sizes) else _MAX_BOLD_CHARS
        if count > _MAX_LINES or len(text) > max_chars or not _is_title(text):
            return 0, None
        if count < len(lines) and lines[count].text[:1].islower():
            return 0, None
        return count, level


def _goes_on(line: Line, following: Line) -> bool:
    return following.size == line.size and following.bold == line.bold


def _is_title(text: str) -> bool:
    letters = sum(map(str.isalpha, text))
    return letters >= 2 and letters * 3 >= len(text) and text[-1] not in ".,;" and "\t" not in text


def typography(blocks: Iterable[Sequence[Line]]) -> Typography:
    """The typography of all pages."""
    letters: Counter[float] = Counter()
    bold = total = 0
    first: Counter[float] = Counter()
    for lines in blocks:
        for line in lines:
            letters[line.size] += len(line.text)
            bold += len(line.text) if line.bold else 0
            total += len(line.text)
        first.update({line.size for line in lines})
    if not total:
        return Typography()
    body = letters.most_common(1)[0][0]
    sizes = [
        size
        for size in sorted(letters, reverse=True)
        if size >= _LARGER * body and letters[size] <= _MEAN_CHARS * first[size]
    ]
    while sizes and sum(letters[size] for size in sizes) > _RARE * total:
        sizes.remove(max(sizes, key=lambda size: letters[size]))
    return Typography(body, tuple(sizes), bold=bold <= _RARE * total)


_OUTLINE_SHARE: Final = 3
"""If pages show at least one in this many outline entries, the outline defines all headings."""


@dataclass(frozen=True, slots=True)
class PdfPart:
    """A block, or a part of one between headings; ``lines`` are its lines, empty for a table."""

    kind: BlockType
    text: str
    path: tuple[str, ...] = ()
    level: int | None = None
    lines: tuple[Line, ...] = ()
    aside: bool = False


class PdfPartWriter:
    """Processes the pages in order and tracks the current headings."""

    def __init__(self, outline: Outline, types: Typography, vocabulary: Vocabulary) -> None:
        self._outline = outline
        self._types = types
        self._vocabulary = vocabulary
        self._deepest = max((e.level for page in outline.values() for e in page), default=0)
        self._stack: list[tuple[int, str]] = []

    def parts(self, page: int, items: Sequence[PageItem]) -> Iterator[PdfPart]:
        """The items of ``page``, split at headings."""
        expected = list(self._outline.get(page, ()))
        text_lines = shown(expected, [[line.text for line in item.lines] for item in items])
        # What the page does not show (a chapter's opening picture) holds from its top.
        while expected and not text_lines.pop(0):
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

    def _table(self, item: PageItem) -> Iterator[PdfPart]:
        if item.table is None:
            return
        path = self._path()
        if item.table.title:
            yield PdfPart(BlockType.PARAGRAPH, item.table.title, path)
        yield PdfPart(BlockType.TABLE, item.table.markdown, path)

    def _cut(self, lines: Sequence[Line], expected: list[Entry]) -> Iterator[PdfPart]:
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
        """The number of next lines that are a heading."""
        count, _ = found([line.text for line in lines[:3]], expected)
        if count:
            return count
        count, level = self._types.heading(lines)
        if count and before and self._is_within(before, lines[0], level):
            return 0
        return count

    def _is_within(self, before: Sequence[Line], line: Line, level: int | None) -> bool:
        """Whether large or bold words belong to the paragraph ``before`` them."""
        last = before[-1]
        if self._types.level(last) == level:
            return True
        left = min(one.box[0] for one in before)
        right = max(one.box[2] for one in before)
        alike = line.size == last.size and not ends_sentence(last.text)
        return alike and len(before) > 1 and is_full(last, line, left, right)

    def _title(self, lines: Sequence[Line], expected: list[Entry]) -> PdfPart:
        _, passed = found([line.text for line in lines], expected)
        words = " ".join(line.text for line in lines)
        if passed:
            for entry in expected[:passed]:
                self._enter_entry(entry)
            del expected[:passed]
        else:
            _, level = self._types.heading(lines)
            self._enter(self._deepest + (level or 1), words)
        return PdfPart(BlockType.HEADING, words, self._path(), self._stack[-1][0], tuple(lines))

    def _text(self, lines: Sequence[Line]) -> PdfPart:
        text = paragraph(lines, self._vocabulary)
        text_lines = text.split("\n")
        listed = sum(map(is_item, text_lines)) * 2 >= len(text_lines)
        kind = BlockType.LIST if listed and is_item(text) else BlockType.PARAGRAPH
        return PdfPart(kind, text, self._path(), lines=tuple(lines))

    def _enter_entry(self, entry: Entry) -> None:
        self._enter(entry.level, entry.title)

    def _enter(self, level: int, title: str) -> None:
        self._stack = [above for above in self._stack if above[0] < level]
        self._stack.append((level, title))

    def _path(self) -> tuple[str, ...]:
        return tuple(title for _, title in self._stack)


def _titles_joined(items: Sequence[PageItem], types: Typography) -> Iterator[PageItem]:
    """Items, with the lines of one large heading joined."""
    last: PageItem | None = None
    for item in items:
        if last is not None and _is_one_title(last, item, types):
            last = PageItem.of([*last.lines, *item.lines])
            continue
        if last is not None:
            yield last
        last = item
    if last is not None:
        yield last


def _is_one_title(one: PageItem, other: PageItem, types: Typography) -> bool:
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


def has_outline(outline: Outline, sheets: Iterable[Sheet]) -> bool:
    """Whether the outline contains headings that the pages show, not file names or nothing."""
    count = 0
    for sheet in sheets:
        blocks = [[line.text for line in item.lines] for item in sheet.items or ()]
        count += sum(shown(outline.get(sheet.number, ()), blocks))
        if count >= _OUTLINE_SHARE:
            return True
    return False
