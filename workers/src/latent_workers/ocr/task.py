"""OCR in the sandbox's children: one page per task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from latent_core.domain.chunk import SourceType
from latent_workers.ocr import drawing, tesseract
from latent_workers.ocr.engine import OcrEngine
from latent_workers.ocr.words import OcrText
from latent_workers.sandbox.frames import TaskOutput


def page(arguments: dict[str, Any], files: Sequence[BinaryIO]) -> Iterator[TaskOutput]:
    """``engine, name, source_type, page`` and the file; yields one ``OcrText``."""
    engine = OcrEngine(**arguments["engine"])
    source_type = SourceType(arguments["source_type"])
    drawn = drawing.draw(files[0], arguments["name"], source_type, arguments["page"])
    yield TaskOutput(_read(engine, drawn).model_dump())


def _read(engine: OcrEngine, drawn: drawing.PageScan) -> OcrText:
    if engine.kind == "tesseract":
        return tesseract.read(engine, drawn)
    from latent_workers.ocr import rapid

    return rapid.read(drawn)
