"""Spoken words with their times, of subtitles or of a transcript, as one document of paragraphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from latent_workers.parse.parsed import Cue, ParsedDocument
from latent_workers.parse.text import markdown
from latent_workers.parse.text.compose import escaped
from latent_workers.parse.text.decode import DecodedText

_PAUSE_SECONDS: Final = 3.0
"""A longer pause ends a paragraph."""
_PARAGRAPH_CHARS: Final = 600
_SENTENCE_END: Final = (".", "!", "?", "…", "\u3002", "\uff01", "\uff1f")


@dataclass(frozen=True, slots=True)
class SpokenLine:
    """Words without a line break, spoken from ``begin`` to ``end``, in seconds from the start of the recording."""

    begin: float
    end: float
    speaker: str
    """Empty if unknown."""
    words: str


def document(lines: Sequence[SpokenLine], name: str, *, replaced: int = 0) -> ParsedDocument:
    """``lines``: at least one, in order. ``replaced``: characters that were not readable."""
    text, cues = _composed(lines)
    parsed = markdown.of_decoded(DecodedText(text, "utf-8", replaced), has_front_matter=False)
    meta = {"seconds": max(line.end for line in lines)}
    return replace(parsed, title=name, meta=meta, cues=tuple(cues))


def _composed(lines: Sequence[SpokenLine]) -> tuple[str, list[Cue]]:
    parts: list[str] = []
    cues: list[Cue] = []
    offset = size = 0
    last: SpokenLine | None = None
    for line in lines:
        other_speaker = last is None or line.speaker != last.speaker
        if last is not None:
            full = size > _PARAGRAPH_CHARS and last.words.endswith(_SENTENCE_END)
            fresh = other_speaker or full or line.begin - last.end > _PAUSE_SECONDS
            parts.append("\n\n" if fresh else "\n")
            offset += len(parts[-1])
            size = 0 if fresh else size
        words = escaped(
            f"{line.speaker}: {line.words}" if other_speaker and line.speaker else line.words
        )
        parts.append(words)
        cues.append(Cue(offset, line.begin, line.end))
        offset += len(words)
        size += len(words)
        last = line
    return "".join(parts) + "\n", cues
