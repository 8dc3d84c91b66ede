"""Office files: headings, lists, tables with merged cells, slides with notes, sheets; and what is refused by name."""

from __future__ import annotations

import io
import zipfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from latent_core.domain.chunk import BlockType, SourceType
from latent_core.domain.errors import IngestFailed
from latent_workers.parse.office import package as limits, parser as office
from latent_workers.parse.parsed import ParsedDocument, SourceFile
from latent_workers.parse.registry import detect
from latent_workers.parse.run import PARSE_BUDGET, parse_file
from latent_workers.parse.table import parser as table, regions, workbook
from latent_workers.sandbox.budget import MIB
from latent_workers.sandbox.pool import Sandbox
from tests.support.office_files import (
    A,
    S,
    W,
    docx,
    merged,
    office as office_file,
    p,
    package,
    pptx,
    relationships,
    rows,
    shape,
    styled,
    tbl,
    tc,
    tr,
    tree,
    xlsx,
)

NUMBERED = '<w:numPr><w:ilvl w:val="{}"/><w:numId w:val="5"/></w:numPr>'
SPAN_2 = '<w:gridSpan w:val="2"/>'


def read(data: bytes, name: str = "a.docx") -> ParsedDocument:
    return office.parse(SourceFile(name, io.BytesIO(data), SourceType.DOCUMENT, 10))


def sheet(data: bytes, name: str = "a.xlsx") -> ParsedDocument:
    return table.parse(SourceFile(name, io.BytesIO(data), SourceType.SHEET, 10))


def refusal(data: bytes, name: str = "a.docx") -> IngestFailed:
    with pytest.raises(IngestFailed) as refused:
        read(data, name)
    return refused.value


def test_headings_of_a_word_document_have_the_levels_of_their_styles_and_of_those_they_are_based_on() -> (
    None
):
    found = read(
        docx(
            styled("One", "H1")
            + styled("Two", "H2")
            + styled("Three", "Eigene")
            + styled("Four", "Sub")
            + p("Own", '<w:outlineLvl w:val="1"/>')
            + p("text")
        )
    )
    headings = [(block.level, block.heading_path[-1]) for block in found.blocks if block.level]
    assert headings == [(1, "One"), (2, "Two"), (3, "Three"), (3, "Four"), (2, "Own")]
    assert found.blocks[-1].heading_path == ("One", "Own")
    assert found.title == "One"


def test_text_in_content_controls_insertions_and_text_boxes_is_read_and_deleted_text_is_not() -> (
    None
):
    box = f"<w:txbxContent>{p('in a box')}</w:txbxContent>"
    body = (
        f"<w:sdt><w:sdtContent>{p('in a control')}</w:sdtContent></w:sdt>"
        "<w:p><w:ins><w:r><w:t>added</w:t></w:r></w:ins><w:del><w:r><w:delText>gone</w:delText></w:r></w:del>"
        "<w:r><w:tab/><w:t>tabbed</w:t></w:r></w:p>"
        f'<w:p><w:r><w:t>before</w:t></w:r><w:r><mc:AlternateContent xmlns:mc="mc"><mc:Choice>{box}</mc:Choice>'
        f"<mc:Fallback>{box}</mc:Fallback></mc:AlternateContent></w:r></w:p>"
    )
    assert read(docx(body)).text == "in a control\n\nadded tabbed\n\nbefore\n\nin a box\n"


def test_numbered_and_nested_lists_keep_their_numbers() -> None:
    body = p("a", NUMBERED.format(0)) + p("b", NUMBERED.format(1)) + p("c", NUMBERED.format(0))
    found = read(docx(body))
    assert found.text == "1. a\n   - b\n2. c\n"
    assert [block.kind for block in found.blocks] == [BlockType.LIST]


def test_footnotes_follow_the_text_below_their_marks() -> None:
    notes = f'<w:footnotes {W}><w:footnote w:id="0" w:type="separator">{p("---")}</w:footnote>' + (
        f'<w:footnote w:id="2">{p("the source")}</w:footnote></w:footnotes>'
    )
    body = '<w:p><w:r><w:t>claim</w:t><w:footnoteReference w:id="2"/></w:r></w:p>'
    assert read(docx(body, **{"word/footnotes.xml": notes})).text == "claim [2]\n\n[2] the source\n"


