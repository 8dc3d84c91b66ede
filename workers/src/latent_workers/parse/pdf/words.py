"""The words of one page of a PDF with their boxes, as the page is shown: turned, and cut to its crop box."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from latent_core.domain.errors import IngestFailed
from latent_core.domain.page_words import PageWord, bounded, placed
from latent_workers.parse.pdf import mupdf
from latent_workers.parse.pdf.lines import Box, around
from latent_workers.parse.pdf.parser import open_document
from latent_workers.parse.text.decode import clean

_PACKED: Final = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uff60]")
"""Scripts without spaces between words: each character is a word of its own."""


def page_words(file: BinaryIO, name: str, number: int) -> tuple[PageWord, ...]:
    """The words of page ``number``, from 1, in the order of the file. ``IngestFailed`` if it cannot be read."""
    document = open_document(file, name)
    if not 1 <= number <= document.page_count:
        raise IngestFailed(
            f"'{name}' has {document.page_count} pages; page {number} does not exist"
        )
    try:
        with mupdf.reading():
            page = document[number - 1]
            return bounded(_words(page))
    except mupdf.PdfError as exc:
        raise IngestFailed(f"page {number} of '{name}' is damaged") from exc


def _words(page: Any) -> Iterator[PageWord | None]:
    pymupdf = mupdf.load()
    width, height = page.rect.width, page.rect.height
    if width <= 0 or height <= 0:
        return
    flags = pymupdf.TEXT_PRESERVE_WHITESPACE | pymupdf.TEXT_MEDIABOX_CLIP
    # MuPDF gives places on the page before it is turned.
    rotation = page.rotation_matrix
    for block in page.get_textpage(flags=flags).extractRAWDICT()["blocks"]:
        for line in block.get("lines", ()):
            chars = (char for span in line["spans"] for char in span["chars"])
            for text, box in _split(chars):
                turned = pymupdf.Rect(box) * rotation
                x0, y0, x1, y1 = turned.normalize()
                yield placed(clean(text)[0], x0 / width, y0 / height, x1 / width, y1 / height)


def _split(chars: Iterator[dict[str, Any]]) -> Iterator[tuple[str, Box]]:
    """The words of a line, each with the box around its characters."""
    text, boxes = "", list[Box]()
    for char in chars:
        letter = char["c"]
        is_alone = _PACKED.match(letter) is not None
        if text and (letter.isspace() or is_alone):
            yield text, around(boxes)
            text, boxes = "", []
        if letter.isspace():
            continue
        if is_alone:
            yield letter, tuple(char["bbox"])
            continue
        text += letter
        boxes.append(tuple(char["bbox"]))
    if text:
        yield text, around(boxes)
