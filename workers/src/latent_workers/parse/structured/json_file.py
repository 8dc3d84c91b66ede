"""JSON files: sections with their key path."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

from latent_core.domain.errors import Issue
from latent_workers.parse.parsed import ParsedDocument, SourceFile
from latent_workers.parse.structured import json_reader, parser
from latent_workers.parse.structured.tree import MalformedFile, grain_of
from latent_workers.parse.text.decode import DecodedText, decode_filled

MAX_CHARS: Final = 10_000_000
_LENIENT: Final = frozenset({".json5", ".jsonc"})
"""Suffixes of formats beyond strict JSON."""


def parse(source: SourceFile) -> ParsedDocument:
    return of_decoded(decode_filled(source.read(), source.name), source.name)


def of_decoded(decoded: DecodedText, name: str) -> ParsedDocument:
    """Decoded JSON; a broken or too large file becomes text, with a warning."""
    text = decoded.text
    try:
        parser.check_size(text, MAX_CHARS)
        outline = json_reader.read(text, grain_of(text))
    except MalformedFile as broken:
        return parser.as_text(decoded, name, "JSON", broken)
    warnings: tuple[Issue, ...] = ()
    if outline.deviation and PurePosixPath(name.lower()).suffix not in _LENIENT:
        reason = parser.describe_error(outline.deviation, text)
        warnings = (parser.doubt(f"'{name}' is not strict JSON: {reason}; it was read anyway"),)
    return parser.of_documents(decoded, name, outline.documents, warnings)
