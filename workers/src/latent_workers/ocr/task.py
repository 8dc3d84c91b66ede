"""OCR, as the sandbox's children do it: one page a task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from latent_core.domain.chunk import SourceType
from latent_workers.ocr import drawing, tesseract
from latent_workers.ocr.engine import Engine
from latent_workers.ocr.reading import Reading
from latent_workers.sandbox.frames import Output


def page(arguments: dict[str, Any], files: Sequence[BinaryIO]) -> Iterator[Output]:
    """``engine, name, source_type, page`` and the file; gives one ``Reading``."""
    engine = Engine(**arguments["engine"])
    source_type = SourceType(arguments["source_type"])
    drawn = drawing.draw(files[0], arguments["name"], source_type, arguments["page"])
    yield Output(_read(engine, drawn).model_dump())


def _read(engine: Engine, drawn: drawing.Drawing) -> Reading:
    if engine.kind == "tesseract":
        return tesseract.read(engine, drawn)
    from latent_workers.ocr import rapid

    return rapid.read(drawn)
