from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image, ImageStat

from latent_core.domain.chunk import SourceType
from latent_core.domain.errors import IngestFailed, Issue
from latent_workers.parse.pdf import mupdf
from latent_workers.parse.text.lines import Lines
from latent_workers.render import elements, markdown, raster
from latent_workers.render.page import PageInfo, RenderEnd, RenderOptions
from latent_workers.render.rows import COLUMNS, lexer_for, rows
from latent_workers.render.run import RenderedPage, render
from latent_workers.render.story import StoryLayout
from latent_workers.render.task import elements_of
from latent_workers.sandbox.pool import Sandbox

pymupdf: Any = mupdf.load()
SMALL = RenderOptions(dpi=50)


def laid_out(
    text: str, source_type: SourceType, options: RenderOptions = SMALL
) -> tuple[list[PageInfo], RenderEnd]:
    drawn = list(
        StoryLayout(text, "name", options).pages(elements_of(text, "name.py", source_type))
    )
    end = drawn.pop()
    assert isinstance(end, RenderEnd)
    infos = [page[0] for page in drawn if not isinstance(page, RenderEnd)]
    assert [info.number for info in infos] == list(range(1, end.pages + 1))
    return infos, end


async def rendered(
    sandbox: Sandbox, path: Path, source_type: SourceType, options: RenderOptions
) -> tuple[list[RenderedPage], list[Issue]]:
    async with render(
        sandbox, path, name=path.name, source_type=source_type, options=options
    ) as pages:
        found = [page async for page in pages]
        return found, pages.warnings


def picture(page: RenderedPage) -> Image.Image:
    image = Image.open(io.BytesIO(page.image))
    assert image.size == (page.width, page.height)
    return image.convert("L")


def is_drawn(page: RenderedPage) -> bool:
    return ImageStat.Stat(picture(page)).stddev[0] > 1


def make_pdf(path: Path, pages: int, width: float = 300, height: float = 400) -> Path:
    document = pymupdf.open()
    for number in range(1, pages + 1):
        document.new_page(width=width, height=height).insert_text(
            (30, 100), f"page {number}", fontsize=60
        )
    document.save(path)
    return path


@pytest.mark.parametrize(("image_format", "mime"), [("webp", "image/webp"), ("png", "image/png")])
async def test_pdf_pages_become_images(
    sandbox: Sandbox, tmp_path: Path, image_format: Any, mime: str
) -> None:
    path = make_pdf(tmp_path / "a.pdf", 3)
    options = RenderOptions(dpi=72, image_format=image_format)
    found, warnings = await rendered(sandbox, path, SourceType.PDF, options)
    assert [(p.number, p.total, p.mime, p.width, p.height) for p in found] == [
        (number, 3, mime, 300, 400) for number in (1, 2, 3)
    ]
    assert [page.text for page in found] == ["page 1", "page 2", "page 3"]
    assert all(is_drawn(page) and page.line_start is None for page in found)
    assert warnings == []


