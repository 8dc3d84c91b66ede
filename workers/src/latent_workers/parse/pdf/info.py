"""What a PDF says about itself: metadata and outline, believed with care."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

from latent_workers.parse.pdf import mupdf
from latent_workers.parse.pdf.outline import Entry
from latent_workers.parse.text.decode import clean

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
    """The title in the metadata, unless a program put a file name there."""
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
    """A PDF date (ISO 32000 §7.9.4) as a moment; without a zone it is taken as UTC."""
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
    """Outline entries by the page they point to; empty when the outline cannot be read."""
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
