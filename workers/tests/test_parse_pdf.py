from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from latent_core.domain.chunk import BlockType, SourceType
from latent_core.domain.errors import IngestFailed
from latent_workers.parse import mupdf
from latent_workers.parse.parsed import Parsed
from latent_workers.parse.pdf import parse
from latent_workers.parse.pdf_info import moment_of
from latent_workers.parse.pdf_outline import Entry, Outlined
from latent_workers.parse.run import parse_file
from latent_workers.parse.source import Source
from latent_workers.sandbox.budget import Budget
from latent_workers.sandbox.pool import Sandbox

pymupdf: Any = mupdf.load()
Write = Callable[[Any], None]


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(children=1) as sandbox:
        yield sandbox


def make(path: Path, *pages: str, **saved: Any) -> Path:
    """A PDF with a page of text each; ``toc`` and ``metadata`` as PyMuPDF takes them."""
    document = pymupdf.open()
    for text in pages:
        page = document.new_page(width=300, height=400)
        for index, block in enumerate(filter(None, text.split("\n\n"))):
            page.insert_text((30, 50 + 60 * index), block)
    document.set_metadata(saved.pop("metadata", {}))
    if "toc" in saved:
        document.set_toc(saved.pop("toc"))
    document.save(path, **saved)
    document.close()
    return path


def read(path: Path, max_pages: int = 100) -> Parsed:
    with path.open("rb") as file:
        return parse(Source(path.name, file, SourceType.PDF, max_pages))


def test_pages_have_their_text_size_and_exact_offsets(tmp_path: Path) -> None:
    parsed = read(make(tmp_path / "a.pdf", "First block\n\nSecond block\nof two lines", "Page two"))
    assert [(page.number, page.width, page.height) for page in parsed.pages] == [
        (1, 300, 400),
        (2, 300, 400),
    ]
    assert parsed.text == "First block\n\nSecond block\nof two lines\fPage two"
    assert [page.text for page in parsed.pages] == parsed.text.split("\f")
    for block in parsed.blocks:
        assert parsed.text[block.offset_start : block.offset_end] == block.text
        assert block.line_start is None
    assert [block.page for block in parsed.blocks] == [1, 1, 2]
    assert parsed.warnings == ()


def test_headings_are_the_lines_the_outline_names(tmp_path: Path) -> None:
    toc = [[1, "Introduction", 1], [2, "Aims", 1], [1, "Picture chapter", 2], [2, "Results", 3]]
    pages = (
        ["1. Introduction\nsome words", "2.1 Aims\nwhat we want"],
        ["no chapter title here"],
        ["Results\nnumbers"],
    )
    parsed = read(make(tmp_path / "a.pdf", *("\n\n".join(page) for page in pages), toc=toc))
    found = [(block.kind, block.text, block.heading_path) for block in parsed.blocks]
    assert found == [
        (BlockType.HEADING, "1. Introduction", ("Introduction",)),
        (BlockType.PARAGRAPH, "some words", ("Introduction",)),
        (BlockType.HEADING, "2.1 Aims", ("Introduction", "Aims")),
        (BlockType.PARAGRAPH, "what we want", ("Introduction", "Aims")),
        (BlockType.PARAGRAPH, "no chapter title here", ("Picture chapter",)),
        (BlockType.HEADING, "Results", ("Picture chapter", "Results")),
        (BlockType.PARAGRAPH, "numbers", ("Picture chapter", "Results")),
    ]


def test_a_heading_may_run_over_lines_and_come_late() -> None:
    outlined = Outlined({1: [Entry(1, "A long title over lines"), Entry(1, "Later")]})
    parts = list(outlined.parts(1, ["before\nA long title\nover lines\nafter", "text"]))
    assert [(part.text, part.heading_path) for part in parts] == [
        ("before", ()),
        ("A long title\nover lines", ("A long title over lines",)),
        ("after", ("A long title over lines",)),
        ("text", ("A long title over lines",)),
    ]
    assert next(outlined.parts(2, ["on"])).heading_path == ("Later",)


