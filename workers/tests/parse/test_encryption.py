"""Files with a password: decrypted for one read, or refused by name."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from latent_core.domain.chunk import SourceType
from latent_core.domain.errors import IngestFailed
from latent_workers.ingest.unlocked import unlocked
from latent_workers.parse.encryption import has_file_pass
from latent_workers.parse.run import parse_file
from latent_workers.sandbox.pool import Sandbox
from tests.support.locked_files import PASSWORD, locked_office, locked_pdf
from tests.support.office_files import docx, p, pptx, rows, shape, tree, xlsx

WORDS = "The heron is quiet."
LOCKED = {
    SourceType.PDF: lambda: locked_pdf(WORDS),
    SourceType.DOCUMENT: lambda: locked_office(docx(p(WORDS))),
    SourceType.SLIDES: lambda: locked_office(pptx(tree(shape(WORDS)))),
    SourceType.SHEET: lambda: locked_office(xlsx(rows((WORDS,)))),
}


async def read(
    sandbox: Sandbox, file: Path, kind: SourceType, password: str | None, folder: Path
) -> str:
    async with unlocked(
        sandbox, file, name="a", source_type=kind, password=password, folder=folder
    ) as plain:
        assert (plain == file) == (password is None)
        return (await parse_file(sandbox, plain, name="a", source_type=kind)).text


@pytest.mark.parametrize("kind", LOCKED)
async def test_a_password_opens_a_file_once_and_leaves_no_copy(
    sandbox: Sandbox, tmp_path: Path, kind: SourceType
) -> None:
    file, folder = tmp_path / "locked", tmp_path / "tmp"
    file.write_bytes(LOCKED[kind]())
    folder.mkdir()
    assert WORDS in await read(sandbox, file, kind, PASSWORD, folder)
    assert list(folder.iterdir()) == []
    with pytest.raises(IngestFailed, match="'a' is encrypted: add it again with its password"):
        await read(sandbox, file, kind, None, folder)
    with pytest.raises(IngestFailed, match="the given password does not open it"):
        await read(sandbox, file, kind, "another", folder)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (SourceType.DOCUMENT, docx(p(WORDS))),
        (SourceType.TEXT, WORDS.encode()),
        (SourceType.PDF, locked_pdf(WORDS, password="")),
        (SourceType.SHEET, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1 damaged"),
        (SourceType.PDF, b"%PDF-1.7 damaged"),
    ],
)
async def test_what_needs_no_password_is_read_as_it_is(
    sandbox: Sandbox, tmp_path: Path, kind: SourceType, data: bytes
) -> None:
    file = tmp_path / "open"
    file.write_bytes(data)
    async with unlocked(
        sandbox, file, name="a", source_type=kind, password=PASSWORD, folder=tmp_path
    ) as plain:
        assert plain == file


def record(number: int, content: bytes) -> bytes:
    return struct.pack("<HH", number, len(content)) + content


@pytest.mark.parametrize(
    ("stream", "locked"),
    [
        (record(0x0809, bytes(16)) + record(0x002F, bytes(54)), True),
        (record(0x0809, bytes(16)) + record(0x0086, b"") + record(0x002F, bytes(6)), True),
        (record(0x0809, bytes(16)) + record(0x00E1, bytes(2)), False),
        (b"\x09", False),
        (record(0x0809, b"") * 100 + record(0x002F, b""), False),
    ],
)
def test_an_old_workbook_says_in_its_first_records_that_it_is_encrypted(
    stream: bytes, locked: bool
) -> None:
    assert has_file_pass(stream) is locked
