"""The page image of an image: itself, upright and no larger than it need be."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import BinaryIO

from PIL import Image

from latent_workers.parse.image import picture
from latent_workers.render import raster
from latent_workers.render.page import PageInfo, RenderEnd, RenderOptions


def pages(
    file: BinaryIO, name: str, options: RenderOptions
) -> Iterator[tuple[PageInfo, bytes] | RenderEnd]:
    """One page, always WebP."""
    edge = min(options.max_edge, raster.MAX_EDGE)
    with picture.reading(name):
        image = picture.opened(file)
        image.draft("RGB", (edge, edge))
        small = picture.flat(picture.upright(image))
        small.thumbnail((edge, edge), Image.Resampling.LANCZOS, reducing_gap=2.0)
        buffer = io.BytesIO()
        small.convert("RGB").save(buffer, "WEBP", quality=options.quality, method=0)
    info = PageInfo(number=1, total=1, width=small.width, height=small.height, visual=1.0)
    yield info, buffer.getvalue()
    yield RenderEnd(pages=1, warnings=[])
