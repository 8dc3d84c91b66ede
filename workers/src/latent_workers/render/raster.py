"""Image files from pixels; single pages of PDFs; images as pages."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from PIL import Image

from latent_core.domain.errors import IngestFailed
from latent_workers.parse.image import parser
from latent_workers.parse.pdf import mupdf
from latent_workers.parse.pdf.parser import open_document
from latent_workers.render.page import PageInfo, RenderEnd, RenderOptions

MAX_PIXELS: Final = 16_000_000
MAX_EDGE: Final = 16_000
"""WebP's limit is 16,383."""
POINTS_PER_INCH: Final = 72.0


def scale_for(width: float, height: float, dpi: int) -> float:
    """Pixels per point, so that a page of that size (in points) stays within the limits."""
    width, height = max(width, 1.0), max(height, 1.0)
    return min(
        dpi / POINTS_PER_INCH,
        math.sqrt(MAX_PIXELS / (width * height)),
        MAX_EDGE / max(width, height),
    )


def blank(width: int, height: int) -> Any:
    """A white RGB pixmap of MuPDF."""
    core = mupdf.load().mupdf
    rgb = core.FzColorspace(core.FzColorspace.Fixed_RGB)
    pixmap = core.FzPixmap(rgb, width, height, core.FzSeparations(), 0)
    core.fz_clear_pixmap_with_value(pixmap, 255)
    return pixmap


def encoded(pixmap: Any, options: RenderOptions, *, text_only: bool = False) -> bytes:
    """The image file of an RGB pixmap without alpha. ``text_only``: nothing but letters and lines is on it."""
    core = mupdf.load().mupdf
    size = pixmap.w(), pixmap.h()
    samples = core.fz_pixmap_samples_memoryview(pixmap)
    image = Image.frombuffer("RGB", size, samples, "raw", "RGB", pixmap.stride(), 1)
    buffer = io.BytesIO()
    if options.image_format == "png":
        image.save(buffer, "PNG", compress_level=1)
    elif text_only:
        # Where there are few colours, lossless takes less time than lossy (a third on short pages, a fifth on full ones)
        # and about half of the bytes; with pictures it takes up to ten times as long. Above a quality of 20 the search for
        # repetitions costs more than all the rest.
        image.save(buffer, "WEBP", lossless=True, quality=0, method=2)
    else:
        # Method 0: encoding is most of the cost of a page, and higher methods save few bytes.
        image.save(buffer, "WEBP", quality=options.quality, method=0)
    return buffer.getvalue()


_ACTIONS: Final = ("A", "AA", "Dest", "FS", "Popup", "IRT")
"""Keys of annotations that execute, open or contain something."""
_OF_DOCUMENT: Final = ("AcroForm", "Names", "OpenAction", "AA")
_MAX_ANNOTATIONS = 10_000


def page_pdf(file: BinaryIO, name: str, number: int) -> bytes:
    """Page ``number``, from 1. Deterministic bytes. ``IngestFailed`` if it cannot be extracted."""
    document = open_document(file, name)
    if not 1 <= number <= document.page_count:
        raise IngestFailed(
            f"'{name}' has {document.page_count} pages; page {number} does not exist"
        )
    try:
        with mupdf.reading():
            return _taken_out(document, number)
    except mupdf.PdfError as exc:
        raise IngestFailed(f"page {number} of '{name}' is damaged: open its image instead") from exc


def _taken_out(document: Any, number: int) -> bytes:
    single = mupdf.load().open()
    place = number - 1
    # Links lead to pages that are not there, or start programs.
    single.insert_pdf(document, from_page=place, to_page=place, links=False, widgets=True)
    # What a form's fields show becomes part of the page; the fields would need the document's scripts.
    single.bake(annots=False, widgets=True)
    for key in _OF_DOCUMENT:
        single.xref_set_key(single.pdf_catalog(), key, "null")
    for index, annotation in enumerate(single[0].annots()):
        if index >= _MAX_ANNOTATIONS:
            break
        for key in _ACTIONS:
            single.xref_set_key(annotation.xref, key, "null")
    single.xref_set_key(single[0].xref, "AA", "null")
    return bytes(single.tobytes(garbage=3, deflate=True, no_new_id=True))


def pages(
    file: BinaryIO, name: str, options: RenderOptions
) -> Iterator[tuple[PageInfo, bytes] | RenderEnd]:
    """One page, always WebP."""
    edge = min(options.max_edge, MAX_EDGE)
    with parser.reading(name):
        image = parser.opened(file)
        image.draft("RGB", (edge, edge))
        small = parser.flat(parser.upright(image))
        small.thumbnail((edge, edge), Image.Resampling.LANCZOS, reducing_gap=2.0)
        buffer = io.BytesIO()
        small.convert("RGB").save(buffer, "WEBP", quality=options.quality, method=0)
    info = PageInfo(number=1, total=1, width=small.width, height=small.height, visual=1.0)
    yield info, buffer.getvalue()
    yield RenderEnd(pages=1, warnings=[])
