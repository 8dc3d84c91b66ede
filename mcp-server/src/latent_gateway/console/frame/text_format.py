"""Text formats of the console: places, reasons, ages, sizes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from markupsafe import Markup, escape

from latent_core.wire.search import PlaceView, Reason

MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)
STEPS: Final = (
    (HOUR, MINUTE, "minute"),
    (DAY, HOUR, "hour"),
    (30 * DAY, DAY, "day"),
    (365 * DAY, 30 * DAY, "month"),
)
CHANNELS: Final = {"vector": "meaning", "bm25": "words", "exact": "exact text"}
UNITS: Final = ("B", "kB", "MB", "GB", "TB")


def amount(number: int, noun: str) -> str:
    """``1 page``, ``12,000 pages``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size(count: int | None) -> str:
    """Bytes with a unit."""
    if count is None:
        return "unknown"
    shown, unit = float(count), 0
    while shown >= 1000 and unit < len(UNITS) - 1:
        shown, unit = shown / 1000, unit + 1
    return f"{shown:.0f} {UNITS[unit]}" if not unit else f"{shown:.1f} {UNITS[unit]}"


def moment(at: datetime | None) -> str:
    """A time to the minute, in UTC."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC") if at else "never"


def ago(at: datetime | None, now: datetime | None = None) -> str:
    """``3 days ago``; a time in the future (a wrong clock) is ``just now``."""
    if at is None:
        return "never"
    age = (now or datetime.now(UTC)) - at
    if age < MINUTE:
        return "just now"
    for below, step, noun in STEPS:
        if age < below:
            return f"{amount(age // step, noun)} ago"
    return f"{amount(age // (365 * DAY), 'year')} ago"


def seconds(count: float | None) -> str:
    """A remaining time."""
    if count is None:
        return ""
    if count < 90:
        return amount(max(1, round(count)), "second")
    return amount(round(count / 60), "minute") if count < 5400 else f"{count / 3600:.1f} hours"


def place(found: PlaceView) -> str:
    """The place of a chunk, without its headings."""
    parts = [found.key_path or ""]
    if found.page is not None:
        parts.append(_span("page", found.page, found.page_end))
    if found.line_start is not None:
        parts.append(_span("line", found.line_start, found.line_end))
    return ", ".join(part for part in parts if part)


def _span(noun: str, first: int, last: int | None) -> str:
    return f"{noun} {first}" if last in (None, first) else f"{noun}s {first} to {last}"


def reason(why: Reason) -> str:
    """``meaning, rank 2`` or ``exact text “lamp”, lines 3, 4``."""
    channel_name = CHANNELS.get(why.channel, why.channel)
    held = why.term or why.regex or why.path
    if held is None:
        return f"{channel_name}, rank {why.rank}"
    lines = f", line{'s' if len(why.lines) > 1 else ''} {', '.join(map(str, why.lines))}"
    return f"{channel_name} “{held}”{lines if why.lines else ''}"


def plain(value: Any) -> str:
    """A value of meta or of an event's details; for an issue its message."""
    if isinstance(value, Mapping) and isinstance(value.get("message"), str):
        return str(value["message"])
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def marked(text: str, ranges: Sequence[tuple[int, int]]) -> Markup:
    """Untrusted ``text``, escaped, with ``ranges`` (characters, in order) in ``<mark>``."""
    parts: list[Markup] = []
    at = 0
    for start, end in ranges:
        start, end = max(start, at), min(end, len(text))
        if start < end:
            parts += [escape(text[at:start]), Markup("<mark>%s</mark>") % text[start:end]]
            at = end
    return Markup("").join([*parts, escape(text[at:])])
