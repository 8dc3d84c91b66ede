from __future__ import annotations

import random
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from latent_core.domain.chunk import BlockType, SourceType
from latent_core.domain.errors import IngestFailed
from latent_workers.parse.parsed import ParsedDocument, SourceFile
from latent_workers.parse.pdf import mupdf
from latent_workers.parse.pdf.outline import moment_of
from latent_workers.parse.pdf.parser import parse
from latent_workers.parse.run import parse_file
from latent_workers.sandbox.budget import Budget
from latent_workers.sandbox.pool import Sandbox

pymupdf: Any = mupdf.load()
Write = Callable[[Any], None]


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


def read(path: Path, max_pages: int = 100) -> ParsedDocument:
    with path.open("rb") as file:
        return parse(SourceFile(path.name, file, SourceType.PDF, max_pages))


def test_pages_have_their_text_size_and_exact_offsets(tmp_path: Path) -> None:
    parsed = read(make(tmp_path / "a.pdf", "First block\n\nSecond block\nof two lines", "Page two"))
    assert [(page.number, page.width, page.height) for page in parsed.pages] == [
        (1, 300, 400),
        (2, 300, 400),
    ]
    assert parsed.text == "First block\n\nSecond block of two lines\fPage two"
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


def test_an_outlined_heading_may_run_over_lines_and_come_late(tmp_path: Path) -> None:
    toc = [[1, "A long title over lines", 1], [1, "Later", 1]]
    parsed = read(
        make(
            tmp_path / "a.pdf",
            "before it.\nA long title\nover lines\nAfter it.",
            "On.",
            toc=toc,
        )
    )
    long = ("A long title over lines",)
    assert [(block.text, block.heading_path) for block in parsed.blocks] == [
        ("before it.", ()),
        ("A long title over lines", long),
        ("After it.", long),
        ("On.", ("Later",)),
    ]


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


def test_pages_without_text_are_reported(tmp_path: Path) -> None:
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
        (NO_PAGES, "without pages"),
        (b"%PDF-1.7 and nothing more", "is damaged, or not a PDF|without pages"),
        (b"this is text", "is damaged, or not a PDF|without pages"),
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


LOREM = (
    "the keeper of the light walks up the winding stair every evening and carries the oil can that the boat "
    "has brought from the mainland in spring while the gulls cry over the rocks below and nobody else is there"
)


class Sheets:
    """A PDF that is set by hand; places in points from the top left."""

    def __init__(self) -> None:
        self.document = pymupdf.open()
        self.page: Any = None

    def next(self) -> None:
        self.page = self.document.new_page(width=595, height=842)

    def say(self, x: float, y: float, text: str, size: float = 11, font: str = "helv") -> None:
        self.page.insert_text((x, y), text, fontsize=size, fontname=font)

    def column(self, x: float, y: float, lines: list[str], size: float = 11) -> None:
        for number, line in enumerate(lines):
            self.say(x, y + 1.3 * size * number, line, size)

    def rule(self, *line: tuple[float, float]) -> None:
        self.page.draw_line(*line)

    def parsed(self, path: Path) -> ParsedDocument:
        self.document.save(path)
        return read(path)


def filled(words: str, width: int) -> list[str]:
    """Lines as a typesetter fills them."""
    lines = [""]
    for word in words.split():
        if len(lines[-1]) + len(word) + 1 > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def texts_of(parsed: ParsedDocument) -> list[str]:
    return [block.text for block in parsed.blocks]


@pytest.fixture
def sheets() -> Sheets:
    return Sheets()


def test_columns_that_were_written_line_by_line_are_read_one_after_the_other(
    tmp_path: Path, sheets: Sheets
) -> None:
    sheets.next()
    sheets.say(50, 60, "A title that runs over both of the columns of this page and fills it", 14)
    left, right = filled(f"Left {LOREM}.", 42), filled(f"Right {LOREM}.", 42)
    for number, (one, other) in enumerate(zip(left, right, strict=True)):
        sheets.say(50, 100 + 14 * number, one)
        sheets.say(310, 100 + 14 * number, other)
    assert texts_of(sheets.parsed(tmp_path / "a.pdf"))[1:] == [f"Left {LOREM}.", f"Right {LOREM}."]


