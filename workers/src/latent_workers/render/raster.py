"""Pixels to image files."""

from __future__ import annotations

import io
import math
from typing import Any, Final

from PIL import Image

from latent_workers.parse.pdf import mupdf
from latent_workers.render.page import RenderOptions

MAX_PIXELS: Final = 16_000_000
MAX_EDGE: Final = 16_000
"""WebP knows no edge over 16,383."""
POINTS_PER_INCH: Final = 72.0


def scale_for(width: float, height: float, dpi: int) -> float:
    """Pixels a point, so that a page of that size (in points) stays within the caps."""
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


def encoded(pixmap: Any, options: RenderOptions) -> bytes:
    """The image file of an RGB pixmap without alpha."""
    core = mupdf.load().mupdf
    size = pixmap.w(), pixmap.h()
    samples = core.fz_pixmap_samples_memoryview(pixmap)
    image = Image.frombuffer("RGB", size, samples, "raw", "RGB", pixmap.stride(), 1)
    buffer = io.BytesIO()
    if options.image_format == "png":
        image.save(buffer, "PNG", compress_level=1)
    else:
        # Method 0: encoding is most of the cost of a page, and higher methods save few bytes.
        image.save(buffer, "WEBP", quality=options.quality, method=0)
    return buffer.getvalue()
