"""PDF by PyMuPDF: text in reading order below its headings, tables as Markdown, without running headers and
footers."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, BinaryIO, Final

from latent_core.domain.errors import IngestFailed, Issue, IssueCode
from latent_workers.parse.encryption import password_missing
from latent_workers.parse.parsed import ParsedDocument, ParsedPage, SourceFile, TextBlock
from latent_workers.parse.pdf import mupdf
from latent_workers.parse.pdf.order import PageItem
from latent_workers.parse.pdf.outline import meta_of, outline_of, title_of
from latent_workers.parse.pdf.parts import (
    PdfPart,
    PdfPartWriter,
    Typography,
    has_outline,
    typography,
)
from latent_workers.parse.pdf.running import Margins, running
from latent_workers.parse.pdf.sheet import Sheet, sheet_of
from latent_workers.parse.pdf.spill import over_pages, within_page
from latent_workers.parse.pdf.text import Vocabulary

PAGE_BREAK: Final = "\f"
SPILL_BREAK: Final = " "
"""Between pages where a paragraph continues: it stays whole, and each page keeps its own text."""
BLOCK_BREAK: Final = "\n\n"
_MAX_LISTED = 20
_SHRINK_EVERY = 50
_FEW_LETTERS: Final = 24
"""Letters of a page whose words are probably in an image."""
_UNREADABLE: Final = 0.3
"""Share of characters without a meaning from which a text layer counts as missing."""


def parse(source: SourceFile) -> ParsedDocument:
    document = open_document(source.file, source.name)
    total = document.page_count
    sheets = [_sheet(document, number) for number in range(1, min(total, source.max_pages) + 1)]
    if all(sheet.items is None for sheet in sheets):
        raise IngestFailed(f"no page of '{source.name}' can be read")
    types = typography(
        item.lines for sheet in sheets for item in sheet.items or () if not item.aside
    )
    ran = running([_margins(sheet) for sheet in sheets], types.body)
    contents = [_without(sheet, lines) for sheet, lines in zip(sheets, ran, strict=True)]
    vocabulary = Vocabulary(line for items in contents for item in items for line in item.lines)
    outline = outline_of(document)
    has_headings = has_outline(outline, sheets)
    writer = PdfPartWriter(outline, Typography(types.body) if has_headings else types, vocabulary)
    pages = [
        within_page(list(writer.parts(sheet.number, items)), vocabulary)
        for sheet, items in zip(sheets, contents, strict=True)
    ]
    spilled = over_pages(pages, vocabulary)
    text, blocks = _written(pages, spilled)
    return ParsedDocument(
        text=text,
        title=title_of(document) or _title(pages[0]),
        blocks=tuple(blocks),
        pages=tuple(_pages(sheets, pages)),
        meta=meta_of(document),
        warnings=tuple(_warnings(sheets, total)),
        replaced_characters=sum(sheet.replaced for sheet in sheets),
        scanned_pages=tuple(
            sheet.number
            for sheet, items in zip(sheets, contents, strict=True)
            if _is_unreadable(items) or (sheet.pictured and _is_wordless(items))
        ),
    )


def open_document(file: BinaryIO, name: str) -> Any:
    """The PyMuPDF document; ``IngestFailed`` if it is not a PDF, needs a password or has no pages."""
    try:
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except ValueError as exc:  # an empty file cannot be mapped
        raise IngestFailed(f"'{name}' is empty") from exc
    try:
        with mupdf.reading():
            document = mupdf.load().open(stream=data, filetype="pdf")
            locked = document.needs_pass and not document.authenticate("")
            pages = 0 if locked else document.page_count
    except mupdf.PdfError as exc:
        raise IngestFailed(f"'{name}' is damaged, or not a PDF") from exc
    if locked:
        raise password_missing(name)
    if not pages:
        raise IngestFailed(f"'{name}' is a PDF without pages")
    return document


def _sheet(document: Any, number: int) -> Sheet:
    if number % _SHRINK_EVERY == 0:
        # Fonts and images of past pages would pile up.
        mupdf.load().TOOLS.store_shrink(100)
    try:
        with mupdf.reading():
            return sheet_of(document[number - 1], number)
    except mupdf.PdfError:
        return Sheet(number, 0.0, 0.0)


def _margins(sheet: Sheet) -> Margins:
    tables = any(item.table is not None for item in sheet.items or ())
    return Margins(sheet.lines, sheet.text_height, tables)


def _title(parts: Sequence[PdfPart]) -> str | None:
    """The first heading of the highest level on the first page."""
    headings = [part for part in parts if part.level is not None]
    best = min(headings, key=lambda part: part.level or 0, default=None)
    return best.text if best else None


def _without(sheet: Sheet, running_lines: set[int]) -> list[PageItem]:
    """The items of a page without its running lines, identified by their index."""
    kept: list[PageItem] = []
    place = 0
    for item in sheet.items or ():
        numbers = range(place, place + len(item.lines))
        place += len(item.lines)
        lines = [
            line
            for number, line in zip(numbers, item.lines, strict=True)
            if number not in running_lines
        ]
        if lines or item.table is not None:
            whole = len(lines) == len(item.lines)
            kept.append(item if whole else replace(PageItem.of(lines), aside=item.aside))
    return kept


def _written(pages: Sequence[Sequence[PdfPart]], spilled: set[int]) -> tuple[str, list[TextBlock]]:
    """The text of all pages, and the blocks in it."""
    text: list[str] = []
    spans: list[tuple[PdfPart, int, int, int, int]] = []
    offset = 0
    for number, parts in enumerate(pages):
        for place, part in enumerate(parts):
            if place:
                text.append(BLOCK_BREAK)
                offset += len(BLOCK_BREAK)
            start, offset = offset, offset + len(part.text)
            text.append(part.text)
            if place == 0 and number - 1 in spilled:
                first, began, _, page, _ = spans[-1]
                spans[-1] = first, began, offset, page, number + 1
            else:
                spans.append((part, start, offset, number + 1, number + 1))
        if number + 1 < len(pages):
            text.append(SPILL_BREAK if number in spilled else PAGE_BREAK)
            offset += 1
    whole = "".join(text)
    return whole, [_block(whole, *span) for span in spans]


def _block(text: str, part: PdfPart, start: int, end: int, page: int, page_end: int) -> TextBlock:
    return TextBlock(
        kind=part.kind,
        text=text[start:end],
        offset_start=start,
        offset_end=end,
        page=page,
        page_end=page_end if page_end != page else None,
        heading_path=part.path,
        level=part.level,
    )


def _pages(sheets: Sequence[Sheet], pages: Sequence[Sequence[PdfPart]]) -> Iterator[ParsedPage]:
    for sheet, parts in zip(sheets, pages, strict=True):
        text = BLOCK_BREAK.join(part.text for part in parts)
        yield ParsedPage(sheet.number, text, sheet.width, sheet.height)


def _is_wordless(items: Sequence[PageItem]) -> bool:
    """Whether a page has no readable text except running lines."""
    if any(item.table is not None for item in items):
        return False
    return sum(map(str.isalnum, _chars(items))) < _FEW_LETTERS


def _is_unreadable(items: Sequence[PageItem]) -> bool:
    """Whether the letters of a page have a font without character codes."""
    chars = _chars(items)
    unknown = sum(1 for char in chars if char == "\ufffd" or "\ue000" <= char <= "\uf8ff")
    return len(chars) >= _FEW_LETTERS and unknown >= _UNREADABLE * len(chars)


def _chars(items: Sequence[PageItem]) -> list[str]:
    return [char for item in items for line in item.lines for char in line.text if char > " "]


def _warnings(sheets: Sequence[Sheet], total: int) -> Iterator[Issue]:
    if total > len(sheets):
        yield _warning(
            f"Only the first {len(sheets)} of {total} pages were read (pdf.max_pages).",
            pages_read=len(sheets),
            pages=total,
        )
    unread = [sheet.number for sheet in sheets if sheet.items is None]
    if unread:
        yield _warning(f"Pages that cannot be read: {listed(unread)}.", unreadable_pages=unread)
    blank = [sheet.number for sheet in sheets if sheet.items == ()]
    if blank:
        yield _warning(
            f"Pages without text (scanned or empty): {listed(blank)}.", pages_without_text=blank
        )


def _warning(message: str, **details: Any) -> Issue:
    return Issue(code=IssueCode.INGEST_FAIL, message=message, details=details)


def listed(numbers: list[int]) -> str:
    """Page numbers for a message, not too many."""
    shown = ", ".join(map(str, numbers[:_MAX_LISTED]))
    return (
        shown if len(numbers) <= _MAX_LISTED else f"{shown} and {len(numbers) - _MAX_LISTED} more"
    )
