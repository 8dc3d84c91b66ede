"""Plain text, and malformed structured data: paragraphs between blank lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from latent_core.domain.chunk import BlockType, SourceType
from latent_workers.parse.parsed import ParsedDocument, SourceFile, TextBlock
from latent_workers.parse.text.decode import DecodedText, decode_filled
from latent_workers.parse.text.lines import Lines

_PROSE = (SourceType.TEXT, SourceType.WEB)


def parse(source: SourceFile) -> ParsedDocument:
    kind = BlockType.PARAGRAPH if source.source_type in _PROSE else BlockType.CODE
    return of_decoded(decode_filled(source.read(), source.name), kind)


def of_decoded(decoded: DecodedText, kind: BlockType = BlockType.PARAGRAPH) -> ParsedDocument:
    """Paragraphs of decoded text."""
    text = decoded.text
    return ParsedDocument(
        text=text,
        blocks=tuple(paragraphs(text, kind)),
        meta={"encoding": decoded.encoding},
        replaced_characters=decoded.replaced,
    )


def paragraphs(text: str, kind: BlockType) -> Iterator[TextBlock]:
    """Runs of lines that are not blank."""
    lines = Lines(text)
    for first, last in runs(lines.filled()):
        start, end = lines.span(first, last)
        yield TextBlock(kind, text[start:end], start, end, first, last)


def runs(filled: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """First and last number, from 1, of each run of true values."""
    first = 0
    for number, is_filled in enumerate([*filled, False], start=1):
        if is_filled and not first:
            first = number
        elif not is_filled and first:
            yield first, number - 1
            first = 0
