"""Structured data in chunks by key path, and the sections and packing that all chunkers use.

Named values at the top of a document are sections. Below, a value is one chunk if it fits, else its children are.
Small neighbours share a chunk below the key path of their parent.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Final

from latent_core.domain.chunk import BlockType, DraftChunk, SourcePlace, SourceType
from latent_core.domain.ids import content_hash
from latent_workers.chunk.counting import WordCounter, cost_of
from latent_workers.chunk.splitting import Cutter, PackingPiece
from latent_workers.parse.parsed import ParsedDocument, TextBlock
from latent_workers.parse.structured.tree import key_path
from latent_workers.parse.text.lines import Lines


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks below one heading. Headings without text join the following section."""

    path: tuple[str, ...]
    page: int | None
    blocks: tuple[TextBlock, ...]
    headings: tuple[tuple[int, str], ...]
    """The offset and the words of each heading."""

    def block_at(self, offset: int) -> TextBlock:
        """The block that contains ``offset``, or the next one."""
        place = bisect_right(self.blocks, offset, key=lambda block: block.offset_end)
        return self.blocks[min(place, len(self.blocks) - 1)]


def sections(blocks: Sequence[TextBlock]) -> Iterator[Section]:
    """Split the blocks at pages, and at headings once there is text before them.

    A block that continues on another page belongs to the page where it starts.
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
    """Whether there is a letter or a digit: a rule or a row of stars is not searchable."""
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


_REPEATABLE = (BlockType.PARAGRAPH, BlockType.LIST)


def pack(
    pieces: Sequence[PackingPiece], max_tokens: int, overlap: int
) -> Iterator[list[PackingPiece]]:
    """Runs of pieces of at most ``max_tokens`` tokens. A piece over the limit is alone, except for its headings.

    Neighbours share whole pieces of prose up to ``overlap`` tokens.
    """
    current: list[PackingPiece] = []
    cost = 0
    for piece in pieces:
        if current and cost + piece.cost > max_tokens and not _only_headings(current, max_tokens):
            yield current
            current = _tail(current, min(overlap, max_tokens - piece.cost))
            cost = sum(kept.cost for kept in current)
        current.append(piece)
        cost += piece.cost
    if current:
        yield current


def _only_headings(pieces: Sequence[PackingPiece], max_tokens: int) -> bool:
    """Headings join the text below them, unless they fill a chunk themselves."""
    return all(piece.kind is BlockType.HEADING for piece in pieces) and (
        sum(piece.cost for piece in pieces) * 2 <= max_tokens
    )


def _tail(pieces: Sequence[PackingPiece], overlap: int) -> list[PackingPiece]:
    """The last pieces, never all, that the next chunk may share."""
    kept: list[PackingPiece] = []
    for piece in reversed(pieces[1:]):
        if piece.kind not in _REPEATABLE or piece.cost > overlap:
            break
        kept.insert(0, piece)
        overlap -= piece.cost
    return kept


SEPARATOR: Final = " > "
_SHARE: Final = 4
"""Headings take at most this fraction of the embedder's input."""


def fitting(path: Sequence[str], budget: int, counter: WordCounter) -> tuple[tuple[str, ...], int]:
    """The innermost headings of ``path`` that fit their share of the budget, and their cost."""
    kept: list[str] = []
    cost = 0
    for heading, tokens in zip(path[::-1], counter.count(path[::-1]), strict=True):
        # One more for the separator.
        if cost + tokens + 1 > budget // _SHARE:
            break
        kept.insert(0, heading)
        cost += tokens + 1
    return tuple(kept), cost


def under(path: Sequence[str], text: str, budget: int, counter: WordCounter) -> str:
    """``text`` below the headings that fit."""
    headings = SEPARATOR.join(fitting(path, budget, counter)[0])
    return f"{headings}\n\n{text}" if headings else text


_ALONE_SHARE: Final = 4
"""A value of this fraction of the budget is not packed with others."""
_MAX_SECTIONS: Final = 64
"""A document with more named values is a table: its small values are packed."""

Path = tuple[str, ...]
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _ChunkPart:
    """A chunk before it is written: blocks, or parts of one, by their offsets."""

    path: Path
    spans: tuple[Span, ...]
    cost: int
    heading: bool = False
    """It contains only headings."""

    @property
    def start(self) -> int:
        return self.spans[0][0]

    @property
    def end(self) -> int:
        return self.spans[-1][1]