def test_metadata_is_kept_and_a_file_name_is_no_title(tmp_path: Path) -> None:
    given = {"title": "A Paper", "author": "Ann", "creationDate": "D:20240102030405+01'00'"}
    parsed = read(make(tmp_path / "a.pdf", "text", metadata=given))
    assert parsed.title == "A Paper"
    assert parsed.meta["author"] == "Ann"
    assert parsed.meta["created"] == "2024-01-02T02:04:05+00:00"
    assert parsed.meta["pages"] == 1
    for junk in ("Microsoft Word - x.doc", "report.pdf", "Untitled 1"):
        assert read(make(tmp_path / "b.pdf", "text", metadata={"title": junk})).title is None


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("D:2024", datetime(2024, 1, 1, tzinfo=UTC)),
        ("D:20240506", datetime(2024, 5, 6, tzinfo=UTC)),
        ("D:20240102030405Z", datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("D:20240102030405-05'30'", datetime(2024, 1, 2, 8, 34, 5, tzinfo=UTC)),
        ("D:20249999", None),
        ("yesterday", None),
    ],
)
def test_dates_are_moments(written: str, meant: datetime | None) -> None:
    assert moment_of(written) == meant


def test_pages_over_the_limit_are_left_out_with_a_warning(tmp_path: Path) -> None:
    parsed = read(make(tmp_path / "a.pdf", "one", "two", "three"), max_pages=2)
    assert [page.text for page in parsed.pages] == ["one", "two"]
    assert parsed.warnings[0].message == "Only the first 2 of 3 pages were read (pdf.max_pages)."
    assert parsed.warnings[0].details == {"pages_read": 2, "pages": 3}


def test_pages_without_text_are_told(tmp_path: Path) -> None:
    parsed = read(make(tmp_path / "a.pdf", "one", "", "three"))
    assert parsed.text == "one\f\fthree"
    assert parsed.warnings[0].details == {"pages_without_text": [2]}


def encrypted(path: Path, user: str) -> Path:
    return make(
        path, "secret", encryption=pymupdf.PDF_ENCRYPT_AES_256, owner_pw="owner", user_pw=user
    )


def test_an_encrypted_pdf_is_refused_and_one_with_an_empty_password_is_read(tmp_path: Path) -> None:
    with pytest.raises(IngestFailed, match=r"'a.pdf' is encrypted"):
        read(encrypted(tmp_path / "a.pdf", "user"))
    assert read(encrypted(tmp_path / "b.pdf", "")).text == "secret"


NO_PAGES = (
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[]/Count 0>>endobj\n"
    b"trailer<</Root 1 0 R/Size 3>>\n%%EOF"
)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (NO_PAGES, "no pages"),
        (b"%PDF-1.7 and nothing more", "damaged beyond repair|no pages"),
        (b"this is text", "damaged beyond repair|no pages"),
        (b"", "is empty"),
    ],
)
def test_what_is_no_readable_pdf_is_refused(tmp_path: Path, data: bytes, words: str) -> None:
    (tmp_path / "a.pdf").write_bytes(data)
    with pytest.raises(IngestFailed, match=words) as caught:
        read(tmp_path / "a.pdf")
    assert "'a.pdf'" in caught.value.message


async def test_damaged_files_are_read_or_refused_and_never_break_the_sandbox(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    whole = make(tmp_path / "a.pdf", "one", "two", "three", toc=[[1, "one", 1]]).read_bytes()
    chance = random.Random(7)
    for _ in range(40):
        data = bytearray(whole)
        for _ in range(chance.choice([1, 10, 100])):
            data[chance.randrange(len(data))] = chance.randrange(256)
        (tmp_path / "b.pdf").write_bytes(data[: chance.choice([len(data), len(data) // 2])])
        outcome = await outcome_of(sandbox, tmp_path / "b.pdf")
        assert "b.pdf" in outcome or "PDF parser" in outcome or outcome == "read"


async def outcome_of(sandbox: Sandbox, path: Path) -> str:
    try:
        parsed = await parse_file(
            sandbox, path, name=path.name, source_type=SourceType.PDF, budget=Budget(10, 20)
        )
    except IngestFailed as refused:
        return refused.message
    return "read" if parsed.pages else "nothing"


async def test_a_pdf_is_parsed_in_the_sandbox(sandbox: Sandbox, tmp_path: Path) -> None:
    path = make(tmp_path / "a.pdf", *(f"page {number}" for number in range(1, 31)))
    parsed = await parse_file(sandbox, path, name="a.pdf", source_type=SourceType.PDF, max_pages=20)
    assert [page.text for page in parsed.pages] == [f"page {number}" for number in range(1, 21)]
    assert len(parsed.warnings) == 1
