"""``ParsedDocument`` on its way from the child, and the parent's validation.

The text is the attachment and blocks are offsets into it, so that a block cannot contradict the text.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt

from latent_core.domain.chunk import BlockType
from latent_core.domain.errors import Issue
from latent_workers.parse.parsed import Cue, ParsedDocument, ParsedPage, TextBlock
from latent_workers.sandbox.frames import FrameItem, TaskOutput

_Span = tuple[NonNegativeInt, NonNegativeInt]
_Block = tuple[
    BlockType,
    NonNegativeInt,
    NonNegativeInt,
    PositiveInt | None,
    PositiveInt | None,
    PositiveInt | None,
    NonNegativeInt,
    PositiveInt | None,
    PositiveInt | None,
    str | None,
    str | None,
    NonNegativeInt | None,
]
_Page = tuple[PositiveInt, NonNegativeInt, NonNegativeInt, float, float]


class _ParsedWire(BaseModel):
    """Blocks: kind, start, end, first line, last line, page, number of the heading path, level, last page, key
    path, parent's key path, number of the definition."""

    model_config = ConfigDict(extra="forbid")

    title: str | None
    language: str | None
    meta: dict[str, Any]
    warnings: list[Issue]
    replaced: NonNegativeInt
    paths: list[tuple[str, ...]]
    blocks: list[_Block]
    pages: list[_Page]
    scanned: list[PositiveInt]
    cues: list[Cue]


def pack(parsed: ParsedDocument) -> TaskOutput:
    paths: dict[tuple[str, ...], int] = {}
    blocks = [
        (
            block.kind,
            block.offset_start,
            block.offset_end,
            block.line_start,
            block.line_end,
            block.page,
            paths.setdefault(block.heading_path, len(paths)),
            block.level,
            block.page_end,
            block.key_path,
            block.parent_section,
            block.definition,
        )
        for block in parsed.blocks
    ]
    value = {
        "title": parsed.title,
        "language": parsed.language,
        "meta": parsed.meta,
        "warnings": [issue.model_dump() for issue in parsed.warnings],
        "replaced": parsed.replaced_characters,
        "paths": list(paths),
        "blocks": blocks,
        "pages": list(_pages(parsed)),
        "scanned": list(parsed.scanned_pages),
        "cues": [tuple(cue) for cue in parsed.cues],
    }
    return TaskOutput(value, parsed.text.encode("utf-8"))


def _pages(parsed: ParsedDocument) -> Any:
    start = 0
    for page in parsed.pages:
        yield page.number, start, start + len(page.text), page.width, page.height
        start += len(page.text) + 1


def unpack(item: FrameItem) -> ParsedDocument:
    """``ValueError`` if the child's answer is inconsistent."""
    wire = _ParsedWire.model_validate_json(item.value)
    text = str(item.attachment, "utf-8")
    if "\0" in text:
        raise ValueError("a NUL in the text")
    _check([block[1:3] for block in wire.blocks], len(text))
    _check([page[1:3] for page in wire.pages], len(text))
    return ParsedDocument(
        text=text,
        title=wire.title,
        blocks=tuple(_block(block, text, wire.paths) for block in wire.blocks),
        pages=tuple(
            ParsedPage(number, text[start:end], width, height)
            for number, start, end, width, height in wire.pages
        ),
        meta=wire.meta,
        warnings=tuple(wire.warnings),
        replaced_characters=wire.replaced,
        language=wire.language,
        scanned_pages=tuple(wire.scanned),
        cues=tuple(wire.cues),
    )


def _check(spans: list[_Span], length: int) -> None:
    for start, end in spans:
        if not start <= end <= length:
            raise ValueError("a place outside the text")
    for (_, end), (start, _) in pairwise(spans):
        if start < end:
            raise ValueError("places that overlap")


def _block(block: _Block, text: str, paths: list[tuple[str, ...]]) -> TextBlock:
    (
        kind,
        start,
        end,
        line_start,
        line_end,
        page,
        path,
        level,
        page_end,
        key_path,
        parent,
        number,
    ) = block
    if path >= len(paths):
        raise ValueError("a heading path that does not exist")
    return TextBlock(
        kind=kind,
        text=text[start:end],
        offset_start=start,
        offset_end=end,
        line_start=line_start,
        line_end=line_end,
        page=page,
        heading_path=paths[path],
        level=level,
        page_end=page_end,
        key_path=key_path,
        parent_section=parent,
        definition=number,
    )
