"""YAML files: sections with their key path."""

from __future__ import annotations

from typing import Final

from latent_workers.parse import structured, yaml_reader
from latent_workers.parse.decode import Decoded, decode_filled
from latent_workers.parse.parsed import Parsed
from latent_workers.parse.source import Source
from latent_workers.parse.structure import Broken, grain_of

MAX_CHARS: Final = 5_000_000


def parse(source: Source) -> Parsed:
    return of_decoded(decode_filled(source.read(), source.name), source.name)


def of_decoded(decoded: Decoded, name: str) -> Parsed:
    """YAML that is already decoded; what is broken or too large becomes text, with a warning."""
    text = decoded.text
    try:
        structured.check_size(text, MAX_CHARS)
        documents = yaml_reader.read(text, grain_of(text))
    except Broken as broken:
        return structured.as_text(decoded, name, "YAML", broken)
    return structured.of_documents(decoded, name, documents)
