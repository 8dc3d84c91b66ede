"""Conversations in windows of whole turns that overlap by one turn.

The embedder reads the title, the date and who says what. The text of a chunk is the conversation as it is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from latent_core.domain.chunk import BlockType, DraftChunk, SourcePlace, SourceType
from latent_core.domain.ids import content_hash
from latent_workers.chunk.counting import WordCounter
from latent_workers.chunk.splitting import Cutter, PackingPiece
from latent_workers.chunk.structure import fitting
from latent_workers.parse.parsed import ParsedDocument, TextBlock
from latent_workers.parse.text.lines import Lines

MESSAGES_PER_WINDOW: Final = 8
"""Turns of a window: a vector of more topics is near to none of them."""
_GRAIN_SHARE: Final = 8
"""A long turn without sentences is cut into runs of this fraction of the budget."""
_MAX_SPEAKERS: Final = 20


@dataclass(frozen=True, slots=True)
class _Part:
    """A turn, or a part of one that is too long for a chunk."""

    number: int
    """Of the turn, from 1."""
    speaker: str
    time: datetime | None
    start: int
    end: int
    spoken: str
    """As the embedder reads it, after its speaker."""
    cost: int


def chunk_conversation(
    parsed: ParsedDocument, budget_tokens: int, counter: WordCounter
) -> list[DraftChunk]:
    """Chunks in text order, each within the budget."""
    return list(_Windows(parsed, budget_tokens, counter).drafts())


class _Windows:
    def __init__(self, parsed: ParsedDocument, budget: int, counter: WordCounter) -> None:
        self._text = parsed.text
        self._title = parsed.title
        self._budget = budget
        self._counter = counter
        self._lines = Lines(parsed.text)
        title, cost = fitting((parsed.title,) if parsed.title else (), budget, counter)
        self._above = title
        self._limit = max(1, budget - cost - counter.count(["(30 September 2026)"])[0])
        self._cutter = Cutter(parsed.text, counter, max(1, budget // _GRAIN_SHARE))
        self._parts = list(self._cut(parsed.blocks))

    def drafts(self) -> Iterator[DraftChunk]:
        windows = list(self._windows())
        yield from self._written(windows)

    def _cut(self, blocks: Sequence[TextBlock]) -> Iterator[_Part]:
        counts = self._counter.count([block.text for block in blocks])
        for number, (block, tokens) in enumerate(zip(blocks, counts, strict=True), start=1):
            speaker, *times = block.heading_path
            time = datetime.fromisoformat(times[0]) if times else None
            # The first line names speaker and time.
            spoken = block.offset_start + block.text.index("\n") + 1
            whole = PackingPiece(spoken, block.offset_end, BlockType.PARAGRAPH, tokens)
            pieces = [whole]
            if whole.cost > self._limit:
                prefix = self._counter.count([f"{speaker}: "])[0]
                pieces = self._cutter.cut(whole, max(1, self._limit - prefix))
            for place, piece in enumerate(pieces):
                start = block.offset_start if place == 0 else piece.start
                text = f"{speaker}: {self._text[piece.start : piece.end]}"
                yield _Part(number, speaker, time, start, piece.end, text, piece.cost)

    def _windows(self) -> Iterator[list[_Part]]:
        current: list[_Part] = []
        for part in self._parts:
            if current and not self._fits(current, part):
                yield current
                last = current[-1]
                current = [last] if len(current) > 1 and self._fits([last], part) else []
            current.append(part)
        if current:
            yield current

    def _fits(self, window: Sequence[_Part], part: _Part) -> bool:
        cost = sum(one.cost for one in window) + part.cost
        return cost <= self._limit and part.number - window[0].number < MESSAGES_PER_WINDOW

    def _written(self, windows: Sequence[Sequence[_Part]]) -> Iterator[DraftChunk]:
        """If the tokenizer counts a whole as more than its parts, a window is too long: then it is halved."""
        texts = [self._reading(window) for window in windows]
        counts = self._counter.count(texts)
        for window, text, tokens in zip(windows, texts, counts, strict=True):
            if tokens <= self._budget:
                yield self._draft(window, text, tokens)
            elif len(window) > 1:
                middle = len(window) // 2
                yield from self._written([window[:middle], window[middle:]])
            else:
                bare = window[0].spoken
                yield self._draft(window, bare, self._counter.count([bare])[0])

    def _reading(self, window: Sequence[_Part]) -> str:
        time = window[0].time
        # At the end: before a short message, the date would be most of its vector.
        day = f" ({time.day} {time:%B %Y})" if time is not None else ""
        return "\n".join([*self._above, *(part.spoken for part in window)]) + day

    def _draft(self, window: Sequence[_Part], embed_text: str, tokens: int) -> DraftChunk:
        first, last = window[0], window[-1]
        text = self._text[first.start : last.end]
        speakers = list(dict.fromkeys(part.speaker for part in window))[:_MAX_SPEAKERS]
        meta: dict[str, Any] = {"turn": [first.number, last.number], "speaker": speakers}
        if first.time is not None:
            meta["time"] = first.time.isoformat()
        return DraftChunk(
            text=text,
            embed_text=embed_text,
            place=SourcePlace(
                offset_start=first.start,
                offset_end=last.end,
                line_start=self._lines.at(first.start),
                line_end=self._lines.at(last.end - 1),
                heading_path=(_section(speakers, first.time),),
            ),
            source_type=SourceType.CONVERSATION,
            block_type=BlockType.PARAGRAPH,
            content_hash=content_hash(text),
            token_count=tokens,
            meta=meta,
        )


def _section(speakers: Sequence[str], time: datetime | None) -> str:
    """``Ada, Bob, 2026-03-01 10:00``"""
    return ", ".join([*speakers, *([f"{time:%Y-%m-%d %H:%M}"] if time is not None else [])])
