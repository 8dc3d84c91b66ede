"""JSON files: sections with their key path."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

from latent_core.domain.errors import Issue
from latent_workers.parse import json_reader, structured
from latent_workers.parse.decode import Decoded, decode_filled
from latent_workers.parse.parsed import Parsed
from latent_workers.parse.source import Source
from latent_workers.parse.structure import Broken, grain_of

MAX_CHARS: Final = 10_000_000
_LENIENT: Final = frozenset({".json5", ".jsonc"})
"""Endings that promise more than strict JSON."""


def parse(source: Source) -> Parsed:
    return of_decoded(decode_filled(source.read(), source.name), source.name)


def of_decoded(decoded: Decoded, name: str) -> Parsed:
    """JSON that is already decoded; what is broken or too large becomes text, with a warning."""
    text = decoded.text
    try:
        structured.check_size(text, MAX_CHARS)
        outline = json_reader.read(text, grain_of(text))
    except Broken as broken:
        return structured.as_text(decoded, name, "JSON", broken)
    warnings: tuple[Issue, ...] = ()
    if outline.deviation and PurePosixPath(name.lower()).suffix not in _LENIENT:
        said = structured.told(outline.deviation, text)
        warnings = (
            structured.doubt(f"'{name}' is not strict JSON: {said}; it was read all the same"),
        )
    return structured.of_documents(decoded, name, outline.documents, warnings)
