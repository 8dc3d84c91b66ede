"""Hostile files of each format of ADR 0040, in the sandbox: each ends in a refusal by name, within the limits.

``HOSTILE`` is the list of what is tried per format. CSV, RTF, mail, notebooks and subtitles are not packed and define no
entities; only Office files can have macros.
"""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Final

import pytest

from latent_core.domain.chunk import SourceType
from latent_core.domain.errors import IngestFailed
from latent_workers.parse.office import package as limits
from latent_workers.parse.run import PARSE_BUDGET, parse_file, read_records
from latent_workers.parse.table import regions
from latent_workers.sandbox.budget import MIB
from latent_workers.sandbox.pool import Sandbox
from tests.support.office_files import P, W, docx, p, package, pptx, rows, shape, tree, xlsx

DOCUMENT, SHEET, SLIDES = SourceType.DOCUMENT, SourceType.SHEET, SourceType.SLIDES
MAIL, NOTEBOOK, SUBTITLES = SourceType.MAIL, SourceType.NOTEBOOK, SourceType.SUBTITLES
BOMB: Final = " " * (limits.MAX_PART + 1)
ENTITIES: Final = '<!DOCTYPE x [<!ENTITY a "b"><!ENTITY c SYSTEM "file:///etc/passwd">]>'
DEPTH: Final = 20_000
CELLS: Final = regions.MAX_CELLS + 1
BUDGET: Final = replace(PARSE_BUDGET, cpu_seconds=60, memory_bytes=512 * MIB)
ODT_MIME: Final = "application/vnd.oasis.opendocument.text"
OLE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def odt(content: str) -> bytes:
    return package({"mimetype": ODT_MIME, "content.xml": content})


def odt_body(inner: str) -> bytes:
    spaces = 'xmlns:o="o" xmlns:t="t" xmlns:table="table"'
    return odt(
        f"<o:document-content {spaces}><o:body><o:text>{inner}</o:text></o:body></o:document-content>"
    )


def epub(chapter: str, book: str = "") -> bytes:
    """``book`` is the package document; by default one with the chapter."""
    opf = book or (
        '<package><manifest><item id="a" href="a.xhtml" media-type="application/xhtml+xml"/></manifest>'
        '<spine><itemref idref="a"/></spine></package>'
    )
    return package(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<c><rootfiles><rootfile full-path="b.opf"/></rootfiles></c>',
            "b.opf": opf,
            "a.xhtml": chapter,
        }
    )


def nested(tag: str, inner: str) -> str:
    return f"<{tag}>" * DEPTH + inner + f"</{tag}>" * DEPTH


def many_cells() -> str:
    lines = (f"<row><c><v>{n}</v></c></row>" for n in range(CELLS))
    return f"<sheetData>{''.join(lines)}</sheetData>"


def xls_of_one_sector_chain() -> bytes:
    """A compound file whose sectors follow each other in a circle."""
    header = OLE + bytes(16) + struct.pack("<HHHHH", 0x3E, 3, 0xFFFE, 9, 6) + bytes(6)
    header += struct.pack("<IIIIIIIIII", 0, 1, 0, 0, 4096, 0xFFFFFFFE, 0, 0xFFFFFFFE, 0, 0)
    header += struct.pack("<109I", *range(109))
    return header + struct.pack("<128I", *([0] * 128)) * 8


