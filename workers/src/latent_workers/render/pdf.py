"""Images of PDF pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

from latent_core.domain.errors import Issue, IssueCode
from latent_workers.parse import mupdf
from latent_workers.parse.decode import clean
from latent_workers.parse.pdf import listed, open_document
from latent_workers.render import raster
from latent_workers.render.page import End, PageInfo, RenderOptions
from latent_workers.render.visual import visual_share

Drawn = tuple[PageInfo, bytes]


def pages(file: BinaryIO, name: str, options: RenderOptions) -> Iterator[Drawn | End]:
    """Each page that can be drawn, then what was left out."""
    document = open_document(file, name)
    total = document.page_count
    wanted = min(total, options.max_pages)
    missing: list[int] = []
    for number in range(options.first, min(wanted, options.last or wanted) + 1):
        try:
            with mupdf.reading():
                drawn = _page(document[number - 1], number, wanted, options)
        except mupdf.PdfError:
            missing.append(number)
        else:
            yield drawn
        # Decoded images and fonts of past pages would pile up.
        mupdf.load().TOOLS.store_shrink(100)
    told = list(_warnings(total, wanted, missing))
    yield End(pages=wanted - len(missing), last=wanted, warnings=told)


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


def _warnings(total: int, wanted: int, missing: list[int]) -> Iterator[Issue]:
    if wanted < total:
        yield Issue(
            code=IssueCode.INGEST_FAIL,
            message=f"Only the first {wanted} of {total} pages have images (pdf.max_pages).",
            details={"pages_rendered": wanted, "pages": total},
        )
    if missing:
        yield Issue(
            code=IssueCode.INGEST_FAIL,
            message=f"Pages that could not be drawn: {listed(missing)}.",
            details={"undrawn_pages": missing},
        )