async def test_pages_over_the_limit_are_left_out_with_a_warning(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    options = RenderOptions(dpi=36, max_pages=2)
    found, warnings = await rendered(
        sandbox, make_pdf(tmp_path / "a.pdf", 3), SourceType.PDF, options
    )
    assert len(found) == 2
    assert warnings[0].details == {"pages_rendered": 2, "pages": 3}
    (tmp_path / "a.py").write_text("x = 1\n" * 500, encoding="utf-8")
    found, warnings = await rendered(sandbox, tmp_path / "a.py", SourceType.CODE, options)
    assert len(found) == 2
    assert warnings[0].details == {"pages_rendered": 2}


async def test_a_giant_page_is_drawn_within_the_caps(sandbox: Sandbox, tmp_path: Path) -> None:
    path = make_pdf(tmp_path / "a.pdf", 1, width=14_000, height=700)
    found, _ = await rendered(sandbox, path, SourceType.PDF, RenderOptions(dpi=300))
    assert found[0].width <= raster.MAX_EDGE
    assert found[0].width * found[0].height <= raster.MAX_PIXELS * 1.01
    assert found[0].width / found[0].height == pytest.approx(20, rel=0.01)


async def test_what_cannot_be_rendered_is_refused_while_iterating(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.7 nothing")
    with pytest.raises(IngestFailed, match=r"'a\.pdf'"):
        await rendered(sandbox, tmp_path / "a.pdf", SourceType.PDF, SMALL)
    (tmp_path / "a.md").write_bytes(b" \n")
    with pytest.raises(IngestFailed, match=r"'a\.md' is empty"):
        await rendered(sandbox, tmp_path / "a.md", SourceType.MARKDOWN, SMALL)


async def test_markdown_is_drawn_with_the_lines_each_page_shows(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    written = "# Title\r\n\r\n" + "".join(f"Paragraph {n}.\r\n\r\n" for n in range(120))
    (tmp_path / "a.md").write_bytes(written.encode())
    found, _ = await rendered(
        sandbox, tmp_path / "a.md", SourceType.MARKDOWN, RenderOptions(dpi=72)
    )
    assert len(found) > 2
    assert all(is_drawn(page) for page in found)
    assert found[0].line_start == 1
    assert found[-1].line_end == 241
    assert "Paragraph 0." in found[0].text
    assert "Paragraph 119." not in found[0].text
    for one, other in pairwise(found):
        assert one.line_end is not None
        assert other.line_start == one.line_end + 2


TEXTS = st.sampled_from(
    [
        *(
            "# Heading",
            "## Part",
            "text",
            "- item\n  - nested",
            "> quote\n> more",
            "```py\nx = 1\n```",
            "",
            "***",
        ),
        *(
            "| a | b |\n|---|---|\n| 1 | 2 |",
            "<b>raw</b> & more",
            "para " * 400,
            "w" * 300,
            "1. one\n2. two",
        ),
        *(
            "```\n" + "line\n" * 90 + "```",
            "- a\n\n  ```js\n  y\n  ```",
            "![alt](x.png) [l](u)",
            "line one\nline two",
        ),
        "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 70,
    ]
)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(TEXTS, min_size=1, max_size=8),
    st.sampled_from([SourceType.MARKDOWN, SourceType.TEXT, SourceType.CODE]),
)
def test_every_line_that_is_not_blank_is_shown_on_some_page_in_order(
    parts: list[str], source_type: SourceType
) -> None:
    text = "\n\n".join(parts)
    infos, _ = laid_out(text, source_type)
    shown: set[int] = set()
    for info in infos:
        assert info.line_start is not None
        assert info.line_end is not None
        assert info.line_start <= info.line_end
        shown.update(range(info.line_start, info.line_end + 1))
        assert info.text in text
    assert [info.line_start for info in infos] == sorted(info.line_start or 0 for info in infos)
    filled = {n for n, line in enumerate(Lines(text).texts(), start=1) if line.strip()}
    assert filled <= shown


def test_code_has_each_line_on_exactly_one_page() -> None:
    text = "\n".join(f"value_{n} = {n}" for n in range(1, 301))
    infos, _ = laid_out(text, SourceType.CODE)
    assert len(infos) > 3
    ranges = [(info.line_start, info.line_end) for info in infos]
    assert ranges[0][0] == 1
    assert ranges[-1][1] == 300
    assert all(other[0] == (one[1] or 0) + 1 for one, other in pairwise(ranges))
    assert "\n".join(info.text for info in infos) == text


def test_a_line_longer_than_a_page_goes_on_over_pages() -> None:
    for source_type in (SourceType.TEXT, SourceType.CODE):
        infos, _ = laid_out("before\n" + "word " * 4000 + "\nafter", source_type)
        assert len(infos) > 2
        assert infos[0].line_start == 1
        assert {info.line_start for info in infos[1:]} == {2}
        assert infos[-1].line_end == 3
        assert max(len(info.text) for info in infos) < 12_000


@pytest.mark.parametrize("form", ["one line", "lines", "quoted", "plain text"])
def test_a_paragraph_over_pages_is_divided_about_where_each_page_ends(form: str) -> None:
    words = [f"w{n}" for n in range(6000)]
    rows = [" ".join(words[at : at + 12]) for at in range(0, len(words), 12)]
    text = {
        "lines": "\n".join(rows),
        "quoted": "\n".join(f"> {row}" for row in rows),
    }.get(form, " ".join(words))
    source_type = SourceType.TEXT if form == "plain text" else SourceType.MARKDOWN
    infos, _ = laid_out(f"# Above\n\n{text}", source_type)
    assert len(infos) > 4
    shown = [[word for word in info.text.split() if word in set(words)] for info in infos]
    assert shown[0][0] == "w0"
    assert shown[-1][-1] == words[-1]
    for one, other in pairwise(shown):
        overlap = words.index(one[-1]) - words.index(other[0])
        assert -1 <= overlap < 30  # a mark and a word
    if form == "lines":
        assert infos[1].line_start in ((infos[0].line_end or 0), (infos[0].line_end or 0) + 1)


def test_marks_are_where_their_words_are_in_the_source() -> None:
    text = "> - a *long* line & `code` of [text](http://x.y/z) \\* and so on,\n>   which continues **here**\n"
    marks = [mark.offset for element in markdown.elements(text * 2) for mark in element.marks]
    begun = [text[offset % len(text) :].split()[0] for offset in marks]
    assert "which" in begun
    assert set(begun) <= {
        ">",
        "-",
        "a",
        "long*",
        "line",
        "of",
        "text](http://x.y/z)",
        "and",
        "which",
        "here**",
        "*",
    }


def content(text: str) -> str:
    return "".join(element.html for element in markdown.elements(text))


def test_raw_html_and_pictures_are_shown_as_text() -> None:
    shown = content(
        "<script>x()</script>\n\na <img src=http://x/y.png> ![alt & <b>](http://x/z.png) [l](javascript:x)\n"
    )
    assert "<script" not in shown
    assert "<img" not in shown
    assert "href" not in shown
    assert "&lt;script&gt;" in shown
    assert "[picture: alt &amp; &lt;b&gt;]" in shown


def test_marks_rise_with_the_source() -> None:
    text = "---\na: 1\n---\n# A\n\n- x\n  - y\n\n    ```\n    z\n    ```\n\n| a |\n|---|\n| b |\n"
    offsets = [mark.offset for element in markdown.elements(text) for mark in element.marks]
    assert offsets == sorted(set(offsets))
    assert {Lines(text).at(offset) for offset in offsets} >= {1, 2, 4, 6, 7, 10, 13, 15}


def test_a_table_no_page_could_hold_is_shown_as_it_is_written() -> None:
    wide = "|" + "column|" * 60 + "\n|" + "---|" * 60 + "\n|" + "value|" * 60 + "\n"
    tall = "| a | b |\n|---|---|\n| x | " + "long cell " * 1200 + " |\n"
    for text in (wide, tall):
        infos, _ = laid_out(text, SourceType.MARKDOWN)
        assert infos[0].line_start == 1
        assert infos[-1].line_end == 3


words = st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=250)


@settings(max_examples=60)
@given(st.lists(words, min_size=1, max_size=5))
def test_rows_keep_every_character_and_fit_the_page(texts: list[str]) -> None:
    assert list(rows([], lexer_for(), 1)) == []
    offset = 0
    source = []
    for text in texts:
        source.append((offset, text))
        offset += len(text) + 1
    whole = "\n".join(texts)
    found = list(rows(source, lexer_for(language="python"), 1))
    assert [row.line for row in found if row.line] == list(range(1, len(texts) + 1))
    starts = [row.offset for row in found]
    assert starts == sorted(starts)
    for start, after in zip(starts, [*starts[1:], len(whole) + 1], strict=True):
        assert len(whole[start:after].rstrip("\n")) <= COLUMNS


def test_languages_are_coloured_and_unknown_ones_are_not() -> None:
    (row,) = rows([(0, "def f(): return 'x'  # c")], lexer_for(name="a.py"), 1)
    assert '<span class="k">def</span>' in row.html
    assert '<span class="c"># c</span>' in row.html
    (row,) = rows([(0, "def f(): <b>")], lexer_for(name="a.unknown"), 1)
    assert row.html == "def f(): &lt;b&gt;"
    assert lexer_for(language="no-such-language").name == "Text only"


def test_a_long_line_is_wrapped_between_words_where_one_ends_near() -> None:
    text = "key: " + "word " * 40
    found = list(rows([(0, text)], lexer_for(), 7))
    assert [row.line for row in found] == [7, None, None]
    assert all(text[row.offset - 1] == " " for row in found[1:])
    solid = list(rows([(0, "x" * 250)], lexer_for(), 1))
    assert [row.offset for row in solid] == [0, 100, 200]
    tabbed = list(rows([(0, "\t" * 24 + "ab cd" * 3)], lexer_for(), 1))
    assert [row.html for row in tabbed] == [" " * 96 + "ab ", "cdab cdab cd"]


@pytest.mark.parametrize(
    ("name", "source_type", "text", "coloured"),
    [
        ("a.py", SourceType.CODE, "def f():\n    return 1\n", '<span class="k">def</span>'),
        ("a.yaml", SourceType.YAML, "lamp:\n  lit: true\n", '<span class="k">lamp</span>'),
        ("a.json", SourceType.JSON, '{"lamp": 1}\n', '<span class="m">1</span>'),
    ],
)
def test_code_yaml_and_json_are_numbered_and_coloured(
    name: str, source_type: SourceType, text: str, coloured: str
) -> None:
    shown = "".join(element.html for element in elements_of(text, name, source_type))
    assert '<span class="n">    1</span>' in shown
    assert coloured in shown


async def test_a_web_page_is_drawn_as_the_markdown_its_chunks_know(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    written = "".join(
        f"<p>The keeper trims wick number {n} at dusk and at dawn.</p>" for n in range(9)
    )
    page = f"<html><body><nav>menu</nav><article><h1>Lamp</h1>{written}</article></body></html>"
    (tmp_path / "a.html").write_text(page, encoding="utf-8")
    found, _ = await rendered(sandbox, tmp_path / "a.html", SourceType.WEB, SMALL)
    assert "wick number 8" in found[-1].text
    assert "<p>" not in found[0].text
    assert found[0].line_start == 1


def test_numbers_times_and_dates_are_not_broken_in_narrow_columns() -> None:
    for whole in ("10.5", "12:30", "2026-11-21", "1,000,000"):
        assert elements.softened(whole, narrow=True) == whole
    assert elements.softened("3.x", narrow=True) == "3.\u200bx"


def test_long_words_get_places_to_break() -> None:
    broken = elements.softened("short " + "x" * 100)
    assert broken.replace("\u200b", "") == "short " + "x" * 100
    assert max(map(len, broken.split("\u200b"))) <= 20
    assert elements.softened("a_b/c", narrow=True) == "a_\u200bb/\u200bc"


def test_pages_are_the_same_each_time() -> None:
    def images() -> Iterator[bytes]:
        text = "# A\n\ntext\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
        for page in StoryLayout(text, "n", SMALL).pages(markdown.elements(text)):
            if not isinstance(page, RenderEnd):
                yield page[1]

    assert list(images()) == list(images())


def test_a_page_of_text_is_stored_without_loss_and_smaller() -> None:
    text = "\n\n".join(f"The lamp of night {n} is lit, and its lens turns." for n in range(40))
    images: dict[str, bytes] = {}
    for image_format in ("webp", "png"):
        options = RenderOptions(dpi=100, image_format=image_format)
        layout = StoryLayout(text, "name", options)
        drawn, *_ = layout.pages(elements_of(text, "name.md", SourceType.MARKDOWN))
        assert not isinstance(drawn, RenderEnd)
        images[image_format] = drawn[1]
    webp, png = (Image.open(io.BytesIO(images[one])).convert("RGB") for one in ("webp", "png"))
    assert webp.tobytes() == png.tobytes()
    lossy = io.BytesIO()
    png.save(lossy, "WEBP", quality=80, method=0)
    assert len(images["webp"]) < len(lossy.getvalue())
