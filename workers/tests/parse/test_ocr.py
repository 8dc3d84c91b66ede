"""OCR: the engine that is there, pages one by one, and what becomes of them when it misbehaves."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from latent_core.domain.chunk import BlockType, SourceType
from latent_workers.ocr import engine as engines
from latent_workers.ocr.engine import Choice, NoEngine, OcrEngine, find
from latent_workers.ocr.merge import merged
from latent_workers.ocr.reader import PageReader
from latent_workers.ocr.scans import Scan, read_scans
from latent_workers.ocr.words import Box, OcrText, OcrWord, in_order, placement, reading_of
from latent_workers.parse.parsed import ParsedDocument, ParsedPage, TextBlock
from latent_workers.parse.pdf import mupdf
from latent_workers.sandbox.budget import MIB, Budget
from latent_workers.sandbox.pool import Sandbox

pymupdf: Any = mupdf.load()
SMALL = Budget(cpu_seconds=60, wall_seconds=90, memory_bytes=512 * MIB, output_bytes=MIB)
SHORT = replace(SMALL, wall_seconds=6.0)
linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux confines this")

StandIn = Callable[..., Path]

HEAD = (
    "level\tpage_num\tblock_num\tpar_num\tline_num\tword_num\tleft\ttop\twidth\theight\tconf\ttext"
)


def row(text: str, *, block: int = 1, line: int = 1, confidence: float = 90) -> str:
    return f"5\t1\t{block}\t1\t{line}\t1\t0\t0\t9\t9\t{confidence}\t{text}"


def says(*rows: str) -> str:
    """A stand-in's way to answer."""
    return f"print({chr(10).join((HEAD, *rows))!r})"


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Puts a program named tesseract on the PATH that does what ``code`` says when it is to read."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def make(code: str, *, version: str = "tesseract 9.8.7", languages: str = "eng osd") -> Path:
        program = folder / "tesseract"
        program.write_text(
            f"#!{sys.executable} -IS\nimport sys\n"
            f"if '--version' in sys.argv:\n    sys.exit(print({version!r}))\n"
            f"if '--list-langs' in sys.argv:\n"
            f"    sys.exit(print('List:', *{languages.split()!r}, sep=chr(10)))\n"
            "picture = sys.stdin.buffer.read()\n" + dedent(code) + "\n",
            encoding="utf-8",
        )
        program.chmod(0o755)
        return program

    return make


def pdf(path: Path, pages: int) -> Path:
    """As many pages as wanted, page n being n times 50 points wide."""
    document = pymupdf.open()
    for number in range(1, pages + 1):
        document.new_page(width=50 * number, height=100)
    document.save(path)
    document.close()
    return path


def empty(pages: int) -> ParsedDocument:
    """What the parser makes of a scan."""
    numbers = range(1, pages + 1)
    return ParsedDocument(
        text="\f" * (pages - 1),
        pages=tuple(ParsedPage(number, "", 50.0 * number, 100.0) for number in numbers),
        scanned_pages=tuple(numbers),
    )


async def read(
    path: Path, pages: int, *, choice: Choice = "tesseract", budget: Budget = SMALL
) -> ParsedDocument:
    async def tell(done: int, total: int) -> None:
        assert 0 <= done <= total == pages

    async with PageReader(choice, budget=budget) as reader:
        return await read_scans(reader, Scan(path, path.name, SourceType.PDF), empty(pages), tell)


def messages(parsed: ParsedDocument) -> list[str]:
    return [warning.message for warning in parsed.warnings]


async def test_the_engine_is_tesseract_with_its_version_and_languages(stand_in: StandIn) -> None:
    program = stand_in("", version="tesseract 5.3.0-12-g0", languages="deu eng osd")
    assert await find("auto") == OcrEngine("tesseract", "5.3.0-12-g0", str(program), "eng+deu")
    found = await find("auto", "frk")
    assert isinstance(found, OcrEngine)
    assert found.languages == "frk"