def test_each_row_of_a_merged_table_has_the_words_of_the_cells_that_cover_it() -> None:
    goes_on, begins = "<w:vMerge/>", '<w:vMerge w:val="restart"/>'
    body = tbl(
        tr(tc("Place", begins), tc("Rain", SPAN_2), header=True),
        tr(tc("", goes_on), tc("May"), tc("June"), header=True),
        tr(tc("Oslo"), tc("53"), tc("68 | 70")),
    )
    assert read(docx(body)).text == (
        "| Place | Rain / May | Rain / June |\n| --- | --- | --- |\n| Oslo | 53 | 68 \\| 70 |\n"
    )


def test_a_table_that_lays_out_a_page_is_read_cell_by_cell_with_its_headings() -> None:
    inner = tbl(tr(tc("k"), tc("v")), tr(tc("1"), tc("2")))
    body = tbl(tr(f"<w:tc>{styled('Left', 'H1')}{p('x')}</w:tc>", f"<w:tc>{inner}</w:tc>"))
    assert read(docx(body)).text == "# Left\n\nx\n\n| k | v |\n| --- | --- |\n| 1 | 2 |\n"


def test_a_table_of_one_column_is_read_as_its_blocks() -> None:
    cells = (p("Lamps"), styled("Left", "H1"), p("first") + p("second"))
    body = tbl(*[tr(f"<w:tc>{cell}</w:tc>") for cell in cells])
    assert read(docx(body)).text == "Lamps\n\n# Left\n\nfirst\n\nsecond\n"


def test_formatted_runs_of_a_cell_are_read_whole() -> None:
    bold = (
        "<w:r><w:rPr><w:b/></w:rPr><w:t>bo</w:t></w:r><w:r><w:t>ld </w:t><w:tab/><w:t>x</w:t></w:r>"
    )
    body = tbl(tr(f"<w:tc><w:p>{bold}</w:p></w:tc>", tc("k")), tr(tc("1"), tc("2", SPAN_2)))
    assert read(docx(body)).text == "| bold x | k |  |\n| --- | --- | --- |\n| 1 | 2 | 2 |\n"


def test_slides_have_their_numbers_titles_points_tables_and_speaker_notes() -> None:
    grid = (
        '<p:graphicFrame><a:graphic><a:tbl><a:tr><a:tc gridSpan="2"><a:p><a:r><a:t>Both</a:t></a:r></a:p></a:tc>'
        "<a:tc/></a:tr><a:tr><a:tc><a:p><a:r><a:t>1</a:t></a:r></a:p></a:tc><a:tc><a:p><a:r><a:t>2</a:t></a:r>"
        "</a:p></a:tc></a:tr></a:tbl></a:graphic></p:graphicFrame>"
    )
    group = f"<p:grpSp>{shape('in a group')}</p:grpSp>"
    first = tree(shape("points\nmore", "body"), shape("Plan", "title"), grid, shape("7", "sldNum"))
    found = read(pptx(first, tree(group), notes="say this"), "a.pptx")
    assert found.text == (
        "# Slide 1: Plan\n\n- points\n- more\n\n| Both | Both |\n| --- | --- |\n| 1 | 2 |\n\n"
        "## Speaker notes\n\nsay this\n\n# Slide 2\n\nin a group\n"
    )
    assert found.title == "Plan"
    assert found.meta["slides"] == 2


def test_a_chart_is_a_table_of_its_values() -> None:
    chart = (
        f'<c:chart xmlns:c="c" {A}><c:ser><c:tx><c:v>Rain</c:v></c:tx><c:cat><c:v>May</c:v><c:v>June</c:v></c:cat>'
        "<c:val><c:v>53</c:v><c:v>68</c:v></c:val></c:ser></c:chart>"
    )
    frame = '<p:graphicFrame><c:chart xmlns:c="c" r:id="d"/></p:graphicFrame>'
    found = read(pptx(tree(frame), notes="", **{"ppt/charts/chart1.xml": chart}), "a.pptx")
    assert "|  | Rain |\n| --- | --- |\n| May | 53 |\n| June | 68 |" in found.text


def test_sheets_have_their_numbers_and_names_and_each_region_is_a_table() -> None:
    first = rows(
        ("Report", None, None),
        ("Place", "Year", "Rain"),
        ("Oslo", 2024, 1.5),
        (None, None, None),
        ("k", "v", None),
        ("a", 3, None),
    )
    found = sheet(xlsx(first, rows(("x",)), names=("Weather", "Rest")))
    assert found.text == (
        "# Sheet 1: Weather\n\nReport\n\n| Place | Year | Rain |\n| --- | --- | --- |\n| Oslo | 2024 | 1.5 |\n\n"
        "| k | v |\n| --- | --- |\n| a | 3 |\n\n# Sheet 2: Rest\n\nx\n"
    )
    assert found.blocks[2].heading_path == ("Sheet 1: Weather",)
    assert found.title == "a.xlsx"


