"""CSV and TSV files as tables; what has no columns is plain text."""

from __future__ import annotations

import csv
import io
from collections import Counter
from itertools import islice
from typing import Final

from latent_workers.parse.office.writing import OfficeText, parsed
from latent_workers.parse.parsed import ParsedDocument, SourceFile
from latent_workers.parse.table import regions
from latent_workers.parse.text import parser as plain_text
from latent_workers.parse.text.compose import MarkdownText
from latent_workers.parse.text.decode import DecodedText, decode_filled

_DELIMITERS: Final = ",;\t|"
_SAMPLE_LINES: Final = 50
_MAX_FIELD: Final = 1_000_000


def parse(source: SourceFile) -> ParsedDocument:
    decoded = decode_filled(source.read(), source.name)
    csv.field_size_limit(_MAX_FIELD)
    delimiter = delimiter_of(decoded.text)
    if delimiter is None:
        return plain_text.of_decoded(decoded)
    try:
        return _table(decoded, delimiter, source.name)
    except csv.Error:
        return plain_text.of_decoded(decoded)


def delimiter_of(text: str) -> str | None:
    """The character that splits the first lines into the same number of columns, more than one."""
    lines = list(islice((line for line in io.StringIO(text) if line.strip()), _SAMPLE_LINES))
    best: tuple[float, int, str] = (0.5, 0, "")
    for delimiter in _DELIMITERS:
        try:
            widths = Counter(len(row) for row in csv.reader(lines, delimiter=delimiter) if row)
        except csv.Error:
            continue
        (width, rows), *_ = widths.most_common(1) or [(0, 0)]
        if width > 1:
            best = max(best, (rows / max(1, widths.total()), width, delimiter))
    return best[2] or None


def _table(decoded: DecodedText, delimiter: str, name: str) -> ParsedDocument:
    rows: list[list[str]] = []
    left = regions.MAX_CELLS
    for row in csv.reader(io.StringIO(decoded.text, newline=""), delimiter=delimiter):
        rows.append([" ".join(words.split()) for words in row])
        left -= sum(1 for words in row if words)
        if left < 0:
            raise regions.too_many_cells(name)
    text = MarkdownText(name)
    regions.write(text, rows)
    meta = {"encoding": decoded.encoding, "rows": len(rows)}
    return parsed(OfficeText(text.text(), title=name, meta=meta), name)