async def test_an_engine_with_a_prefix_of_its_own_reads_its_models_and_nothing_else_there(
    stand_in: StandIn, tmp_path: Path
) -> None:
    prefix = tmp_path / "apart"
    for place, held in (("share/tessdata", "models"), ("share/keyrings", "keys")):
        (prefix / place).mkdir(parents=True)
        (prefix / place / "file").write_text(held, encoding="ascii")
    program = stand_in(
        f"""
        def content(place):
            try:
                return open(f"{prefix}/share/{{place}}/file").read()
            except PermissionError:
                return "denied"
        print({HEAD!r})
        print({row("{} {}")!r}.format(content("tessdata"), content("keyrings")))
        """
    )
    (prefix / "bin").mkdir()
    program.rename(prefix / "bin/tesseract")
    program.symlink_to(prefix / "bin/tesseract")
    parsed = await read(pdf(tmp_path / "one.pdf", 1), 1)
    async with Sandbox(children=1) as sandbox:
        held = (await sandbox.layers())["file_reads"]
    assert parsed.text == ("models denied" if held is True else "models keys")


async def test_a_machine_with_all_languages_did_not_choose_them(stand_in: StandIn) -> None:
    stand_in("", languages="afr ara deu eng fra osd")
    found = await find("tesseract")
    assert isinstance(found, OcrEngine)
    assert found.languages == "eng"


async def test_a_missing_ocr_engine_is_reported_with_what_to_install(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(engines, "_rapidocr", lambda: None)
    parsed = await read(tmp_path / "none.pdf", 3, choice="auto")
    (warning_text,) = messages(parsed)
    assert "page" in warning_text
    assert "1, 2, 3" in warning_text
    assert "tesseract-ocr" in warning_text
    assert "latent-containers[ocr]" in warning_text
    assert parsed.ocr is None
    stand_in("print('nothing')", version="no version at all")
    assert isinstance(await find("auto"), NoEngine)


async def test_an_engine_that_was_installed_meanwhile_is_found(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "_rapidocr", lambda: None)
    async with PageReader("auto") as reader:
        assert (await reader.engine()).key == "none"
        stand_in("")
        assert (await reader.engine()).key == "tesseract 9.8.7 eng"


async def test_pages_are_read_one_by_one_and_put_in_their_places(
    stand_in: StandIn, tmp_path: Path
) -> None:
    # The width of the picture tells the page: the stand-in reads it from the picture's header.
    stand_in(
        "width = round(int(picture.split()[1]) * 72 / 300 / 50)\n"
        "assert '--psm' in sys.argv and '300' in sys.argv\n"
        f"head = {HEAD!r}\n"
        "line = '5 1 {} 1 {} 1 0 0 9 9 {} {}'.replace(' ', chr(9))\n"
        "print(head)\n"
        "print(line.format(1, 1, 95, 'page'))\n"
        "print(line.format(1, 1, 95, width))\n"
        "print(line.format(1, 2, 95, 'below'))\n"
        "print(line.format(2, 1, 90, 'apart'))\n"
        "print(line.format(3, 1, 5, 'noise'))\n"
    )
    parsed = await read(pdf(tmp_path / "a.pdf", 3), 3)
    assert [page.text for page in parsed.pages] == [
        f"page {number}\nbelow\n\napart" for number in (1, 2, 3)
    ]
    assert parsed.text == "\f".join(page.text for page in parsed.pages)
    assert [(block.page, block.text) for block in parsed.blocks][:2] == [
        (1, "page 1\nbelow"),
        (1, "apart"),
    ]
    assert parsed.ocr is not None
    assert (parsed.ocr.engine, parsed.ocr.pages) == ("tesseract 9.8.7", (1, 2, 3))
    assert messages(parsed) == []
    assert parsed.ocr.complete


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import time; time.sleep(600)", r"took longer than 6 s"),
        ("import os; os.kill(os.getpid(), 11)", "ended with status 1|crashed"),
        ("import os; os.abort()", r"Tesseract crashed \(signal 6\)"),
        ("print('%%% no tsv')", "an invalid answer"),
        ("sys.exit('no such language')", "status 1: no such language"),
        ("b = [bytearray(1 << 24) for _ in range(1000)]", "status 1: .*MemoryError"),
        ("\nwhile True: sys.stdout.write('x' * 1000000)", "more than 16 MB of output"),
    ],
    ids=["hangs", "kills", "aborts", "garbage", "refuses", "hoards", "floods"],
)
async def test_a_page_that_cannot_be_read_costs_only_itself(
    stand_in: StandIn, tmp_path: Path, code: str, why: str
) -> None:
    stand_in(
        "if int(picture.split()[1]) * 72 / 300 < 75:\n"
        + "\n".join("    " + line for line in code.strip().split("\n"))
        + f"\nelse:\n    {says(row('fine'))}\n"
    )
    budget = SHORT if "sleep" in code else SMALL
    parsed = await read(pdf(tmp_path / "a.pdf", 3), 3, budget=budget)
    assert [page.text for page in parsed.pages] == ["", "fine", "fine"]
    (warning_text,) = messages(parsed)
    assert warning_text.startswith("The text of page 1 was not read: ")
    assert re.search(why, warning_text), warning_text
    assert parsed.ocr is not None
    assert not parsed.ocr.complete


