"""How much of a page is picture: prose, a large image, a drawn chart, a ruled table, a scan, and grounds that are none."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from latent_core.domain.chunk import SourceType
from latent_workers.parse.pdf import mupdf
from latent_workers.render.page import RenderOptions
from latent_workers.render.run import render
from latent_workers.render.visual import share, visual_share
from latent_workers.sandbox.pool import Sandbox

pymupdf: Any = mupdf.load()
WIDTH, HEIGHT = 600.0, 800.0
PROSE = "All that the keeper saw that night he wrote into the book below the lamp. " * 25


def blank() -> Any:
    return pymupdf.open().new_page(width=WIDTH, height=HEIGHT)


def prose(page: Any, top: float = 60) -> Any:
    assert page.insert_textbox((50, top, 550, 780), PROSE, fontsize=11) >= 0
    return page


def image(shade: int = 120) -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (40, 30), shade).save(buffer, "PNG")
    return buffer.getvalue()


def chart(page: Any, left: float, top: float, right: float, bottom: float) -> None:
    """Two axes and bars."""
    page.draw_line((left, top), (left, bottom))
    page.draw_line((left, bottom), (right, bottom))
    for n in range(8):
        x = left + (right - left) * n / 8
        page.draw_rect((x + 4, bottom - 20 * (n + 1), x + 30, bottom), fill=(0.2, 0.4, 0.6))


def table(page: Any, rows: int) -> None:
    for n in range(rows + 1):
        page.draw_line((50, 100 + 30 * n), (550, 100 + 30 * n), width=0.5)
    for n in range(5):
        page.draw_line((50 + 125 * n, 100), (50 + 125 * n, 100 + 30 * rows), width=0.5)


def test_a_page_of_text_shows_nothing() -> None:
    assert visual_share(prose(blank())) == 0.0
    assert visual_share(blank()) == 0.0


def test_an_image_counts_with_its_area_however_often_it_is_painted() -> None:
    page = prose(blank(), top=420)
    for _ in range(3):
        page.insert_image((0, 0, WIDTH, HEIGHT / 2), stream=image(), keep_proportion=False)
    assert visual_share(page) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("turned", [0, 90, 270])
def test_a_drawn_chart_counts_with_the_box_around_it(turned: int) -> None:
    page = prose(blank(), top=420)
    chart(page, 100, 100, 500, 380)
    page.set_rotation(turned)
    assert visual_share(page) == pytest.approx(400 * 280 / (WIDTH * HEIGHT), abs=0.03)


def test_a_ruled_table_counts_and_a_single_rule_does_not() -> None:
    page = prose(blank(), top=450)
    table(page, rows=10)
    assert visual_share(page) == pytest.approx(500 * 300 / (WIDTH * HEIGHT), abs=0.05)
    page = prose(blank())
    page.draw_line((50, 40), (550, 40))
    page.draw_line((300, 60), (300, 780))
    assert visual_share(page) == 0.0


def test_grounds_frames_and_underlines_of_text_are_no_drawing() -> None:
    page = blank()
    page.draw_rect(page.rect, fill=(0.95, 0.95, 0.9))
    page.draw_rect((20, 20, 580, 780))
    page.draw_rect((45, 55, 555, 400), fill=(0.9, 0.9, 0.9))
    for n in range(12):
        page.draw_line((50, 75 + 15 * n), (550, 75 + 15 * n), width=0.5)
    assert visual_share(prose(page)) == 0.0


def test_a_scan_is_all_picture_margins_and_invisible_text_and_all() -> None:
    page = blank()
    page.insert_image((60, 80, 540, 720), stream=image(), keep_proportion=False)
    page.insert_text((100, 200), "read by somebody's OCR before", render_mode=3)
    assert visual_share(page) == 1.0
    page.insert_text((100, 300), "but this is to be seen")
    assert 0.5 < visual_share(page) < 0.8


box = st.tuples(*(st.floats(-1e6, 1e6) for _ in range(4)))
kinds = st.sampled_from(
    ["fill-image", "fill-path", "stroke-path", "fill-text", "fill-shade", "odd"]
)


@settings(max_examples=50)
@given(st.lists(st.tuples(kinds, box), max_size=30), st.floats(0, 1e5), st.floats(0, 1e5))
def test_whatever_is_painted_the_share_is_one(
    objects: list[tuple[str, Any]], width: float, height: float
) -> None:
    assert 0.0 <= share(objects, width, height) <= 1.0


async def test_rendered_pages_tell_their_share(tmp_path: Path) -> None:
    pdf, picture, text = tmp_path / "a.pdf", tmp_path / "a.png", tmp_path / "a.md"
    document = pymupdf.open()
    prose(document.new_page())
    document.new_page().insert_image((0, 0, 595, 842), stream=image(), keep_proportion=False)
    document.save(pdf)
    picture.write_bytes(image())
    text.write_text("# Title\n\nwords", encoding="utf-8")
    found = []
    async with Sandbox(children=1) as sandbox:
        for path, kind in (
            (pdf, SourceType.PDF),
            (picture, SourceType.IMAGE),
            (text, SourceType.MARKDOWN),
        ):
            async with render(
                sandbox, path, name=path.name, source_type=kind, options=RenderOptions(dpi=50)
            ) as pages:
                found.append([page.visual async for page in pages])
    assert found == [[0.0, 1.0], [1.0], [0.0]]
