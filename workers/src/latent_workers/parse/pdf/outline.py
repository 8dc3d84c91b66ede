"""The outline and the metadata of a PDF: headings by page, title and dates."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

from latent_workers.parse.pdf import mupdf
from latent_workers.parse.text.decode import clean

_NUMBERING: Final = re.compile(r"^[\W\d]*\d[\d.]*[\s.)]*(?=\D)")
_NO_LETTER: Final = re.compile(r"[\W_]+")
_MAX_HEADING_LINES = 3


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the outline; levels count from 1."""

    level: int
    title: str
    key: str = field(init=False)
    """The title in the form that is compared with lines of a page."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", _key(self.title))


Outline = Mapping[int, Sequence[Entry]]
"""Entries by the page they point to."""


def found(lines: Sequence[str], expected: Sequence[Entry]) -> tuple[int, int]:
    """The number of next lines that are a heading, and the number of expected headings that it skips."""
    for count in range(1, min(_MAX_HEADING_LINES, len(lines)) + 1 if expected else 1):
        key = _key(" ".join(lines[:count]))
        for passed, entry in enumerate(expected, start=1):
            if key and key == entry.key:
                return count, passed
    return 0, 0


def shown(entries: Sequence[Entry], blocks: Sequence[Sequence[str]]) -> list[bool]:
    """For each entry, whether a page shows it."""
    if not entries:
        return []
    keys = {key for block in blocks for key in _keys(block)}
    return [bool(entry.key) and entry.key in keys for entry in entries]


def _keys(lines: Sequence[str]) -> Iterator[str]:
    for start in range(len(lines)):
        for count in range(1, _MAX_HEADING_LINES + 1):
            yield _key(" ".join(lines[start : start + count]))


def _key(text: str) -> str:
    """Letters and digits only, without a leading number: outlines and pages number differently."""
    return _NO_LETTER.sub("", _NUMBERING.sub("", text)).casefold()


_MAX_ENTRIES = 20_000
_MAX_ENTRIES_OF_PAGE = 200
_MAX_CHARS = 1000
_NAMES: Final = ("author", "subject", "keywords", "creator", "producer")
_DATES: Final = (("creationDate", "created"), ("modDate", "modified"))
_DATE: Final = re.compile(
    r"D:(?P<date>\d{4}(?:\d\d){0,5})(?:(?P<sign>[+-])(?P<hours>\d\d)'?(?P<minutes>\d\d)?)?"
)
_NO_TITLE: Final = re.compile(
    r"(?:untitled.*|microsoft \w+ -.*|.*\.(?:docx?|indd|tex|dvi|qxd|pptx?|xlsx?|pdf|ps|fm))$", re.I
)


def title_of(document: Any) -> str | None:
    """The title in the metadata, unless it is a file name from a program."""
    title = _value(document, "title")
    return title if title and not _NO_TITLE.match(title) else None


def meta_of(document: Any) -> dict[str, Any]:
    meta: dict[str, Any] = {"pages": document.page_count}
    for name in _NAMES:
        if value := _value(document, name):
            meta[name] = value
    for name, ours in _DATES:
        if moment := moment_of(_value(document, name)):
            meta[ours] = moment.isoformat()
    return meta


def moment_of(value: str) -> datetime | None:
    """A PDF date (ISO 32000 §7.9.4) as a time; UTC if it has no zone."""
    found = _DATE.match(value)
    if not found:
        return None
    digits = found["date"] + "00000101000000"[len(found["date"]) :]
    offset = timedelta(hours=int(found["hours"] or 0), minutes=int(found["minutes"] or 0))
    try:
        zone = timezone(-offset if found["sign"] == "-" else offset)
        local = datetime.strptime(digits, "%Y%m%d%H%M%S").replace(tzinfo=zone)
        return local.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def outline_of(document: Any) -> dict[int, list[Entry]]:
    """Outline entries by their target page; empty if the outline cannot be read."""
    try:
        with mupdf.reading():
            toc = document.get_toc(simple=True)
    except mupdf.PdfError:
        return {}
    entries: dict[int, list[Entry]] = {}
    for level, title, page, *_ in toc[:_MAX_ENTRIES]:
        words = " ".join(clean(title)[0].split())[:_MAX_CHARS]
        on_page = entries.setdefault(page, [])
        if words and page > 0 and len(on_page) < _MAX_ENTRIES_OF_PAGE:
            on_page.append(Entry(level, words))
    return entries


def _value(document: Any, name: str) -> str:
    value = (document.metadata or {}).get(name) or ""
    return " ".join(clean(value)[0].split())[:_MAX_CHARS]
