"""YAML files: sections with their key path."""

from __future__ import annotations

from typing import Final

from latent_workers.parse.parsed import ParsedDocument, SourceFile
from latent_workers.parse.structured import parser, yaml_reader
from latent_workers.parse.structured.tree import MalformedFile, grain_of
from latent_workers.parse.text.decode import DecodedText, decode_filled

MAX_CHARS: Final = 5_000_000


def parse(source: SourceFile) -> ParsedDocument:
    return of_decoded(decode_filled(source.read(), source.name), source.name)


def of_decoded(decoded: DecodedText, name: str) -> ParsedDocument:
    """Decoded YAML; a broken or too large file becomes text, with a warning."""
    text = decoded.text
    try:
        parser.check_size(text, MAX_CHARS)
        documents = yaml_reader.read(text, grain_of(text))
    except MalformedFile as broken:
        return parser.as_text(decoded, name, "YAML", broken)
    return parser.of_documents(decoded, name, documents)
