"""The input and output of every parser: the open file, and one text with the places of its blocks and pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NamedTuple

from latent_core.domain.chunk import BlockType, SourceType
from latent_core.domain.errors import Issue
from latent_core.domain.page_words import PageWord


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A structural block; ``text`` is exactly ``Parsed.text[offset_start:offset_end]``."""

    kind: BlockType
    text: str
    offset_start: int
    offset_end: int
    line_start: int | None = None
    """First and last source line, from 1; ``None`` if the source has no lines (PDF)."""
    line_end: int | None = None
    page: int | None = None
    heading_path: tuple[str, ...] = ()
    """Headings above, outermost first; a heading's own text is the last."""
    level: int | None = None
    """Of a heading, from 1."""
    page_end: int | None = None
    """The last page of a block that continues on another one."""
    key_path: str | None = None
    """The key path in structured data: ``services.api.ports``."""
    parent_section: str | None = None
    """The parent's key path."""
    definition: int | None = None
    """In source code: number of the definition that it belongs to and that stays whole, such as a function."""


@dataclass(frozen=True, slots=True)
class ParsedPage:
    """One page; ``width`` and ``height`` in points (1/72 inch) as displayed."""

    number: int
    text: str
    width: float
    height: float


class Cue(NamedTuple):
    """When the words from ``offset`` on are said, in seconds from the start of the recording."""

    offset: int
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class OcrRead:
    """The result of OCR for a document."""

    engine: str
    """Its name and version."""
    pages: tuple[int, ...]
    """Pages whose text comes from OCR, in order."""
    complete: bool
    """No page failed: another try would give the same text."""
    words: Mapping[int, tuple[PageWord, ...]] = field(default_factory=dict)
    """Of those pages, with their boxes."""


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """Offsets are characters of ``text``. Blocks are in order, do not overlap, and together contain every line that
    is not blank."""

    text: str
    title: str | None = None
    blocks: tuple[TextBlock, ...] = ()
    pages: tuple[ParsedPage, ...] = ()
    meta: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[Issue, ...] = ()
    replaced_characters: int = 0
    """NULs, lone surrogates and undecodable bytes, each replaced by one U+FFFD."""
    language: str | None = None
    """Natural language (ISO 639-1), if the source declares it."""
    scanned_pages: tuple[int, ...] = ()
    """Pages that are images of text, in order: for OCR."""
    ocr: OcrRead | None = None
    cues: tuple[Cue, ...] = ()
    """Of subtitles, in order."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """An open file with its name for messages."""

    name: str
    file: BinaryIO
    source_type: SourceType
    max_pages: int
    """Pages of a paged source to read; a warning counts the rest."""
    charset: str | None = None
    """The charset that the server declares for a page."""
    sanitize_rules: tuple[str, ...] = ()
    """For web pages: ``latent_core.domain.manifest.model.SANITIZE_RULES``."""

    def read(self) -> bytes:
        return self.file.read()