def test_blocks_written_in_a_wrong_order_are_read_from_the_top(
    tmp_path: Path, sheets: Sheets
) -> None:
    sheets.next()
    sheets.say(50, 500, "Third is this one.")
    sheets.say(50, 300, "Second is this one.")
    sheets.say(50, 100, "First is this one.")
    assert [text.split()[0] for text in texts_of(sheets.parsed(tmp_path / "a.pdf"))] == [
        "First",
        "Second",
        "Third",
    ]


def test_larger_and_bold_lines_are_headings_when_there_is_no_outline(
    tmp_path: Path, sheets: Sheets
) -> None:
    sheets.next()
    sheets.say(50, 80, "The Lighthouse", 22)
    sheets.column(50, 120, filled(f"At dusk {LOREM}.", 80))
    sheets.say(50, 240, "Its lamp", 15)
    sheets.say(50, 300, "Wicks and oil", 11, "hebo")
    sheets.column(50, 316, filled(f"In fog {LOREM}.", 80))
    parsed = sheets.parsed(tmp_path / "a.pdf")
    assert [(block.kind, block.heading_path) for block in parsed.blocks] == [
        (BlockType.HEADING, ("The Lighthouse",)),
        (BlockType.PARAGRAPH, ("The Lighthouse",)),
        (BlockType.HEADING, ("The Lighthouse", "Its lamp")),
        (BlockType.HEADING, ("The Lighthouse", "Its lamp", "Wicks and oil")),
        (BlockType.PARAGRAPH, ("The Lighthouse", "Its lamp", "Wicks and oil")),
    ]


def test_words_broken_at_line_ends_are_joined_and_compounds_keep_their_hyphen(
    tmp_path: Path, sheets: Sheets
) -> None:
    lines = [
        "A well-known keeper of the light told an inter-",
        "national crowd of visitors about his well-",
        "known lamp, which is a state-of-the-",
        "art machine with day- and night-watch, in-",
        "and outside of the tower on the cliff.",
    ]
    sheets.next()
    sheets.column(50, 100, lines)
    assert texts_of(sheets.parsed(tmp_path / "a.pdf")) == [
        "A well-known keeper of the light told an international crowd of visitors about his well-known lamp, "
        "which is a state-of-the-art machine with day- and night-watch, in- and outside of the tower on the cliff."
    ]


def test_what_repeats_at_the_same_place_is_dropped_and_what_does_not_stays(
    tmp_path: Path, sheets: Sheets
) -> None:
    for number in range(1, 9):
        sheets.next()
        sheets.say(50, 40, "Annual report of the light" if number % 2 else "Harbour board")
        sheets.say(
            50, 70, "Twice here" if number < 3 else f"Own words of sheet {number} at the top"
        )
        sheets.say(50, 120, f"Chapter {number}", 20)
        sheets.column(50, 200, filled(f"Sheet {number}: {LOREM}.", 80))
        sheets.say(280, 815, f"Page {number} of 8", 9)
    text = sheets.parsed(tmp_path / "a.pdf").text
    assert "Annual report" not in text
    assert "Harbour board" not in text
    assert "of 8" not in text
    assert text.count("Twice here") == 2
    for number in range(1, 9):
        assert f"Chapter {number}" in text
        assert f"Sheet {number}: the keeper" in text


def test_a_page_keeps_a_repeated_line_that_is_all_it_says(tmp_path: Path) -> None:
    parsed = read(make(tmp_path / "a.pdf", *["Page left blank"] * 4))
    assert [page.text for page in parsed.pages] == ["Page left blank"] * 4


