"""Writes planned chunks: the raw text, and the text for the embedder."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter as Counts
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

from latent_core.domain.chunk import (
    FRONT_MATTER,
    TIMESTAMPS,
    BlockType,
    DraftChunk,
    SourcePlace,
    SourceType,
)
from latent_core.domain.ids import content_hash
from latent_core.domain.manifest.model import Chunker
from latent_core.models.embedding.port import Tokenizer
from latent_workers.chunk import tables
from latent_workers.chunk.code import WindowLimits, chunk_code
from latent_workers.chunk.conversation import chunk_conversation
from latent_workers.chunk.counting import WordCounter
from latent_workers.chunk.pages import image_chunk, with_name
from latent_workers.chunk.planning import ChunkLimits, ChunkPlan, ChunkPlanner
from latent_workers.chunk.splitting import PackingPiece
from latent_workers.chunk.structure import chunk_structure
from latent_workers.parse.parsed import Cue, ParsedDocument, ParsedPage
from latent_workers.parse.text.front_matter import indexed_fields
from latent_workers.parse.text.lines import Lines


class PagePlaces:
    """Pages follow each other in the text with one character between two."""

    def __init__(self, pages: Sequence[ParsedPage]) -> None:
        self._numbers = [page.number for page in pages]
        self._starts: list[int] = []
        start = 0
        for page in pages:
            self._starts.append(start)
            start += len(page.text) + 1

    def __bool__(self) -> bool:
        return bool(self._numbers)

    def at(self, offset: int) -> int:
        """The page of the character at ``offset``; the character between two pages belongs to the first."""
        return self._numbers[bisect_right(self._starts, offset) - 1]


_STRUCTURED: Final = (SourceType.YAML, SourceType.JSON)


def chunk(
    parsed: ParsedDocument,
    *,
    source_type: SourceType,
    budget_tokens: int,
    overlap: float,
    table_rows: int,
    tokenizer: Tokenizer,
    code_lines: int = 180,
    code_overlap: int = 30,
) -> list[DraftChunk]:
    """Chunks in text order. ``overlap`` is a share of the budget, ``table_rows`` the maximum rows of a chunk,
    ``code_lines`` the maximum lines of a window of code, and ``code_overlap`` the lines that neighbours share.

    ``text`` is ``parsed.text[offset_start:offset_end]``, except for later row groups of a table: their text starts
    with the repeated header, and ``meta["repeated_chars"]`` is its length. Use one ``WordCounter`` as the tokenizer
    of many documents, which is faster.
    """
    counter = tokenizer if isinstance(tokenizer, WordCounter) else WordCounter(tokenizer)
    if source_type is SourceType.CODE:
        return chunk_code(parsed, WindowLimits(code_lines, code_overlap), budget_tokens, counter)
    if source_type is SourceType.CONVERSATION:
        return chunk_conversation(parsed, budget_tokens, counter)
    if source_type in _STRUCTURED and "documents" in parsed.meta:
        return chunk_structure(parsed, source_type, budget_tokens, counter)
    limits = ChunkLimits(
        budget=budget_tokens,
        overlap=int(budget_tokens * overlap),
        table_rows=table_rows,
        whole_fences=source_type not in _STRUCTURED,
    )
    plans = ChunkPlanner(parsed, limits, counter).plans()
    return ChunkWriter(parsed, budget_tokens, counter).write(plans, source_type)


_SEPARATOR = " > "


@dataclass(frozen=True, slots=True)
class PlanText:
    """The embedder's text of a plan, and its tokens."""

    plan: ChunkPlan
    text: str
    tokens: int