@dataclass(frozen=True, slots=True)
class _Item:
    """Neighbouring blocks below one child of a value, or one block of the value itself."""

    path: Path
    atoms: range
    own: bool


def chunk_structure(
    parsed: ParsedDocument, source_type: SourceType, budget_tokens: int, counter: WordCounter
) -> list[DraftChunk]:
    """Chunks in text order, each within the budget."""
    sections = _Sections(parsed, budget_tokens, counter)
    parts = _glued(list(sections.parts()), sections)
    return list(_StructureWriter(parsed, source_type, sections).write(parts))


class _Sections:
    """Plans one file."""

    def __init__(self, parsed: ParsedDocument, budget: int, counter: WordCounter) -> None:
        self.text = parsed.text
        self.blocks: Sequence[TextBlock] = parsed.blocks
        self.budget = budget
        self.counter = counter
        self.several = parsed.meta.get("documents", 1) > 1
        tokens = counter.count([block.text for block in self.blocks])
        self._tokens = tokens
        costs = (cost_of(n, len(block.text)) for n, block in zip(tokens, self.blocks, strict=True))
        self._costs = [0, *accumulate(costs)]
        self._cutter = Cutter(parsed.text, counter, max(1, budget // 8))
        self._contexts: dict[Path, tuple[tuple[str, ...], int]] = {}

    def parts(self) -> Iterator[_ChunkPart]:
        yield from self._section((), range(len(self.blocks)))

    def context(self, path: Path) -> tuple[tuple[str, ...], int]:
        """The headings above a part, and their cost."""
        if path not in self._contexts:
            self._contexts[path] = fitting(path, self.budget, self.counter)
        return self._contexts[path]

    def max_tokens(self, path: Path) -> int:
        return self.budget - self.context(path)[1]

    def cost(self, atoms: range) -> int:
        return self._costs[atoms.stop] - self._costs[atoms.start]

    def part(self, path: Path, atoms: range) -> _ChunkPart:
        blocks = self.blocks[atoms.start : atoms.stop]
        spans = tuple((block.offset_start, block.offset_end) for block in blocks)
        heading = all(block.kind is BlockType.HEADING for block in blocks)
        return _ChunkPart(path, spans, self.cost(atoms), heading)

    def _section(self, path: Path, atoms: range) -> Iterator[_ChunkPart]:
        top = len(path) <= self.several
        if self.cost(atoms) <= self.max_tokens(path) and not (top and len(atoms) > 1):
            if atoms:
                yield self.part(path, atoms)
        elif len(atoms) == 1:
            yield from self._cut(path, atoms)
        else:
            yield from self._children(path, list(self._items(path, atoms)), top)

    def _children(self, path: Path, items: Sequence[_Item], top: bool) -> Iterator[_ChunkPart]:
        max_tokens = self.max_tokens(path)
        sections = top and sum(not item.own for item in items) <= _MAX_SECTIONS
        run: list[_Item] = []
        cost = 0
        for item in items:
            size = self.cost(item.atoms)
            alone = size > max_tokens or (not item.own and self._stands_alone(item, size, sections))
            if run and (alone or cost + size > max_tokens):
                yield self._run(path, run)
                run, cost = [], 0
            if alone:
                yield from self._section(item.path, item.atoms)
            else:
                run.append(item)
                cost += size
        if run:
            yield self._run(path, run)

    def _run(self, path: Path, run: Sequence[_Item]) -> _ChunkPart:
        atoms = range(run[0].atoms.start, run[-1].atoms.stop)
        values = [item for item in run if not self._is_heading(item)]
        # One value alone is called by its own name.
        return self.part(values[0].path if len(values) == 1 else path, atoms)

    def _stands_alone(self, item: _Item, size: int, sections: bool) -> bool:
        if size * _ALONE_SHARE >= self.budget:
            return True
        first, last = self.blocks[item.atoms.start], self.blocks[item.atoms.stop - 1]
        return sections and not item.path[-1].startswith("[") and first.line_start != last.line_end

    def _is_heading(self, item: _Item) -> bool:
        return item.own and self.blocks[item.atoms.start].kind is BlockType.HEADING

    def _items(self, path: Path, atoms: range) -> Iterator[_Item]:
        depth = len(path)
        start = atoms.start
        while start < atoms.stop:
            own = self.blocks[start].heading_path
            stop = start + 1
            if len(own) > depth:
                key = own[depth]
                while stop < atoms.stop and self._is_below(stop, depth, key):
                    stop += 1
            yield _Item(own[: depth + 1], range(start, stop), len(own) == depth)
            start = stop

    def _is_below(self, at: int, depth: int, key: str) -> bool:
        path = self.blocks[at].heading_path
        return len(path) > depth and path[depth] == key

    def _cut(self, path: Path, atoms: range) -> Iterator[_ChunkPart]:
        """A block over the budget, cut at its lines."""
        block, tokens = self.blocks[atoms.start], self._tokens[atoms.start]
        whole = PackingPiece(block.offset_start, block.offset_end, BlockType.CODE, tokens)
        pieces = self._cutter.cut(whole, self.max_tokens(path))
        for run in pack(pieces, self.max_tokens(path), 0):
            spans = tuple((piece.start, piece.end) for piece in run)
            yield _ChunkPart(path, spans, sum(piece.cost for piece in run))


def _glued(parts: Sequence[_ChunkPart], sections: _Sections) -> list[_ChunkPart]:
    """Joins headings with the following part, and parts without words with a neighbour, as far as they fit."""
    glued: list[_ChunkPart] = []
    for part in reversed(parts):
        below = glued[-1] if glued else None
        mergeable = part.heading or not has_words(sections.text[part.start : part.end])
        if below and mergeable and _fit(part, below, below.path, sections):
            glued[-1] = _both(part, below, below.path, heading=below.heading)
        elif below and _wordless(below, sections) and _fit(part, below, part.path, sections):
            glued[-1] = _both(part, below, part.path, heading=part.heading)
        else:
            glued.append(part)
    return glued[::-1]


def _wordless(part: _ChunkPart, sections: _Sections) -> bool:
    return not has_words(sections.text[part.start : part.end])


def _fit(one: _ChunkPart, other: _ChunkPart, path: Path, sections: _Sections) -> bool:
    if sections.several and one.path[:1] != other.path[:1]:
        return False
    return one.cost + other.cost <= sections.max_tokens(path)


def _both(one: _ChunkPart, other: _ChunkPart, path: Path, *, heading: bool) -> _ChunkPart:
    return _ChunkPart(path, one.spans + other.spans, one.cost + other.cost, heading)


class _StructureWriter:
    """Writes the chunks of one file."""

    def __init__(
        self, parsed: ParsedDocument, source_type: SourceType, sections: _Sections
    ) -> None:
        self._text = parsed.text
        self._source_type = source_type
        self._sections = sections
        self._lines = Lines(parsed.text)

    def write(self, parts: Sequence[_ChunkPart]) -> Iterator[DraftChunk]:
        """If the tokenizer counts a whole as more than its parts, a part is too long: then it is halved, or
        embedded without its headings if it cannot be halved."""
        texts = [self._reading(part) for part in parts]
        counts = self._sections.counter.count(texts)
        for part, text, tokens in zip(parts, texts, counts, strict=True):
            if tokens <= self._sections.budget:
                yield self._draft(part, text, tokens)
            elif len(part.spans) > 1:
                middle = len(part.spans) // 2
                halves = part.spans[:middle], part.spans[middle:]
                yield from self.write([replace(part, spans=half) for half in halves])
            else:
                bare = self._text[part.start : part.end]
                yield self._draft(part, bare, self._sections.counter.count([bare])[0])

    def _reading(self, part: _ChunkPart) -> str:
        headings = SEPARATOR.join(self._sections.context(part.path)[0])
        text = self._text[part.start : part.end]
        return f"{headings}\n\n{text}" if headings else text

    def _draft(self, part: _ChunkPart, embed_text: str, tokens: int) -> DraftChunk:
        text = self._text[part.start : part.end]
        keys = part.path[self._sections.several :]
        meta: dict[str, Any] = {}
        if self._sections.several and part.path:
            meta["document"] = int(part.path[0].rpartition(" ")[2])
        return DraftChunk(
            text=text,
            embed_text=embed_text,
            place=SourcePlace(
                offset_start=part.start,
                offset_end=part.end,
                line_start=self._lines.at(part.start),
                line_end=self._lines.at(part.end - 1),
                key_path=key_path(keys),
                parent_section=key_path(keys[:-1]),
            ),
            source_type=self._source_type,
            block_type=BlockType.CODE,
            content_hash=content_hash(text),
            token_count=tokens,
            meta=meta,
        )
