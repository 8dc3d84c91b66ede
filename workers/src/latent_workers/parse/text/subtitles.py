"""Subtitles (SRT, WebVTT): what is said as paragraphs, with the times at which each line is said."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from latent_core.domain.errors import IngestFailed
from latent_workers.parse.parsed import ParsedDocument, SourceFile
from latent_workers.parse.text import spoken
from latent_workers.parse.text.decode import decode_filled
from latent_workers.parse.text.spoken import SpokenLine

_TIME: Final = r"(?:(\d{1,3}):)?(\d{1,2}):(\d{1,2})[.,](\d{1,3})"
_TIMES: Final = re.compile(rf"\s*{_TIME}\s*-->\s*{_TIME}")
_SPEAKER: Final = re.compile(r"<v(?:\.[^\s>]*)?\s+([^>]{1,200})>")
_MARKUP: Final = re.compile(r"<[^<>]{0,200}>|\{\\[^{}]{0,100}\}")
_BLANK: Final = re.compile(r"\n[ \t]*\n")


def parse(source: SourceFile) -> ParsedDocument:
    decoded = decode_filled(source.read(), source.name)
    lines = list(_lines(decoded.text.replace("\r\n", "\n").replace("\r", "\n")))
    if not lines:
        raise IngestFailed(
            f"'{source.name}' has no subtitles: a line of times such as '00:01:02,500 --> 00:01:04,000' is expected"
        )
    document = spoken.document(lines, source.name, replaced=decoded.replaced)
    return replace(document, meta={"encoding": decoded.encoding, **document.meta})


def _lines(text: str) -> Iterator[SpokenLine]:
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
                yield SpokenLine(begin, max(begin, end), speaker, words)
                before = words


def _seconds(parts: tuple[str | None, ...]) -> float:
    hours, minutes, seconds, fraction = parts
    whole = int(hours or 0) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
    return whole + int((fraction or "0").ljust(3, "0")) / 1000
