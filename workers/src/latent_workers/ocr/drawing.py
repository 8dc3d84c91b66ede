"""A page as gray pixels for OCR engines: upright, at about 300 dpi."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import BinaryIO, Final

from PIL import Image

from latent_core.domain.chunk import SourceType
from latent_core.domain.errors import IngestFailed
from latent_workers.parse.image import parser
from latent_workers.parse.pdf import mupdf
from latent_workers.parse.pdf.parser import open_document
from latent_workers.render import raster

DPI: Final = 300
SMALL: Final = 1000
"""Images with a shorter longest edge are enlarged: screenshots have letters of ten pixels, and engines are trained
on thirty."""


@dataclass(frozen=True, slots=True)
class PageScan:
    """A page in mode ``L``. ``dpi`` is None if it is unknown."""

    image: Image.Image
    dpi: int | None


def draw(file: BinaryIO, name: str, source_type: SourceType, page: int) -> PageScan:
    """Raises ``IngestFailed`` if the page cannot be drawn."""
    if source_type is SourceType.PDF:
        return _of_pdf(file, name, page)
    with parser.reading(name):
        image = parser.opened(file)
        image.draft("L", (raster.MAX_EDGE // 4, raster.MAX_EDGE // 4))
        gray = parser.flat(parser.upright(image)).convert("L")
    return PageScan(_scaled(gray), None)


def _of_pdf(file: BinaryIO, name: str, number: int) -> PageScan:
    document = open_document(file, name)
    try:
        with mupdf.reading():
            pymupdf = mupdf.load()
            page = document[number - 1]
            scale = raster.scale_for(page.rect.width, page.rect.height, DPI)
            matrix = pymupdf.Matrix(scale, scale)
            pixmap = page.get_pixmap(matrix=matrix, colorspace=pymupdf.csGRAY)
            size = pixmap.width, pixmap.height
            image = Image.frombytes("L", size, pixmap.samples, "raw", "L", pixmap.stride)
    except mupdf.PdfError as exc:
        raise IngestFailed(f"page {number} of '{name}' cannot be drawn") from exc
    finally:
        mupdf.load().TOOLS.store_shrink(100)
    return PageScan(image, max(70, round(scale * raster.POINTS_PER_INCH)))


def _scaled(image: Image.Image) -> Image.Image:
    width, height = image.size
    factor = math.sqrt(raster.MAX_PIXELS / (width * height))
    if factor >= 1.0:
        factor = 2.0 if max(width, height) < SMALL else 1.0
    if factor == 1.0:
        return image
    size = max(1, round(width * factor)), max(1, round(height * factor))
    return image.resize(size, Image.Resampling.LANCZOS)
