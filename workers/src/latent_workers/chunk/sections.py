"""Blocks that belong together: one page, one heading."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from latent_core.domain.chunk import BlockType
from latent_workers.parse.parsed import TextBlock


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks under one heading; headings that have no text of their own go with what follows them."""

    path: tuple[str, ...]
    page: int | None
    blocks: tuple[TextBlock, ...]
    headings: tuple[tuple[int, str], ...]
    """Where each heading stands, and its words."""

    def block_at(self, offset: int) -> TextBlock:
        """The block that holds ``offset``, or the next one."""
        place = bisect_right(self.blocks, offset, key=lambda block: block.offset_end)
        return self.blocks[min(place, len(self.blocks) - 1)]


def sections(blocks: Sequence[TextBlock]) -> Iterator[Section]:
    """Cut ``blocks`` at pages, and at headings once there is something to cut off.

    A block that runs over to another page belongs to the one where it starts.
    """
    current: list[TextBlock] = []
    filled = False
    for block in blocks:
        if current and (block.page != current[0].page or (filled and _opens(block, current))):
            yield _section(current)
            current, filled = [], False
        current.append(block)
        filled = filled or (block.kind is not BlockType.HEADING and has_words(block.text))
    if current:
        yield _section(current)


def has_words(text: str) -> bool:
    """Whether there is a letter or a digit: a rule or a row of stars is nothing to find."""
    return any(map(str.isalnum, text))


def _opens(block: TextBlock, current: Sequence[TextBlock]) -> bool:
    return block.kind is BlockType.HEADING or (
        block.heading_path != current[-1].heading_path and has_words(block.text)
    )


def _section(blocks: list[TextBlock]) -> Section:
    inside = next((block for block in blocks if block.kind is not BlockType.HEADING), blocks[-1])
    headings = tuple(
        (block.offset_start, block.heading_path[-1])
        for block in blocks
        if block.kind is BlockType.HEADING and block.heading_path
    )
    return Section(inside.heading_path, blocks[0].page, tuple(blocks), headings)
