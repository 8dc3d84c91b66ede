"""Plain text, and structured data that is broken: paragraphs between blank lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from latent_core.domain.chunk import BlockType, SourceType
from latent_workers.parse.decode import Decoded, decode_filled
from latent_workers.parse.lines import Lines
from latent_workers.parse.parsed import Block, Parsed
from latent_workers.parse.source import Source

_PROSE = (SourceType.TEXT, SourceType.WEB)


def parse(source: Source) -> Parsed:
    kind = BlockType.PARAGRAPH if source.source_type in _PROSE else BlockType.CODE
    return of_decoded(decode_filled(source.read(), source.name), kind)


def of_decoded(decoded: Decoded, kind: BlockType = BlockType.PARAGRAPH) -> Parsed:
    """Paragraphs of text that is already decoded."""
    text = decoded.text
    return Parsed(
        text=text,
        blocks=tuple(paragraphs(text, kind)),
        meta={"encoding": decoded.encoding},
        replaced_characters=decoded.replaced,
    )


def paragraphs(text: str, kind: BlockType) -> Iterator[Block]:
    """Runs of lines that are not blank."""
    lines = Lines(text)
    for first, last in runs(lines.filled()):
        start, end = lines.span(first, last)
        yield Block(kind, text[start:end], start, end, first, last)


def runs(filled: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """First and last number, from 1, of each run of true values."""
    first = 0
    for number, is_filled in enumerate([*filled, False], start=1):
        if is_filled and not first:
            first = number
        elif not is_filled and first:
            yield first, number - 1
            first = 0
