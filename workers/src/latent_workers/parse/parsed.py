"""What every parser gives: one text, and where in it each block and page stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, BinaryIO

from latent_core.domain.chunk import BlockType, SourceType
from latent_core.domain.errors import Issue


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A piece of structure; ``text`` is exactly ``Parsed.text[offset_start:offset_end]``."""

    kind: BlockType
    text: str
    offset_start: int
    offset_end: int
    line_start: int | None = None
    """First and last source line, from 1; ``None`` where the source has no lines (PDF)."""
    line_end: int | None = None
    page: int | None = None
    heading_path: tuple[str, ...] = ()
    """Headings above, outermost first; a heading's own text is the last."""
    level: int | None = None
    """Of a heading, from 1."""
    page_end: int | None = None
    """The last page, of a block that runs over to another one."""
    key_path: str | None = None
    """Where it stands in structured data: ``services.api.ports``."""
    parent_section: str | None = None
    """The key path above."""


@dataclass(frozen=True, slots=True)
class ParsedPage:
    """One page; ``width`` and ``height`` in points (1/72 inch) as displayed."""

    number: int
    text: str
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class OcrRead:
    """What OCR gave to a document."""

    engine: str
    """Its name and version."""
    pages: tuple[int, ...]
    """Pages whose text is OCR's, in order."""
    complete: bool
    """Whether no page failed: another try would read the same."""


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """Offsets are characters into ``text``. Blocks stand in order, do not overlap, and together hold
    every line that is not blank."""

    text: str
    title: str | None = None
    blocks: tuple[TextBlock, ...] = ()
    pages: tuple[ParsedPage, ...] = ()
    meta: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[Issue, ...] = ()
    replaced_characters: int = 0
    """NULs, lone surrogates and undecodable bytes, each replaced by one U+FFFD."""
    language: str | None = None
    """Natural language (ISO 639-1), where the source says so."""
    scanned_pages: tuple[int, ...] = ()
    """Pages that are pictures of text, in order: for OCR to read."""
    ocr: OcrRead | None = None


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file, open for reading, with the name it is called by in messages."""

    name: str
    file: BinaryIO
    source_type: SourceType
    max_pages: int
    """Pages read of a paged source; the rest is left out with a warning."""
    charset: str | None = None
    """What the server said a page is written in."""
    sanitize_rules: tuple[str, ...] = ()
    """Of a page: ``latent_core.domain.manifest.model.SANITIZE_RULES``."""

    def read(self) -> bytes:
        return self.file.read()
