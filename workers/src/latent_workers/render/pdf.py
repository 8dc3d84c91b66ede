"""Images of PDF pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

from latent_core.domain.errors import Issue, IssueCode
from latent_workers.parse.pdf import mupdf
from latent_workers.parse.pdf.parser import listed, open_document
from latent_workers.parse.text.decode import clean
from latent_workers.render import raster
from latent_workers.render.page import PageInfo, RenderEnd, RenderOptions
from latent_workers.render.visual import visual_share

Drawn = tuple[PageInfo, bytes]


def pages(file: BinaryIO, name: str, options: RenderOptions) -> Iterator[Drawn | RenderEnd]:
    """Each page that can be drawn, then the skipped pages."""
    document = open_document(file, name)
    total = document.page_count
    pages_to_draw = min(total, options.max_pages)
    missing: list[int] = []
    for number in range(options.first, min(pages_to_draw, options.last or pages_to_draw) + 1):
        try:
            with mupdf.reading():
                drawn = _page(document[number - 1], number, pages_to_draw, options)
        except mupdf.PdfError:
            missing.append(number)
        else:
            yield drawn
        # Decoded images and fonts of past pages would pile up.
        mupdf.load().TOOLS.store_shrink(100)
    page_warnings = list(_warnings(total, pages_to_draw, missing))
    yield RenderEnd(pages=pages_to_draw - len(missing), last=pages_to_draw, warnings=page_warnings)


def _page(page: Any, number: int, total: int, options: RenderOptions) -> Drawn:
    pymupdf = mupdf.load()
    scale = raster.scale_for(page.rect.width, page.rect.height, options.dpi)
    pixmap = page.get_pixmap(matrix=pymupdf.Matrix(scale, scale), colorspace=pymupdf.csRGB)
    image = raster.encoded(pixmap.this, options)
    text = clean(page.get_text().strip())[0]
    info = PageInfo(
        number=number,
        total=total,
        width=pixmap.width,
        height=pixmap.height,
        text=text,
        visual=visual_share(page),
    )
    return info, image


def _warnings(total: int, pages_to_draw: int, missing: list[int]) -> Iterator[Issue]:
    if pages_to_draw < total:
        yield Issue(
            code=IssueCode.INGEST_FAIL,
            message=f"Only the first {pages_to_draw} of {total} pages have images (pdf.max_pages).",
            details={"pages_rendered": pages_to_draw, "pages": total},
        )
    if missing:
        yield Issue(
            code=IssueCode.INGEST_FAIL,
            message=f"Pages that could not be drawn: {listed(missing)}.",
            details={"undrawn_pages": missing},
        )
