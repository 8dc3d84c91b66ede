"""Word boxes of PDF pages lie on the ink of the page's image: turned, cut, scaled, damaged and locked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pymupdf
import pytest

from latent_core.domain.errors import IngestFailed
from latent_core.domain.page_words import SCALE, PageWord
from latent_workers.parse.pdf.words import page_words
from latent_workers.parse.run import page_words as read_in_sandbox
from tests.support.harness.shared_sandbox import Sandbox

TEXT = "The lighthouse keeper trims the wick at dusk and winds the clock before lighting."


def written(path: Path, rotation: int = 0, crop: pymupdf.Rect | None = None) -> Path:
    document = pymupdf.open()
    page = document.new_page(width=400, height=600)
    page.insert_textbox((60, 80, 340, 300), TEXT, fontsize=14)
    page.insert_text((20, 580), "outside", fontsize=8)
    if crop is not None:
        page.set_cropbox(crop)
    page.set_rotation(rotation)
    document.save(path)
    return path


def read(path: Path, number: int = 1) -> tuple[PageWord, ...]:
    with path.open("rb") as file:
        return page_words(file, path.name, number)


def ink_inside(path: Path, words: tuple[PageWord, ...]) -> tuple[float, float]:
    """The share of the image's ink that is inside of boxes, and the share of the image that they cover."""
    pixels = pymupdf.open(path)[0].get_pixmap(
        matrix=pymupdf.Matrix(2, 2), colorspace=pymupdf.csGRAY
    )
    ink = np.frombuffer(pixels.samples, np.uint8).reshape(pixels.height, pixels.stride) < 128
    inside = np.zeros_like(ink)
    for word in words:
        left, top, right, bottom = (edge / SCALE for edge in word[1:])
        rows = slice(int(top * pixels.height), int(bottom * pixels.height) + 1)
        inside[rows, int(left * pixels.width) : int(right * pixels.width) + 1] = True
    return float((ink & inside).sum() / ink.sum()), float(inside.mean())


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
@pytest.mark.parametrize("crop", [None, pymupdf.Rect(40, 60, 360, 500)])
def test_boxes_lie_on_the_ink_of_turned_and_cropped_pages(
    tmp_path: Path, rotation: int, crop: pymupdf.Rect | None
) -> None:
    path = written(tmp_path / "page.pdf", rotation, crop)
    words = read(path)
    expected = TEXT.split() + ([] if crop else ["outside"])
    assert [word.text for word in words] == expected
    inside, covered = ink_inside(path, words)
    assert inside > 0.999
    assert covered < 0.12


def test_scripts_without_spaces_have_a_box_per_character(tmp_path: Path) -> None:
    document = pymupdf.open()
    document.new_page().insert_text((72, 72), "\u706f\u5854 lamp", fontname="china-s", fontsize=14)
    document.save(tmp_path / "cjk.pdf")
    assert [word.text for word in read(tmp_path / "cjk.pdf")] == ["\u706f", "\u5854", "lamp"]


def test_a_page_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    path = written(tmp_path / "page.pdf")
    with pytest.raises(IngestFailed, match="page 2 does not exist"):
        read(path, 2)
    (tmp_path / "torn.pdf").write_bytes(b"%PDF-1.7 torn")
    with pytest.raises(IngestFailed, match=r"damaged|not a PDF"):
        read(tmp_path / "torn.pdf")


async def test_the_words_come_from_a_confined_child(tmp_path: Path, sandbox: Sandbox) -> None:
    path = written(tmp_path / "page.pdf", 90)
    assert await read_in_sandbox(sandbox, path, name="page.pdf", number=1) == read(path)
