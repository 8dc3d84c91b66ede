"""Source code: one block per definition, with its name, and one per run of other lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from latent_core.domain.chunk import BlockType
from latent_workers.parse.code.definitions import Definition, by_grammar, by_indentation
from latent_workers.parse.code.languages import language_of
from latent_workers.parse.parsed import ParsedDocument, SourceFile, TextBlock
from latent_workers.parse.text.decode import DecodedText, decode_filled
from latent_workers.parse.text.lines import Lines

_Piece = tuple[int, int, tuple[str, ...], int | None]
"""First and last line, path, and the level if a definition starts there."""


def parse(source: SourceFile) -> ParsedDocument:
    return of_decoded(decode_filled(source.read(), source.name), source.name)


def of_decoded(decoded: DecodedText, name: str) -> ParsedDocument:
    """Decoded source code. ``heading_path`` of a block is the path of its definition, and ``level`` its depth, on
    the block where the definition starts."""
    text = decoded.text
    lines = Lines(text)
    language = language_of(name, text)
    definitions = by_grammar(text, lines, language) or tuple(by_indentation(lines))
    meta: dict[str, Any] = {"encoding": decoded.encoding}
    if language:
        meta["code_language"] = language
    return ParsedDocument(
        text=text,
        title=name,
        blocks=tuple(_blocks(text, lines, definitions)),
        meta=meta,
        replaced_characters=decoded.replaced,
    )


def _blocks(text: str, lines: Lines, definitions: Sequence[Definition]) -> Iterator[TextBlock]:
    filled = lines.filled()
    for first, last, path, level in _pieces(1, len(filled), (), None, definitions):
        while first <= last and not filled[first - 1]:
            first += 1
        while first <= last and not filled[last - 1]:
            last -= 1
        if first > last:
            continue
        start, end = lines.span(first, last)
        yield TextBlock(
            kind=BlockType.CODE,
            text=text[start:end],
            offset_start=start,
            offset_end=end,
            line_start=first,
            line_end=last,
            heading_path=path,
            level=level,
        )


def _pieces(
    first: int,
    last: int,
    path: tuple[str, ...],
    level: int | None,
    definitions: Sequence[Definition],
) -> Iterator[_Piece]:
    """The lines of a definition, or of the file, split around the definitions in it."""
    for inner in definitions:
        if inner.first > first:
            yield first, inner.first - 1, path, level
            level = None
        yield from _pieces(inner.first, inner.last, inner.path, inner.level, inner.members)
        first = inner.last + 1
    if first <= last:
        yield first, last, path, level