class ChunkWriter:
    """Writes the chunks of one document."""

    def __init__(self, parsed: ParsedDocument, budget: int, counter: WordCounter) -> None:
        self._text = parsed.text
        self._budget = budget
        self._counter = counter
        numbered = any(block.line_start is not None for block in parsed.blocks)
        self._lines = Lines(parsed.text) if numbered else None
        self._pages = PagePlaces(parsed.pages)

    def write(self, plans: Sequence[ChunkPlan], source_type: SourceType) -> list[DraftChunk]:
        drafts: list[DraftChunk] = []
        written = 0
        for reading in self._readings(plans):
            # Half of a halved plan may be no more than what it shares with the chunk before.
            if reading.plan.end > written:
                drafts.append(self._draft(reading, source_type))
                written = reading.plan.end
        return drafts

    def _readings(self, plans: Sequence[ChunkPlan]) -> list[PlanText]:
        """Texts within the budget. If the tokenizer counts a whole as more than its parts, a plan is too long: then
        it is halved."""
        readings: list[PlanText] = []
        for reading in self._counted(plans):
            if reading.tokens <= self._budget:
                readings.append(reading)
            elif len(reading.plan.pieces) > 1:
                readings += self._readings(list(_halves(reading.plan)))
            else:
                readings.append(self._bare(reading))
        return readings

    def _counted(self, plans: Sequence[ChunkPlan]) -> Iterator[PlanText]:
        """Pieces of an additive tokenizer are counted already; all others are counted together."""
        above = [self._headings(plan) for plan in plans]
        texts = [self._text_of(plan, heads) for plan, heads in zip(plans, above, strict=True)]
        known = [self._counter.additive and _is_spaced(plan.pieces) for plan in plans]
        texts_to_count = [
            heads if is_known else text
            for heads, text, is_known in zip(above, texts, known, strict=True)
        ]
        counts = self._counter.count(texts_to_count)
        for plan, text, is_known, count in zip(plans, texts, known, counts, strict=True):
            pieces = sum(piece.tokens for piece in plan.pieces) if is_known else 0
            yield PlanText(plan, text, count + pieces)

    def _bare(self, reading: PlanText) -> PlanText:
        """Without the headings, if that makes it fit the budget."""
        if reading.plan.group is not None:
            return reading
        text = self._text_of(reading.plan, "")
        (tokens,) = self._counter.count([text])
        return PlanText(reading.plan, text, tokens) if tokens <= self._budget else reading

    def _headings(self, plan: ChunkPlan) -> str:
        """The headings above a chunk that are not in its text."""
        inside = {text for at, text in plan.section.headings if plan.start <= at < plan.end}
        return _SEPARATOR.join(part for part in plan.context if part not in inside)

    def _text_of(self, plan: ChunkPlan, headings: str) -> str:
        if plan.group is not None:
            above = [_SEPARATOR.join(plan.context), plan.caption]
            lines = tables.summary(plan.group, filter(None, above))
            return tables.fitted(lines, self._budget, self._counter)
        # From the first piece to the last: what was joined to it has no words.
        text = self._text[plan.pieces[0].start : plan.pieces[-1].end]
        return f"{headings}\n\n{text}" if headings else text

    def _draft(self, reading: PlanText, source_type: SourceType) -> DraftChunk:
        plan = reading.plan
        repeated = plan.group.repeated if plan.group else ""
        text = repeated + self._text[plan.start : plan.end]
        meta: dict[str, Any] = {"repeated_chars": len(repeated)} if repeated else {}
        return DraftChunk(
            text=text,
            embed_text=reading.text,
            place=self._place(plan),
            source_type=source_type,
            block_type=_block_type(plan),
            content_hash=content_hash(text),
            token_count=reading.tokens,
            meta=meta,
        )

    def _place(self, plan: ChunkPlan) -> SourcePlace:
        lines, pages, page = self._lines, self._pages, plan.section.page
        paged = page is not None and bool(pages)
        block = plan.section.block_at(plan.start)
        return SourcePlace(
            offset_start=plan.start,
            offset_end=plan.end,
            line_start=lines.at(plan.start) if lines else None,
            line_end=lines.at(plan.end - 1) if lines else None,
            page=pages.at(plan.start) if paged else page,
            page_end=pages.at(plan.end - 1) if paged else page,
            heading_path=plan.section.path,
            key_path=block.key_path,
            parent_section=block.parent_section,
            table_id=plan.table_id,
            row_group=plan.group.number if plan.group else None,
        )


def _is_spaced(pieces: Sequence[PackingPiece]) -> bool:
    """Whether white space separates all pieces: only then do their counts add up."""
    return bool(pieces) and all(one.end < other.start for one, other in pairwise(pieces))


def _halves(plan: ChunkPlan) -> Iterator[ChunkPlan]:
    middle = len(plan.pieces) // 2
    first, second = plan.pieces[:middle], plan.pieces[middle:]
    yield replace(plan, end=first[-1].end, pieces=first)
    yield replace(plan, start=second[0].start, pieces=second)


def _block_type(plan: ChunkPlan) -> BlockType:
    """The most frequent block type of the chunk; headings alone count as a paragraph."""
    if plan.group is not None:
        return BlockType.TABLE
    sizes: Counts[BlockType] = Counts()
    for piece in plan.pieces:
        if piece.kind is not BlockType.HEADING:
            sizes[piece.kind] += piece.end - piece.start
    return sizes.most_common(1)[0][0] if sizes else BlockType.PARAGRAPH


def drafts_of(
    parsed: ParsedDocument,
    source_type: SourceType,
    settings: Chunker,
    counter: Tokenizer,
    window: int,
) -> tuple[ParsedDocument, list[DraftChunk]]:
    """The drafts and their text: an image without words gets its name. Blocking."""
    if source_type is SourceType.IMAGE:
        named = with_name(parsed)
        return named, [image_chunk(named, counter)]
    drafts = chunk(
        parsed,
        source_type=source_type,
        budget_tokens=settings.tokens(window),
        overlap=settings.overlap,
        table_rows=settings.table_rows,
        tokenizer=counter,
        code_lines=settings.code_lines,
        code_overlap=settings.code_overlap,
    )
    if parsed.cues:
        drafts = [_with_times(one, parsed.cues) for one in drafts]
    if source_type is SourceType.MARKDOWN and (fields := indexed_fields(parsed.meta)):
        drafts[:1] = [
            _with_fields(one, fields, settings.tokens(window), counter) for one in drafts[:1]
        ]
    return parsed, drafts


def _with_times(draft: DraftChunk, cues: Sequence[Cue]) -> DraftChunk:
    """The chunk with the time from its first word to its last."""
    first = max(0, bisect_right(cues, draft.place.offset_start, key=lambda cue: cue.offset) - 1)
    last = max(first + 1, bisect_left(cues, draft.place.offset_end, key=lambda cue: cue.offset))
    times = [cues[first].begin, max(cue.end for cue in cues[first:last])]
    return replace(draft, meta={**draft.meta, TIMESTAMPS: times})


def _with_fields(draft: DraftChunk, fields: str, budget: int, counter: Tokenizer) -> DraftChunk:
    """The first chunk with the front matter's words: for the keyword index, and for the embedder if they fit."""
    meta = {**draft.meta, FRONT_MATTER: fields}
    embed_text = f"{fields}\n\n{draft.embed_text}"
    (tokens,) = counter.count([embed_text])
    if tokens > budget:
        return replace(draft, meta=meta)
    return replace(draft, meta=meta, embed_text=embed_text, token_count=tokens)