def test_a_header_of_merged_cells_over_two_rows_names_every_column() -> None:
    grid = rows(("Place", "Rain", None), (None, "May", "June"), ("Oslo", 53, 68))
    found = sheet(xlsx(grid + merged("A1:A2", "B1:C1")))
    assert (
        "| Place | Rain / May | Rain / June |\n| --- | --- | --- |\n| Oslo | 53 | 68 |"
        in found.text
    )


def test_equal_values_side_by_side_are_all_kept() -> None:
    found = sheet(xlsx(rows(("x", "x"), ("x", "y")))).text
    assert "| x | x |\n| --- | --- |\n| x | y |" in found


def test_cells_without_a_place_follow_each_other() -> None:
    cells = "<c><v>1</v></c><c><v>2</v></c>"
    found = sheet(xlsx(f"<sheetData><row>{cells}</row><row>{cells}</row></sheetData>")).text
    assert "| 1 | 2 |\n| --- | --- |\n| 1 | 2 |" in found


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_csv_is_a_table_whatever_separates_its_columns(delimiter: str) -> None:
    lines = [("name", "note"), ("Oslo", '"two\nlines"'), ("Bergen", "a | b")]
    data = "\r\n".join(delimiter.join(line) for line in lines).encode()
    found = sheet(data, "a.csv")
    assert (
        found.text == "| name | note |\n| --- | --- |\n| Oslo | two lines |\n| Bergen | a \\| b |\n"
    )


def test_csv_without_columns_is_plain_text() -> None:
    assert sheet(b"just\nsome lines\n", "a.csv").text == "just\nsome lines\n"


@pytest.mark.parametrize(
    ("name", "head", "expected"),
    [
        ("a.docx", b"PK\x03\x04", SourceType.DOCUMENT),
        ("noname", docx(p("x")), SourceType.DOCUMENT),
        ("noname", xlsx(rows(("x",))), SourceType.SHEET),
        ("noname", pptx(tree(shape("x"))), SourceType.SLIDES),
        ("a.bin", b"{\\rtf1 x}", SourceType.DOCUMENT),
        ("a.csv", b"a,b", SourceType.SHEET),
    ],
)
def test_office_files_are_known_by_name_or_by_their_first_bytes(
    name: str, head: bytes, expected: SourceType
) -> None:
    assert detect(name, head).source_type is expected


