"""The sheets of Excel workbooks, by calamine: values as they are stored, formulas by their last result; nothing is
calculated and no macro runs."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Any, BinaryIO, Final

from python_calamine import CalamineSheet, CalamineWorkbook, SheetTypeEnum

from latent_core.domain.errors import IngestFailed
from latent_workers.parse.office.package import Package, properties, refuse_entities
from latent_workers.parse.office.writing import OfficeText
from latent_workers.parse.table import regions
from latent_workers.parse.text.compose import MarkdownText, Span

MAX_AREA: Final = 5_000_000
"""Cells between the first and the last filled one of a sheet, which calamine keeps in memory."""
_SHEET: Final = re.compile(r"xl/worksheets/[^/]+\.xml", re.IGNORECASE)
_READ: Final = re.compile(r"xl/(?:workbook|sharedStrings|styles)\.xml", re.IGNORECASE)
_CELL: Final = re.compile(rb"<(?:\w+:)?c(?:\s[^<>]*)?>")
_PLACE: Final = re.compile(rb'\sr="([A-Z]{1,3})(\d{1,7})"')
_LONGEST_TAG: Final = 512


def read(file: BinaryIO, name: str, package: Package | None) -> OfficeText:
    """``package`` is that of an OOXML workbook; a binary one has none."""
    if package is not None:
        for part in package.names():
            if _SHEET.fullmatch(part):
                _check_size(package, part, name)
            elif _READ.fullmatch(part):
                refuse_entities(next(package.pieces(part), b""), name, part)
    file.seek(0)
    return _guarded(lambda: _read(file, name, package), name)


def _guarded(reading: Callable[[], OfficeText], name: str) -> OfficeText:
    try:
        return reading()
    except (IngestFailed, MemoryError):
        raise
    except BaseException as exc:
        # Calamine's own errors, and what Rust calls a panic, which is no Exception.
        if isinstance(exc, Exception) or type(exc).__name__ == "PanicException":
            raise IngestFailed(
                f"'{name}' is no workbook that can be read ({str(exc)[:200]}): open it and save it as .xlsx",
                reason="damaged",
            ) from exc
        raise


def _read(file: BinaryIO, name: str, package: Package | None) -> OfficeText:
    book = CalamineWorkbook.from_filelike(file)
    text = MarkdownText(name)
    left = regions.MAX_CELLS
    sheets = [one.name for one in book.sheets_metadata if one.typ == SheetTypeEnum.WorkSheet]
    for number, title in enumerate(sheets, start=1):
        rows, merged = _cells(book.get_sheet_by_name(title))
        left -= sum(1 for row in rows for words in row if words)
        if left < 0:
            raise regions.too_many_cells(name)
        text.heading(1, f"Sheet {number}: {title}")
        regions.write(text, rows, merged)
    meta = {**(properties(package) if package is not None else {}), "sheets": len(sheets)}
    return OfficeText(text.text(), title=meta.pop("title", name), meta=meta)


def _cells(sheet: CalamineSheet) -> tuple[list[list[str]], list[Span]]:
    """The words of the used area, and its merged cells."""
    if sheet.start is None:
        return [], []
    top, left = sheet.start
    rows = [list(map(words_of, row)) for row in sheet.to_python(skip_empty_area=True)]
    merged = [
        Span(row - top, column - left, last_row - row + 1, last_column - column + 1)
        for (row, column), (last_row, last_column) in sheet.merged_cell_ranges or ()
        if row >= top and column >= left
    ]
    return rows, merged


def words_of(value: Any) -> str:
    """A value as people write it; times in ISO 8601."""
    if isinstance(value, str):
        return " ".join(value.split())
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ", timespec="minutes" if not value.second else "seconds")
    return str(value)


def _check_size(package: Package, part: str, name: str) -> None:
    """Counts filled cells before anything keeps them. ``IngestFailed`` over a limit."""
    count = last_row = last_column = 0
    first_row, first_column = 1 << 24, 1 << 24
    rest = b""
    for piece in package.pieces(part):
        if not count and not rest:
            refuse_entities(piece, name, part)
        data = rest + piece
        end = 0
        for match in _CELL.finditer(data):
            end = match.end()
            tag = match[0]
            if tag.endswith(b"/>"):
                continue
            count += 1
            if place := _PLACE.search(tag):
                row, column = int(place[2]), _column(place[1])
                first_row, last_row = min(first_row, row), max(last_row, row)
                first_column, last_column = min(first_column, column), max(last_column, column)
        if count > regions.MAX_CELLS:
            raise regions.too_many_cells(name)
        rest = data[max(end, len(data) - _LONGEST_TAG) :]
    rows, columns = last_row - first_row + 1, last_column - first_column + 1
    if last_row and rows * columns > MAX_AREA:
        raise IngestFailed(
            f"'{name}' spreads {count:,} cells over {rows:,} rows and {columns:,} columns: delete the far cells",
            reason="size",
        )


def _column(letters: bytes) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + letter - 64
    return number
