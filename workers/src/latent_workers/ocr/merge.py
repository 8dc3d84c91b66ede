"""Inserts the text of OCR into the parsed document and shifts all later offsets."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from latent_core.domain.chunk import BlockType
from latent_workers.ocr.words import OcrText
from latent_workers.parse.parsed import ParsedDocument, ParsedPage, TextBlock

BLOCK_BREAK: Final = "\n\n"


def merged(
    parsed: ParsedDocument, readings: Mapping[int, OcrText]
) -> tuple[ParsedDocument, tuple[int, ...]]:
    """``parsed`` with the text of ``readings``, and the pages that have it.

    A page keeps its own text if OCR read less of it.
    """
    merger = _Merger(parsed, readings)
    return merger.parsed(), tuple(merger.readings)


class _Merger:
    def __init__(self, parsed: ParsedDocument, readings: Mapping[int, OcrText]) -> None:
        self._parsed = parsed
        self.readings = {
            page.number: readings[page.number]
            for page in parsed.pages
            if page.number in readings and _says_more(readings[page.number], page)
        }
        self._pages = tuple(self._with_text(page) for page in parsed.pages)
        self._old, self._new = _starts(parsed.pages), _starts(self._pages)

    def parsed(self) -> ParsedDocument:
        text = self._text()
        kept = [piece for block in self._parsed.blocks for piece in self._kept(block, text)]
        blocks = sorted([*kept, *self._read(kept)], key=lambda block: block.offset_start)
        replaced = sum(reading.replaced for reading in self.readings.values())
        return replace(
            self._parsed,
            text=text,
            blocks=tuple(blocks),
            pages=self._pages,
            replaced_characters=self._parsed.replaced_characters + replaced,
        )

    def _with_text(self, page: ParsedPage) -> ParsedPage:
        reading = self.readings.get(page.number)
        return replace(page, text=BLOCK_BREAK.join(reading.paragraphs)) if reading else page

    def _text(self) -> str:
        """The text between pages is unchanged."""
        old, parts, done = self._parsed.text, [], 0
        for page, new, start in zip(self._parsed.pages, self._pages, self._old, strict=True):
            parts += [old[done:start], new.text]
            done = start + len(page.text)
        return "".join([*parts, old[done:]])

    def _kept(self, block: TextBlock, text: str) -> Iterator[TextBlock]:
        """The rest of a block: all of it, or, for a block over several pages, the parts on pages that keep their
        text."""
        first, last = self._page_at(block.offset_start), self._page_at(block.offset_end - 1)
        run: list[int] = []
        for index in range(first, last + 1):
            if self._pages[index].number not in self.readings:
                run.append(index)
            elif run:
                yield self._moved(block, run, text)
                run = []
        if run:
            yield self._moved(block, run, text)

    def _moved(self, block: TextBlock, pages: Sequence[int], text: str) -> TextBlock:
        first, last = pages[0], pages[-1]
        start = max(block.offset_start, self._old[first])
        end = min(block.offset_end, self._old[last] + len(self._parsed.pages[last].text))
        start += self._new[first] - self._old[first]
        end += self._new[last] - self._old[last]
        return replace(
            block,
            text=text[start:end],
            offset_start=start,
            offset_end=end,
            page=self._pages[first].number,
            page_end=self._pages[last].number if last > first else None,
        )

    def _read(self, kept: Sequence[TextBlock]) -> Iterator[TextBlock]:
        """Paragraphs of OCR, below the headings before them."""
        starts = [block.offset_start for block in kept]
        for page, offset in zip(self._pages, self._new, strict=True):
            if page.number not in self.readings:
                continue
            before = bisect_right(starts, offset) - 1
            for paragraph in self.readings[page.number].paragraphs:
                yield TextBlock(
                    kind=BlockType.PARAGRAPH,
                    text=paragraph,
                    offset_start=offset,
                    offset_end=offset + len(paragraph),
                    page=page.number,
                    heading_path=kept[before].heading_path if before >= 0 else (),
                )
                offset += len(paragraph) + len(BLOCK_BREAK)

    def _page_at(self, offset: int) -> int:
        return max(0, bisect_right(self._old, offset) - 1)


def _starts(pages: Sequence[ParsedPage]) -> list[int]:
    """The start of each page: one character separates two."""
    starts, offset = [], 0
    for page in pages:
        starts.append(offset)
        offset += len(page.text) + 1
    return starts


def _says_more(reading: OcrText, page: ParsedPage) -> bool:
    """Compares letters: the existing text may be the codes of an unreadable font."""
    return sum(map(_letters, reading.paragraphs)) > _letters(page.text)


def _letters(text: str) -> int:
    return sum(map(str.isalnum, text))