def test_a_paragraph_that_runs_over_the_page_is_one_block_on_the_page_where_it_starts(
    tmp_path: Path, sheets: Sheets
) -> None:
    lines = filled(f"At dusk {LOREM}, and then {LOREM}.", 80)
    broken = [line.replace("mainland", "main-") for line in lines[:3]]
    sheets.next()
    sheets.say(50, 300, "Before it stands this sentence.")
    sheets.column(50, 700, [*lines[:2], "and he tells the visitors who have come from the main-"])
    sheets.say(50, 790, "1. A note in small print at the foot.", 8)
    sheets.next()
    sheets.column(50, 80, ["land that the boat sails in spring.", "Then they leave."])
    sheets.say(50, 200, "After it stands this sentence.")
    assert broken
    parsed = sheets.parsed(tmp_path / "a.pdf")
    (over,) = [block for block in parsed.blocks if block.page_end]
    assert (over.page, over.page_end) == (1, 2)
    assert "come from the mainland that the boat sails in spring." in over.text
    assert parsed.text[over.offset_start : over.offset_end] == over.text
    assert parsed.pages[0].text.endswith("from the mainland")
    assert parsed.pages[1].text.startswith("that the boat sails")
    assert "small print" in parsed.pages[0].text
    starts = [0, len(parsed.pages[0].text) + 1]
    for page, start in zip(parsed.pages, starts, strict=True):
        assert parsed.text[start : start + len(page.text)] == page.text


def test_sentences_that_end_with_their_page_stay_apart(tmp_path: Path, sheets: Sheets) -> None:
    for _ in range(2):
        sheets.next()
        sheets.column(50, 700, filled(f"At dusk {LOREM}.", 80))
    assert [block.page for block in sheets.parsed(tmp_path / "a.pdf").blocks] == [1, 2]


ROWS = [["Signal", "Seconds"], ["Horn | bell", "30"], ["Bell", ""], ["Siren", "7"]]
TABLE = "| Signal | Seconds |\n|---|---|\n| Horn \\| bell | 30 |\n| Bell |  |\n| Siren | 7 |"


def test_a_ruled_table_is_markdown_in_the_place_of_its_text(tmp_path: Path, sheets: Sheets) -> None:
    sheets.next()
    sheets.say(50, 90, "Signals in fog are these:")
    for number, row in enumerate([*ROWS, None]):
        y = 100 + 20 * number
        sheets.rule((50, y), (250, y))
        for x, cell in zip((55, 155), row or (), strict=False):
            sheets.say(x, y + 14, cell)
    for x in (50, 150, 250):
        sheets.rule((x, 100), (x, 180))
    sheets.say(50, 220, "Below the table goes on what is said.")
    parsed = sheets.parsed(tmp_path / "a.pdf")
    assert texts_of(parsed) == [
        "Signals in fog are these:",
        TABLE,
        "Below the table goes on what is said.",
    ]
    assert parsed.blocks[1].kind is BlockType.TABLE


def test_columns_between_rules_are_a_table_too_and_prose_between_rules_is_none(
    tmp_path: Path, sheets: Sheets
) -> None:
    sheets.next()
    for number, row in enumerate(ROWS):
        for x, cell in zip((55, 155), row, strict=True):
            sheets.say(x, 114 + 16 * number, cell)
    for y in (98, 119, 170):
        sheets.rule((50, y), (250, y))
    sheets.column(50, 320, filled(f"Prose: {LOREM}.", 80))
    for y in (300, 305, 600):
        sheets.rule((50, y), (545, y))
    assert texts_of(sheets.parsed(tmp_path / "a.pdf")) == [TABLE, f"Prose: {LOREM}."]


def test_a_drawing_is_no_table(tmp_path: Path, sheets: Sheets) -> None:
    sheets.next()
    for number in range(6):
        sheets.rule((100, 100 + 30 * number), (250, 100 + 30 * number))
        sheets.rule((100 + 30 * number, 100), (100 + 30 * number, 250))
    sheets.say(105, 115, "Peak")
    sheets.say(100, 300, "Figure 1. What the sensor saw.")
    parsed = sheets.parsed(tmp_path / "a.pdf")
    assert all(block.kind is BlockType.PARAGRAPH for block in parsed.blocks)


