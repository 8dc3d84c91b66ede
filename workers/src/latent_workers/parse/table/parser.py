"""Tables of values: workbooks by their first bytes, else CSV."""

from __future__ import annotations

from typing import Final

from latent_workers.parse.parsed import ParsedDocument, SourceFile

_PACKED: Final = (b"PK\x03\x04", b"PK\x05\x06", b"\xd0\xcf\x11\xe0")


def parse(source: SourceFile) -> ParsedDocument:
    head = source.file.read(4)
    source.file.seek(0)
    if head in _PACKED:
        from latent_workers.parse.office import parser

        return parser.parse(source)
    from latent_workers.parse.table import csv_file

    return csv_file.parse(source)