@pytest.mark.parametrize(
    ("name", "head", "words"),
    [
        ("a.zip", b"PK\x03\x04", "a ZIP archive"),
        ("a.7z", b"7z\xbc\xaf\x27\x1c\0\0", "a 7-Zip archive"),
        ("a.key", b"PK\x03\x04", "an Apple Keynote presentation; export it as .pptx"),
        ("a.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "save it as .docx"),
        ("a.tar.gz", b"\x1f\x8b\x08\0", "a gzip file"),
    ],
)
def test_archives_and_other_programs_files_are_refused_by_name(
    name: str, head: bytes, words: str
) -> None:
    with pytest.raises(IngestFailed, match=words):
        detect(name, head)


def test_a_zip_archive_with_the_name_of_an_office_file_is_refused_by_what_it_is() -> None:
    assert "is a ZIP archive and no Office file" in refusal(package({"x.txt": "x"})).message


def test_an_office_file_with_the_name_of_another_is_read_as_what_it_is() -> None:
    assert read(pptx(tree(shape("x"))), "a.docx").text == "# Slide 1\n\nx\n"


def test_the_text_of_a_file_with_macros_is_read() -> None:
    types = (
        '<Types><Override PartName="/word/document.xml" '
        'ContentType="application/vnd.ms-word.document.macroEnabled.main+xml"/></Types>'
    )
    data = docx(p("words"), **{"[Content_Types].xml": types, "word/vbaProject.bin": "Shell"})
    assert read(data, "a.docm").text == "words\n"


def test_entities_are_refused_by_name() -> None:
    bomb = f'<!DOCTYPE x [<!ENTITY a "{"b" * 99}"><!ENTITY c SYSTEM "file:///etc/passwd">]>'
    body = f"{bomb}<w:document {W}><w:body><w:p><w:r><w:t>&a;&c;</w:t></w:r></w:p></w:body></w:document>"
    for written in (body.encode(), body.encode("utf-16")):
        found = refusal(docx("", **{"word/document.xml": written}))  # type: ignore[arg-type]
        assert "defines its own XML entities in word/document.xml" in found.message


@pytest.mark.parametrize("part", ["xl/sharedStrings.xml", "xl/worksheets/sheet1.xml"])
def test_entities_of_a_workbook_are_refused_by_name(part: str) -> None:
    bomb = f'<!DOCTYPE x [<!ENTITY a "b">]><worksheet {S}><sheetData/></worksheet>'
    with pytest.raises(IngestFailed, match=f"defines its own XML entities in {part}"):
        sheet(xlsx(rows(("x",)), **{part: bomb}))


def test_a_zip_bomb_is_refused_before_it_is_unpacked() -> None:
    found = refusal(docx("", **{"word/document.xml": " " * (2 * limits.MAX_PART)}))
    assert "unpacks to too much" in found.message
    found = refusal(docx("", **{"word/styles.xml": " " * (limits.MAX_PART // 2)}))
    assert "is packed" in found.message


def test_a_part_that_says_less_than_it_holds_is_refused() -> None:
    data = bytearray(docx("<w:p><w:r><w:t>" + "word " * 2000 + "</w:t></w:r></w:p>"))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        size = archive.getinfo("word/document.xml").file_size.to_bytes(4, "little")
    data = bytearray(bytes(data).replace(size, (50).to_bytes(4, "little")))
    assert "is damaged" in refusal(bytes(data)).message


def test_nesting_beyond_all_reason_is_refused() -> None:
    deep = "<w:sdt>" * 5_000 + p("x") + "</w:sdt>" * 5_000
    assert "is damaged" in refusal(docx(deep)).message


def test_a_sheet_of_too_many_cells_is_refused_before_it_is_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(regions, "MAX_CELLS", 5)
    with pytest.raises(IngestFailed, match="has more than 5 filled cells: split it"):
        sheet(xlsx(rows(*[(1, 2)] * 3)))
    with pytest.raises(IngestFailed, match="has more than 5 filled cells"):
        sheet(b"a,b\n" * 3, "a.csv")


def test_two_far_cells_do_not_fill_the_memory() -> None:
    far = '<sheetData><row r="1"><c r="A1"><v>1</v></c></row><row r="1048576"><c r="XFD1048576"><v>1</v></c></row></sheetData>'
    with pytest.raises(
        IngestFailed, match="spreads 2 cells over 1,048,576 rows and 16,384 columns"
    ):
        sheet(xlsx(far))


def test_a_broken_workbook_is_refused_by_name() -> None:
    data = office_file(
        "xlsx", {"xl/workbook.xml": "<workbook>", "xl/_rels/workbook.xml.rels": relationships()}
    )
    with pytest.raises(IngestFailed, match="is no workbook that can be read"):
        sheet(data)


def test_a_document_without_words_says_what_to_do() -> None:
    assert "export it as PDF" in refusal(docx(p(" "))).message


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox() as one:
        yield one


@pytest.mark.parametrize(
    ("name", "data", "source_type"),
    [
        ("a.docx", docx(p("words in the box")), SourceType.DOCUMENT),
        ("a.xlsx", xlsx(rows(("words", "in"), ("the", "box"))), SourceType.SHEET),
        ("a.pptx", pptx(tree(shape("words in the box"))), SourceType.SLIDES),
    ],
)
async def test_office_files_are_read_inside_the_sandbox(
    sandbox: Sandbox, tmp_path: Path, name: str, data: bytes, source_type: SourceType
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    found = await parse_file(sandbox, path, name=name, source_type=source_type)
    assert {"words", "in", "the", "box"} <= set(found.text.replace("|", " ").split())


async def test_a_large_table_takes_little_more_memory_than_its_words(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    path = tmp_path / "a.docx"
    path.write_bytes(docx(tbl(*[tr(*[tc(f"c{n}") for n in range(20)])] * 5_000)))

    async def read_within(mib: int) -> str:
        budget = replace(PARSE_BUDGET, memory_bytes=mib * MIB)
        kind = SourceType.DOCUMENT
        return (await parse_file(sandbox, path, name="a", source_type=kind, budget=budget)).text

    with pytest.raises(IngestFailed, match="needed more than 40 MB of memory"):
        await read_within(40)
    assert (await read_within(90)).count("\n") == 5_001


def test_numbers_are_written_as_people_write_them() -> None:
    assert [workbook.words_of(v) for v in (3.0, 0.1, True, "a\nb", 1e20)] == [
        "3",
        "0.1",
        "TRUE",
        "a b",
        "1e+20",
    ]
