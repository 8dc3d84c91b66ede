"""What OCR reads on a page, on its way out of the child."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Paragraph = Annotated[str, Field(max_length=100_000)]
"""Lines, joined by line breaks."""


class OcrText(BaseModel):
    """Paragraphs in the order they are read; no text is an answer, too."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paragraphs: Annotated[tuple[Paragraph, ...], Field(max_length=20_000)] = ()
    confidence: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """The engine's own, over all words by their length."""
    replaced: Annotated[int, Field(ge=0)] = 0
    """Characters that cannot be stored, each replaced by U+FFFD."""
