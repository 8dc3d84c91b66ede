"""PDF by PyMuPDF: text a page in the order it was written, sizes, metadata, headings by the outline."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from latent_core.domain.errors import IngestFailed, Issue, IssueCode
from latent_workers.parse import mupdf
from latent_workers.parse.decode import clean
from latent_workers.parse.parsed import Block, Parsed, ParsedPage
from latent_workers.parse.pdf_info import meta_of, outline_of, title_of
from latent_workers.parse.pdf_outline import Outlined
from latent_workers.parse.source import Source

PAGE_BREAK: Final = "\f"
BLOCK_BREAK: Final = "\n\n"
_MAX_LISTED = 20


@dataclass(frozen=True, slots=True)
class Sheet:
    """One page as MuPDF gives it; ``blocks`` is ``None`` when the page cannot be read."""

    number: int
    width: float
    height: float
    blocks: tuple[str, ...] | None
    replaced: int

    @property
    def text(self) -> str:
        return BLOCK_BREAK.join(self.blocks or ())


def parse(source: Source) -> Parsed:
    document = open_document(source.file, source.name)
    total = document.page_count
    sheets = [_sheet(document, number) for number in range(1, min(total, source.max_pages) + 1)]
    if all(sheet.blocks is None for sheet in sheets):
        raise IngestFailed(f"no page of '{source.name}' can be read")
    outlined = Outlined(outline_of(document))
    blocks: list[Block] = []
    pages: list[ParsedPage] = []
    offset = 0
    for sheet in sheets:
        placed = list(_placed(sheet, outlined, offset))
        text = BLOCK_BREAK.join(block.text for block in placed)
        blocks += placed
        pages.append(ParsedPage(sheet.number, text, sheet.width, sheet.height))
        offset += len(text) + len(PAGE_BREAK)
    return Parsed(
        text=PAGE_BREAK.join(page.text for page in pages),
        title=title_of(document),
        blocks=tuple(blocks),
        pages=tuple(pages),
        meta=meta_of(document),
        warnings=tuple(_warnings(sheets, total)),
        replaced_characters=sum(sheet.replaced for sheet in sheets),
    )


def open_document(file: BinaryIO, name: str) -> Any:
    """The PyMuPDF document; ``IngestFailed`` when it is no PDF, needs a password or has no pages."""
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
        raise IngestFailed(f"'{name}' is damaged beyond repair, or no PDF at all") from exc
    if locked:
        raise IngestFailed(f"'{name}' is encrypted; remove its password to ingest it")
    if not pages:
        raise IngestFailed(f"'{name}' is a PDF with no pages")
    return document


def _sheet(document: Any, number: int) -> Sheet:
    try:
        with mupdf.reading():
            return sheet_of(document[number - 1], number)
    except mupdf.PdfError:
        return Sheet(number, 0.0, 0.0, None, 0)


def sheet_of(page: Any, number: int) -> Sheet:
    """What a page holds; raises what MuPDF raises."""
    pymupdf = mupdf.load()
    # Ligatures are taken apart: words should be found as they are typed.
    flags = pymupdf.TEXT_PRESERVE_WHITESPACE | pymupdf.TEXT_MEDIABOX_CLIP
    blocks, replaced = [], 0
    for block in page.get_text("blocks", flags=flags):
        text, bad = clean(_tidy(block[4]))
        replaced += bad
        if text:
            blocks.append(text)
    return Sheet(number, page.rect.width, page.rect.height, tuple(blocks), replaced)


def _tidy(text: str) -> str:
    """Lines without white space at their ends and without empty ones."""
    lines = (line.strip() for line in text.replace("\f", " ").split("\n"))
    return "\n".join(line for line in lines if line)


def _placed(sheet: Sheet, outlined: Outlined, offset: int) -> Iterator[Block]:
    for part in outlined.parts(sheet.number, sheet.blocks or ()):
        end = offset + len(part.text)
        yield Block(
            kind=part.kind,
            text=part.text,
            offset_start=offset,
            offset_end=end,
            page=sheet.number,
            heading_path=part.heading_path,
            level=part.level,
        )
        offset = end + len(BLOCK_BREAK)


def _warnings(sheets: list[Sheet], total: int) -> Iterator[Issue]:
    if total > len(sheets):
        yield _warning(
            f"Only the first {len(sheets)} of {total} pages were read (pdf.max_pages).",
            pages_read=len(sheets),
            pages=total,
        )
    unread = [sheet.number for sheet in sheets if sheet.blocks is None]
    if unread:
        yield _warning(f"Pages that cannot be read: {listed(unread)}.", unreadable_pages=unread)
    blank = [sheet.number for sheet in sheets if sheet.blocks == ()]
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