HOSTILE: Final[list[tuple[str, SourceType, Callable[[], bytes], str]]] = [
    (
        "zip bomb.docx",
        DOCUMENT,
        lambda: docx("", **{"word/document.xml": BOMB}),
        "unpacks to too much",
    ),
    ("zip bomb.pptx", SLIDES, lambda: pptx(BOMB), "unpacks to too much"),
    (
        "zip bomb.xlsx",
        SHEET,
        lambda: xlsx("", **{"xl/worksheets/sheet1.xml": BOMB}),
        "unpacks to too much",
    ),
    ("zip bomb.odt", DOCUMENT, lambda: odt(BOMB), "unpacks to too much"),
    ("zip bomb.epub", DOCUMENT, lambda: epub(BOMB), "unpacks to too much"),
    (
        "entities.docx",
        DOCUMENT,
        lambda: docx("", **{"word/document.xml": f"{ENTITIES}<w:document {W}/>"}),
        "defines its own XML entities",
    ),
    (
        "entities.pptx",
        SLIDES,
        lambda: pptx(f"{ENTITIES}<p:sld {P}/>"),
        "defines its own XML entities",
    ),
    (
        "entities.xlsx",
        SHEET,
        lambda: xlsx("", **{"xl/worksheets/sheet1.xml": ENTITIES + "<worksheet/>"}),
        "defines its own XML entities",
    ),
    (
        "entities.odt",
        DOCUMENT,
        lambda: odt(ENTITIES + "<a>&c;</a>"),
        "defines its own XML entities",
    ),
    (
        "entities.epub",
        DOCUMENT,
        lambda: epub("<p>x</p>", ENTITIES + "<package/>"),
        "defines its own XML entities",
    ),
    ("deep.docx", DOCUMENT, lambda: docx(nested("w:sdt", p("x"))), "is damaged"),
    ("deep.pptx", SLIDES, lambda: pptx(tree(nested("p:grpSp", shape("x")))), "is damaged"),
    ("deep.odt", DOCUMENT, lambda: odt_body(nested("t:section", "<t:p>x</t:p>")), "is damaged"),
    (
        "deep.eml",
        MAIL,
        lambda: b"Subject: a\n" + b"Content-Type: message/rfc822\n\n" * DEPTH + b"x",
        "more than 20 deep",
    ),
    (
        "deep.ipynb",
        NOTEBOOK,
        lambda: b'{"cells":' + b"[" * 1_000_000,
        "is no notebook|nested|damaged|cannot",
    ),
    (
        "deep keys.ipynb",
        NOTEBOOK,
        lambda: json.dumps({"nbformat": 4}).encode()[:-1] + b',"cells":' + b'[{"a":' * 100_000,
        "notebook",
    ),
    ("cells.xlsx", SHEET, lambda: xlsx(many_cells()), "has more than 1,000,000 filled cells"),
    (
        "cells.csv",
        SHEET,
        lambda: b"1,2\n" * (CELLS // 2 + 1),
        "has more than 1,000,000 filled cells",
    ),
    (
        "far cells.xlsx",
        SHEET,
        lambda: xlsx(
            '<sheetData><row r="1"><c r="A1"><v>1</v></c></row><row r="1048576"><c r="XFD1048576"><v>1</v></c></row></sheetData>'
        ),
        "delete the far cells",
    ),
    ("circle.xls", SHEET, xls_of_one_sector_chain, "is damaged|is no workbook|which is not read"),
    ("circle.msg", MAIL, xls_of_one_sector_chain, "is no Outlook message that can be read"),
    ("large.rtf", DOCUMENT, lambda: b"{\\rtf1 " + b"x" * (33 * MIB), "save it as .docx"),
    ("no times.srt", SUBTITLES, lambda: b"1\nwords\n\n" * 200_000, "time"),
    (
        "parts.eml",
        MAIL,
        lambda: (
            b"Subject: lamp\nContent-Type: multipart/mixed; boundary=b\n\n" + b"--b\n\nx\n" * 10_000
        ),
        "more than 1,000 parts",
    ),
]


@pytest.mark.parametrize(
    ("name", "kind", "made", "words"), HOSTILE, ids=[one[0] for one in HOSTILE]
)
async def test_a_hostile_file_is_refused_by_name_within_the_limits(
    sandbox: Sandbox,
    tmp_path: Path,
    name: str,
    kind: SourceType,
    made: Callable[[], bytes],
    words: str,
) -> None:
    path = tmp_path / name
    path.write_bytes(made())
    with pytest.raises(IngestFailed, match=words):
        await parse_file(sandbox, path, name=name, source_type=kind, budget=BUDGET)


DEEP_BUT_READ: Final[list[tuple[str, SourceType, Callable[[], bytes]]]] = [
    ("deep.epub", DOCUMENT, lambda: epub(f"<html><body>{nested('div', 'lamp')}</body></html>")),
    ("deep.rtf", DOCUMENT, lambda: b"{\\rtf1 lamp " + b"{" * 1_000_000 + b"x"),
    (
        "repeats.odt",
        DOCUMENT,
        lambda: odt_body(
            '<table:table><table:table-row table:number-rows-repeated="1000000"><table:table-cell table:number-columns-repeated="1000000"><t:p>lamp</t:p></table:table-cell></table:table-row></table:table>'
        ),
    ),
    ("lines.vtt", SUBTITLES, lambda: b"WEBVTT\n\n" + b"00:01.000 --> 00:02.000\nlamp\n\n" * 50_000),
]


@pytest.mark.parametrize(
    ("name", "kind", "made"), DEEP_BUT_READ, ids=[one[0] for one in DEEP_BUT_READ]
)
async def test_what_only_looks_large_is_read_within_the_limits(
    sandbox: Sandbox, tmp_path: Path, name: str, kind: SourceType, made: Callable[[], bytes]
) -> None:
    path = tmp_path / name
    path.write_bytes(made())
    found = await parse_file(sandbox, path, name=name, source_type=kind, budget=BUDGET)
    assert "lamp" in found.text


def with_macros(data: bytes, folder: str, main: str, kind: str) -> bytes:
    """The file as one with macros: its type says so, and it has a part with code."""
    written = BytesIO(data)
    types = f'<Types><Override PartName="/{main}" ContentType="application/vnd.ms-{kind}.macroEnabled.main+xml"/></Types>'
    made = BytesIO()
    with zipfile.ZipFile(written) as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            new.writestr(name, types if name == "[Content_Types].xml" else old.read(name))
        new.writestr(f"{folder}/vbaProject.bin", b'Shell "calc"')
    return made.getvalue()


@pytest.mark.parametrize(
    ("name", "kind", "data"),
    [
        (
            "a.docm",
            DOCUMENT,
            with_macros(docx(p("lamp")), "word", "word/document.xml", "word.document"),
        ),
        (
            "a.pptm",
            SLIDES,
            with_macros(
                pptx(tree(shape("lamp"))), "ppt", "ppt/presentation.xml", "powerpoint.presentation"
            ),
        ),
        (
            "a.xlsm",
            SHEET,
            with_macros(xlsx(rows(("lamp",))), "xl", "xl/workbook.xml", "excel.sheet"),
        ),
    ],
)
async def test_macros_are_neither_run_nor_read(
    sandbox: Sandbox, tmp_path: Path, name: str, kind: SourceType, data: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    found = await parse_file(sandbox, path, name=name, source_type=kind)
    assert "lamp" in found.text
    assert "Shell" not in found.text


@pytest.mark.parametrize(("lines", "cause"), [(6_000_000, "32 MB"), (4_000_000, "4,000,000 char")])
async def test_an_endless_message_of_a_mailbox_fails_alone(
    sandbox: Sandbox, tmp_path: Path, lines: int, cause: str
) -> None:
    path = tmp_path / "a.mbox"
    envelope = b"From a@x.org Thu Jan  1 00:00:00 2026\nSubject: lamp\n\n"
    path.write_bytes(envelope + b"lamp\n" * 9 + b"\n" + envelope + b"words\n" * lines)
    batch = await read_records(sandbox, path, mailbox=True)
    assert [record.title for record in batch.records] == ["lamp"]
    assert [cause in failure.message for failure in batch.failures] == [True]
