"""Images: what Pillow knows of them. Their text is for OCR to read (``latent_workers.ocr``)."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Final

from PIL import Image

from latent_core.domain.errors import Issue, IssueCode
from latent_workers.parse.image import picture
from latent_workers.parse.parsed import ParsedDocument, ParsedPage
from latent_workers.parse.source import SourceFile

_NO_WORD: Final = re.compile(r"[\W_]+")
_PREVIEWS: Final = "MPO"
"""JPEG with further pictures: previews and depth maps that cameras add, no pages."""


def parse(source: SourceFile) -> ParsedDocument:
    """One page without text yet, scanned; the whole picture is decoded, so that a damaged one is refused."""
    with picture.reading(source.name):
        image = picture.opened(source.file)
        frames = _frames(image)
        form = image.format or ""
        width, height = picture.upright(image).size
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
        message=f"Only the first of {frames} pictures in the file was read; save the others as files of their own.",
        details={"pictures": frames, "pictures_read": 1},
    )