async def test_an_engine_that_fails_again_and_again_is_left_alone(
    stand_in: StandIn, tmp_path: Path
) -> None:
    stand_in("import os; os.abort()")
    parsed = await read(pdf(tmp_path / "a.pdf", 9), 9)
    crashed, untried = messages(parsed)
    assert "pages 1, 2, 3, 4 was" in crashed
    assert "pages 5, 6, 7, 8, 9 was not read: skipped after 3 consecutive failures" in untried


@linux_only
async def test_the_engine_reaches_no_network_and_writes_no_file(
    stand_in: StandIn, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    stand_in(
        f"""
        import os, signal, socket
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        done = []
        try:
            socket.socket()
            done.append("socket")
        except OSError:
            pass
        try:
            with open({str(out)!r}, "wb", buffering=0) as file:
                file.write(b"x" * 100)
            done.append("file")
        except OSError:
            pass
        try:
            os.setsid()
            done.append("session")
        except OSError:
            pass
        done += sorted(set(os.environ) - {{"LANG", "LC_CTYPE", "OMP_THREAD_LIMIT"}})
        print({HEAD!r})
        print({row("X")!r}[:-1] + (" ".join(done) or "confined"))
        """
    )
    parsed = await read(pdf(tmp_path / "a.pdf", 1), 1)
    assert parsed.text == "confined", messages(parsed)


def test_what_is_no_text_is_left_out_and_what_cannot_be_stored_is_counted() -> None:
    words = [
        OcrWord("good", 0.9, 1, 1, (0, 0, 50, 10)),
        OcrWord("b\0d", 0.9, 1, 2, (0, 0, 50, 10)),
        OcrWord("|~", 0.9, 2, 1, (0, 0, 50, 10)),
        OcrWord("noise", 0.1, 3, 1, (0, 0, 50, 10)),
        OcrWord("odd", float("nan"), 4, 1, (0, 0, 50, 10)),
    ]
    reading = reading_of(words, placement((100, 100)))
    assert reading.paragraphs == ("good\nb\ufffdd",)
    assert (reading.confidence, reading.replaced) == (0.9, 1)


def box(left: float, top: float, width: float, text: str) -> Box:
    return Box(left, top, left + width, top + 20, text, 0.9)


def test_columns_are_read_one_after_the_other_and_tables_row_by_row() -> None:
    columns = [box(0, 0, 900, "heading")]
    for line in range(5):
        columns += [
            box(0, 40 + 25 * line, 400, f"left {line}"),
            box(500, 44 + 25 * line, 400, f"right {line}"),
        ]
    columns.append(box(0, 200, 900, "footing"))
    table = [
        box(100 * cell, 300 + 25 * line, 60, f"{line}.{cell}")
        for line in range(3)
        for cell in range(4)
    ]
    read = [word.text for word in in_order([*reversed(columns), *reversed(table)])]
    assert read == [
        "heading",
        *(f"left {line}" for line in range(5)),
        *(f"right {line}" for line in range(5)),
        "footing",
        *(f"{line}.{cell}" for line in range(3) for cell in range(4)),
    ]


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(*(st.integers(0, 1000), st.integers(0, 1000), st.integers(1, 500))), max_size=30
    )
)
def test_no_box_is_lost_wherever_it_stands(places: list[tuple[int, int, int]]) -> None:
    boxes = [box(x, y, width, str(n)) for n, (x, y, width) in enumerate(places)]
    assert sorted(word.text for word in in_order(boxes)) == sorted(b.text for b in boxes)


