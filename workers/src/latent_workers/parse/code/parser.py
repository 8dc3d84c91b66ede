"""Source code: one block per definition, with its name, and one per run of other lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from latent_core.domain.chunk import BlockType
from latent_workers.parse.code.definitions import Definition, by_grammar, by_indentation
from latent_workers.parse.code.languages import language_of
from latent_workers.parse.parsed import ParsedDocument, SourceFile, TextBlock
from latent_workers.parse.text.decode import DecodedText, decode_filled
from latent_workers.parse.text.lines import Lines


@dataclass(frozen=True, slots=True)
class _Piece:
    """Lines ``first`` to ``last`` of a definition, or of the file."""

    first: int
    last: int
    path: tuple[str, ...]
    level: int | None
    """If a definition starts there."""
    whole: int | None
    """Number of the definition that stays whole: a function, or the lines of a class above its members."""


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
    whole_file = Definition(1, len(filled), (), 0, tuple(definitions), is_scope=True)
    for piece in _Pieces().of(whole_file):
        first, last = piece.first, piece.last
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
            heading_path=piece.path,
            level=piece.level,
            definition=piece.whole,
        )


class _Pieces:
    """Splits definitions around those in them, and numbers those that stay whole."""

    def __init__(self) -> None:
        self._numbers = count()

    def of(self, around: Definition, whole: int | None = None) -> Iterator[_Piece]:
        """The pieces of ``around``, which may be within the definition with number ``whole``."""
        own = next(self._numbers) if whole is None and around.path else whole
        inside = whole if around.is_scope and around.members else own
        first, level = around.first, around.level or None
        for inner in around.members:
            if inner.first > first:
                yield _Piece(first, inner.first - 1, around.path, level, own)
                own, level = inside, None
            yield from self.of(inner, inside)
            first = inner.last + 1
        if first <= around.last:
            yield _Piece(first, around.last, around.path, level, own)
