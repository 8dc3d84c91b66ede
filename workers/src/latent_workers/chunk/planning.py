"""Plans which part of the text goes into which chunk."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from latent_core.domain.chunk import BlockType
from latent_workers.chunk import tables
from latent_workers.chunk.counting import WordCounter
from latent_workers.chunk.splitting import Cutter, PackingPiece
from latent_workers.chunk.structure import Section, has_words, pack, sections
from latent_workers.chunk.tables import RowGroup
from latent_workers.parse.parsed import ParsedDocument, TextBlock

WHOLE_FENCE: Final = 32
"""Token budgets that a code fence may fill before it is cut at lines."""
_CONTEXT_SHARE: Final = 4
"""Headings take at most this fraction of the embedder's input."""
_CAPTION_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """Token budget of a chunk, tokens shared by neighbours, rows of a table chunk."""

    budget: int
    overlap: int
    table_rows: int
    whole_fences: bool
    """Whether a code block is a fence, which stays whole, and not a file of code."""


@dataclass(frozen=True, slots=True)
class ChunkPlan:
    """A chunk before it is written: ``start`` to ``end`` of the text, from ``pieces`` or table rows."""

    section: Section
    context: tuple[str, ...]
    """Headings that the embedder reads with it, outermost first."""
    start: int
    end: int
    pieces: tuple[PackingPiece, ...] = ()
    group: RowGroup | None = None
    table_id: str | None = None
    caption: str = ""


class ChunkPlanner:
    """Plans one document."""

    def __init__(self, parsed: ParsedDocument, limits: ChunkLimits, counter: WordCounter) -> None:
        self._parsed = parsed
        self._limits = limits
        self._counter = counter
        self._cutter = Cutter(parsed.text, counter, max(1, limits.overlap or limits.budget // 8))
        self._tables: Counts[tuple[tuple[str, ...], str]] = Counts()
        self._contexts: dict[tuple[str, ...], tuple[tuple[str, ...], int]] = {}

    def plans(self) -> list[ChunkPlan]:
        """Chunks in text order. Text without words joins its neighbour."""
        blocks = self._parsed.blocks
        # Tables are counted again by rows; here the counter meets all words in one go.
        counts = iter(self._counter.count([block.text for block in blocks]))
        planned: list[ChunkPlan] = []
        for section in sections(blocks):
            wholes = [
                PackingPiece(block.offset_start, block.offset_end, block.kind, next(counts))
                for block in section.blocks
            ]
            for plan in self._section(section, wholes):
                _join(planned, plan, self._parsed.text)
        return planned

    def _section(self, section: Section, wholes: Sequence[PackingPiece]) -> Iterator[ChunkPlan]:
        context, used = self._context(section.path)
        max_tokens = self._limits.budget - used
        run: list[PackingPiece] = []
        for index, whole in enumerate(wholes):
            if whole.kind is not BlockType.TABLE:
                run += self._pieces(whole, max_tokens, run)
                continue
            top = run[0].start if run and _all_headings(run) else whole.start
            if top == whole.start:
                yield from self._packed(section, context, run, max_tokens)
            run = []
            caption = _caption(section.blocks[index - 1]) if index else ""
            first, *others = self._table(section, context, whole, caption)
            yield replace(first, start=top)
            yield from others
        yield from self._packed(section, context, run, max_tokens)

    def _pieces(
        self, whole: PackingPiece, max_tokens: int, run: Sequence[PackingPiece]
    ) -> list[PackingPiece]:
        headings = sum(piece.cost for piece in run) if _all_headings(run) else 0
        # What follows headings leaves room for them, so that they are not cut off.
        limit = max_tokens - headings if headings * 2 <= max_tokens else max_tokens
        fence = whole.kind is BlockType.CODE and self._limits.whole_fences
        if whole.cost <= limit or (fence and whole.cost <= WHOLE_FENCE * self._limits.budget):
            return [whole]
        return self._cutter.cut(whole, limit)

    def _packed(
        self,
        section: Section,
        context: tuple[str, ...],
        run: Sequence[PackingPiece],
        max_tokens: int,
    ) -> Iterator[ChunkPlan]:
        for pieces in pack(run, max_tokens, self._limits.overlap):
            yield ChunkPlan(section, context, pieces[0].start, pieces[-1].end, tuple(pieces))

    def _table(
        self, section: Section, context: tuple[str, ...], whole: PackingPiece, caption: str
    ) -> Iterator[ChunkPlan]:
        table = tables.read(self._parsed.text, whole.start, whole.end)
        key = (section.path, table.head)
        table_id = tables.identity(table, section.path, self._tables[key])
        self._tables[key] += 1
        limits = self._limits
        for group in tables.groups(table, limits.table_rows, limits.budget, self._counter):
            start, end = group.span
            yield ChunkPlan(
                section, context, start, end, group=group, table_id=table_id, caption=caption
            )

    def _context(self, path: tuple[str, ...]) -> tuple[tuple[str, ...], int]:
        """The innermost headings that fit their share, and their cost."""
        if path not in self._contexts:
            title = self._parsed.title
            whole = (title, *path) if title and title not in path else path
            kept: list[str] = []
            left = self._limits.budget // _CONTEXT_SHARE
            for heading, cost in zip(whole[::-1], self._counter.count(whole[::-1]), strict=True):
                # One more for the separator.
                if cost + 1 > left:
                    break
                kept.insert(0, heading)
                left -= cost + 1
            self._contexts[path] = tuple(kept), self._limits.budget // _CONTEXT_SHARE - left
        return self._contexts[path]


def _all_headings(run: Sequence[PackingPiece]) -> bool:
    return all(piece.kind is BlockType.HEADING for piece in run)


def _caption(block: TextBlock | None) -> str:
    """A short paragraph directly above a table counts as its caption."""
    if block is None or block.kind is not BlockType.PARAGRAPH or len(block.text) > _CAPTION_CHARS:
        return ""
    return " ".join(block.text.split())


def _join(planned: list[ChunkPlan], plan: ChunkPlan, text: str) -> None:
    """Append ``plan``, or join it with the last one if either has no words."""
    last = planned[-1] if planned else None
    if last is not None and last.section.page == plan.section.page:
        if not has_words(text[plan.start : plan.end]):
            planned[-1] = replace(last, end=plan.end)
            return
        if not has_words(text[last.start : last.end]):
            planned[-1] = replace(plan, start=last.start)
            return
    planned.append(plan)