pages_of = st.lists(
    st.lists(st.text("ab \n\x01", min_size=1, max_size=6).filter(str.strip), max_size=3), max_size=6
)


def laid_out(pages: list[list[str]], spilled: set[int]) -> ParsedDocument:
    """The last block of a page in ``spilled`` is one with the first of the next."""
    blocks: list[TextBlock] = []
    shown, offset = [], 0
    for number, texts in enumerate(pages, start=1):
        start = offset
        for place, text in enumerate(texts):
            block = TextBlock(BlockType.LIST, text, offset, offset + len(text), page=number)
            last = blocks[-1] if blocks else None
            if place == 0 and number - 1 in spilled and last is not None and pages[number - 2]:
                block = replace(last, offset_end=block.offset_end, page_end=number)
                blocks.pop()
            blocks.append(block)
            offset += len(text) + 2
        text = "\n\n".join(texts)
        shown.append(ParsedPage(number, text, 1.0, 1.0))
        offset = start + len(text) + 1
    whole = "\f".join(p.text for p in shown)
    exact = [replace(b, text=whole[b.offset_start : b.offset_end]) for b in blocks]
    return ParsedDocument(whole, blocks=tuple(exact), pages=tuple(shown))


def words_in(texts: Iterable[str]) -> list[str]:
    return "\f".join(texts).split()


@settings(max_examples=200)
@given(
    pages_of,
    st.sets(st.integers(1, 5)),
    st.dictionaries(st.integers(1, 7), st.lists(st.text("xy", min_size=1), max_size=3)),
)
def test_merging_keeps_every_offset_exact_and_all_other_text(
    pages: list[list[str]], spilled: set[int], read: dict[int, list[str]]
) -> None:
    before = laid_out(pages, spilled)
    readings = {page: OcrText(paragraphs=tuple(texts)) for page, texts in read.items()}
    after, replaced = merged(before, readings)
    assert after.text == "\f".join(page.text for page in after.pages)
    for block in after.blocks:
        assert after.text[block.offset_start : block.offset_end] == block.text
    for one, other in pairwise(after.blocks):
        assert one.offset_end <= other.offset_start
    own = [p.text for p in before.pages if p.number not in replaced]
    kept = [block.text for block in after.blocks if block.kind is BlockType.LIST]
    assert words_in(kept) == words_in(own)
    for page in after.pages:
        if page.number in replaced:
            assert page.text == "\n\n".join(read[page.number])
        else:
            gained = sum(map(len, read.get(page.number, [])))
            assert gained <= sum(map(str.isalnum, page.text))


def scan(path: Path, *texts: str) -> Path:
    """A PDF of pictures of text."""
    document = pymupdf.open()
    for text in texts:
        source = pymupdf.open()
        drawn = source.new_page(width=300, height=200)
        drawn.insert_text((30, 60), text, fontsize=14)
        page = document.new_page(width=300, height=200)
        page.insert_image(page.rect, pixmap=drawn.get_pixmap(dpi=200))
    document.save(path)
    document.close()
    return path


@pytest.mark.parametrize("kind", ["tesseract", "rapidocr"])
async def test_a_real_engine_reads_a_scan(tmp_path: Path, kind: Choice) -> None:
    if isinstance(await find(kind), NoEngine):
        pytest.skip(f"{kind} is not installed here")
    path = scan(tmp_path / "a.pdf", "The keeper lit the lamp", "Nobody came that night")
    budget = replace(SMALL, memory_bytes=1536 * MIB)
    parsed = await read(path, 2, choice=kind, budget=budget)
    assert [page.text.split() for page in parsed.pages] == [
        ["The", "keeper", "lit", "the", "lamp"],
        ["Nobody", "came", "that", "night"],
    ], messages(parsed)