def test_bullets_are_items_of_a_list_and_entries_of_contents_stay_lines(
    tmp_path: Path, sheets: Sheets
) -> None:
    sheets.next()
    sheets.column(
        50, 100, ["\u2022 Trim the wick at dusk, every", "evening of the year.", "\u2022 Wind it."]
    )
    sheets.column(50, 300, [f"Chapter {n} {'.' * 60} {n}" for n in (1, 2)])
    parsed = sheets.parsed(tmp_path / "a.pdf")
    assert texts_of(parsed)[1] == "Chapter 1 \u2026 1\nChapter 2 \u2026 2"
    assert parsed.blocks[0].kind is BlockType.LIST


def test_text_that_runs_up_the_page_is_read_like_any_other(tmp_path: Path, sheets: Sheets) -> None:
    sheets.next()
    for number, line in enumerate(filled(f"At dusk {LOREM}.", 80)):
        sheets.page.insert_text((100 + 14 * number, 700), line, rotate=90)
    assert texts_of(sheets.parsed(tmp_path / "a.pdf")) == [f"At dusk {LOREM}."]


def test_an_image_without_text_is_reported_as_scanned(tmp_path: Path, sheets: Sheets) -> None:
    picture = pymupdf.Pixmap(pymupdf.csRGB, pymupdf.IRect(0, 0, 60, 80))
    for number in range(4):
        sheets.next()
        if number != 1:
            sheets.page.insert_image(sheets.page.rect, pixmap=picture)
        if number != 3:
            sheets.say(50, 815, f"Page {number + 1}")
        if number in (0, 1):
            sheets.column(50, 100, filled(f"Sheet {number}: {LOREM}.", 80))
    assert sheets.parsed(tmp_path / "a.pdf").scanned_pages == (3, 4)


@pytest.mark.parametrize("seed", range(12))
def test_rulings_and_shapes_lose_and_duplicate_no_word(
    tmp_path: Path, sheets: Sheets, seed: int
) -> None:
    chance = random.Random(seed)
    for number in range(3):
        sheets.next()
        places = [(x, y) for x in range(40, 540, 60) for y in range(60, 800, 18)]
        chance.shuffle(places)
        for index, (x, y) in enumerate(places[: chance.choice([5, 40, 200])]):
            sheets.say(x, y, f"w{number}x{index}", chance.choice([9, 9, 9, 11]))
        for _ in range(chance.choice([0, 6, 40])):
            x, y = 37 + 60 * chance.randrange(9), 48 + 18 * chance.randrange(42)
            width, height = 60 * chance.randrange(5), 18 * chance.randrange(9)
            if chance.random() < 0.5:
                sheets.page.draw_rect((x, y, x + width + 1, y + height + 1))
            else:
                sheets.rule((x, y), (x + width, y))
    text = sheets.parsed(tmp_path / "a.pdf").text
    given = [word for page in sheets.document for word in page.get_text().split()]
    assert sorted(re.findall(r"w\dx\d+", text)) == sorted(given)


def test_a_footer_of_every_second_page_is_dropped_and_a_stamp_in_the_margin_is_no_title(
    tmp_path: Path, sheets: Sheets
) -> None:
    for number in range(8):
        sheets.next()
        sheets.column(50, 200, filled(f"Sheet {number}: {LOREM}.", 80))
        if number % 2:
            sheets.say(50, 815, "Get it for nothing")
    sheets.document[0].insert_text((30, 600), "Stamp of the archive", fontsize=30, rotate=90)
    sheets.document[0].insert_text((50, 100), "Lights of the coast", fontsize=22)
    parsed = sheets.parsed(tmp_path / "a.pdf")
    assert "for nothing" not in parsed.text
    assert "Stamp of the archive" in parsed.pages[0].text
    assert parsed.title == "Lights of the coast"


def test_footnotes_do_not_part_a_sentence_that_goes_on_in_the_next_column(
    tmp_path: Path, sheets: Sheets
) -> None:
    words = filled(f"At dusk {LOREM}, and then {LOREM}.", 42)
    sheets.next()
    sheets.column(50, 600, words[:8])
    sheets.say(50, 780, "1 A note below the column without an end", 7)
    sheets.column(310, 100, words[8:])
    assert texts_of(sheets.parsed(tmp_path / "a.pdf"))[0] == f"At dusk {LOREM}, and then {LOREM}."
