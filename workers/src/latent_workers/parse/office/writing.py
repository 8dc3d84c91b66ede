"""The Markdown of an Office file as a parsed document."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from latent_core.domain.errors import IngestFailed, Issue
from latent_workers.parse.parsed import ParsedDocument
from latent_workers.parse.text import markdown
from latent_workers.parse.text.decode import DecodedText, clean, clean_value


@dataclass(frozen=True, slots=True)
class OfficeText:
    """What a reader makes of a file."""

    text: str
    """Markdown."""
    title: str | None = None
    meta: dict[str, Any] = field(default_factory=dict)
    language: str | None = None
    warnings: tuple[Issue, ...] = ()


def parsed(read: OfficeText, name: str) -> ParsedDocument:
    """``IngestFailed`` if it has no words."""
    text, replaced = clean(read.text)
    if not any(map(str.isalnum, text)):
        raise IngestFailed(
            f"'{name}' has no text. If its pages are pictures, export it as PDF: pictures of text are read there"
        )
    document = markdown.of_decoded(
        DecodedText(text + "\n", "utf-8", replaced), has_front_matter=False
    )
    return replace(
        document,
        title=clean(read.title or "")[0] or document.title,
        language=read.language,
        meta=clean_value(read.meta),
        warnings=(*document.warnings, *read.warnings),
    )
