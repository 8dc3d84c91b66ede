"""Images, read by Pillow. OCR reads their text (``latent_workers.ocr``)."""

from __future__ import annotations

import re
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath
from typing import BinaryIO, Final

from PIL import Image, ImageOps, UnidentifiedImageError

from latent_core.domain.errors import IngestFailed, Issue, IssueCode
from latent_workers.parse.parsed import ParsedDocument, ParsedPage, SourceFile

FORMATS: Final = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
MAX_PIXELS: Final = 100_000_000
_BROKEN: Final = (
    *(OSError, EOFError, SyntaxError, ValueError, TypeError, LookupError, AttributeError),
    *(ArithmeticError, AssertionError, NotImplementedError, RuntimeError, struct.error, zlib.error),
)
"""Errors of Pillow's decoders and their libraries for broken files."""
_DEEP: Final = ("F", "I", "I;16", "I;16B", "I;16L", "I;16N")
_WHITE: Final = (255, 255, 255)


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Maps Pillow's errors for broken or huge images to ``IngestFailed``."""
    Image.MAX_IMAGE_PIXELS = MAX_PIXELS
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            yield
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as exc:
        raise IngestFailed(
            f"'{name}' has more than {MAX_PIXELS // 1_000_000} million pixels: scale it down"
        ) from exc
    except UnidentifiedImageError as exc:
        raise IngestFailed(f"'{name}' is a damaged image: its header cannot be read") from exc
    except _BROKEN as exc:
        raise IngestFailed(f"'{name}' is a damaged image: {str(exc)[:200]}") from exc


def opened(file: BinaryIO) -> Image.Image:
    """The first image of a file, not decoded yet; use it inside ``reading``."""
    return Image.open(file, formats=FORMATS)


def upright(image: Image.Image) -> Image.Image:
    """Rotated as its EXIF data says, if it can be read."""
    image.load()
    with suppress(*_BROKEN):
        ImageOps.exif_transpose(image, in_place=True)
    return image


def flat(image: Image.Image) -> Image.Image:
    """Eight bits per channel, gray or RGB, on a white background."""
    if image.mode in _DEEP:
        return _shallow(image)
    if image.mode in ("L", "RGB"):
        return image
    if image.mode == "1":
        return image.convert("L")
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        plain = Image.new("RGB", layer.size, _WHITE)
        plain.paste(layer, mask=layer.getchannel("A"))
        return plain
    return image.convert("RGB")


def _shallow(image: Image.Image) -> Image.Image:
    """Gray of more than eight bits, stretched to eight: scanners use 10 or 12 of 16 bits."""
    wide = image.convert("F")
    low, high = wide.getextrema()
    if not isinstance(low, float) or not isinstance(high, float) or not low < high:
        return Image.new("L", image.size, 255)
    base = min(low, 0.0)
    scale = 255.0 / (high - base)
    return wide.point(lambda value: value * scale - base * scale).convert("L")


_NO_WORD: Final = re.compile(r"[\W_]+")
_PREVIEWS: Final = "MPO"
"""JPEG with previews and depth maps of cameras, which are not pages."""


def parse(source: SourceFile) -> ParsedDocument:
    """One scanned page without text; the image is decoded completely, so that a damaged one is an error."""
    with reading(source.name):
        image = opened(source.file)
        frames = _frames(image)
        form = image.format or ""
        width, height = upright(image).size
    return ParsedDocument(
        text="",
        title=words_of(source.name),
        pages=(ParsedPage(1, "", float(width), float(height)),),
        meta={"width": width, "height": height, "format": "JPEG" if form == _PREVIEWS else form},
        warnings=(_first_only(frames),) if frames > 1 else (),
        scanned_pages=(1,),
    )


def words_of(name: str) -> str | None:
    """The words in a file's name: ``vehicle_form-2.jpg`` → ``vehicle form 2``."""
    return _NO_WORD.sub(" ", PurePosixPath(name).stem).strip() or None


def _frames(image: Image.Image) -> int:
    return 1 if image.format == _PREVIEWS else int(getattr(image, "n_frames", 1))


def _first_only(frames: int) -> Issue:
    return Issue(
        code=IssueCode.INGEST_FAIL,
        message=f"Only the first of {frames} images in the file was read. Save the others as separate files.",
        details={"pictures": frames, "pictures_read": 1},
    )
