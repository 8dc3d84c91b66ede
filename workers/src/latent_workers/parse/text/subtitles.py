"""Subtitles (SRT, WebVTT): what is said as paragraphs, with the times at which each line is said."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from latent_core.domain.errors import IngestFailed
from latent_workers.parse.parsed import Cue, ParsedDocument, SourceFile
from latent_workers.parse.text import markdown
from latent_workers.parse.text.compose import escaped
from latent_workers.parse.text.decode import DecodedText, decode_filled

_TIME: Final = r"(?:(\d{1,3}):)?(\d{1,2}):(\d{1,2})[.,](\d{1,3})"
_TIMES: Final = re.compile(rf"\s*{_TIME}\s*-->\s*{_TIME}")
_SPEAKER: Final = re.compile(r"<v(?:\.[^\s>]*)?\s+([^>]{1,200})>")
_MARKUP: Final = re.compile(r"<[^<>]{0,200}>|\{\\[^{}]{0,100}\}")
_BLANK: Final = re.compile(r"\n[ \t]*\n")
_PAUSE_SECONDS: Final = 3.0
"""A longer pause ends a paragraph."""
_PARAGRAPH_CHARS: Final = 600
_SENTENCE_END: Final = (".", "!", "?", "…", "\u3002", "\uff01", "\uff1f")


@dataclass(frozen=True, slots=True)
class _Line:
    begin: float
    end: float
    speaker: str
    words: str


def parse(source: SourceFile) -> ParsedDocument:
    decoded = decode_filled(source.read(), source.name)
    lines = list(_lines(decoded.text.replace("\r\n", "\n").replace("\r", "\n")))
    if not lines:
        raise IngestFailed(
            f"'{source.name}' has no subtitles: a line of times such as '00:01:02,500 --> 00:01:04,000' is expected"
        )
    text, cues = _composed(lines)
    document = markdown.of_decoded(
        DecodedText(text, decoded.encoding, decoded.replaced), has_front_matter=False
    )
    meta = {"encoding": decoded.encoding, "seconds": max(line.end for line in lines)}
    return replace(document, title=source.name, meta=meta, cues=tuple(cues))


def _lines(text: str) -> Iterator[_Line]:
    before = ""
    for block in _BLANK.split(text):
        rows = block.strip("\n").split("\n")
        at = next((n for n, row in enumerate(rows[:3]) if _TIMES.match(row)), None)
        if at is None:
            continue
        times = _TIMES.match(rows[at])
        assert times is not None
        begin, end = _seconds(times.groups()[:4]), _seconds(times.groups()[4:])
        speaker = next(
            (found[1].strip() for row in rows[at + 1 :] if (found := _SPEAKER.search(row))), ""
        )
        for row in rows[at + 1 :]:
            words = " ".join(html.unescape(_MARKUP.sub("", row)).split())
            # Live captions roll: each shows the line before once more.
            if words and words != before:
                yield _Line(begin, max(begin, end), speaker, words)
                before = words


def _seconds(parts: tuple[str | None, ...]) -> float:
    hours, minutes, seconds, fraction = parts
    whole = int(hours or 0) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
    return whole + int((fraction or "0").ljust(3, "0")) / 1000


def _composed(lines: list[_Line]) -> tuple[str, list[Cue]]:
    parts: list[str] = []
    cues: list[Cue] = []
    offset = size = 0
    last: _Line | None = None
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
