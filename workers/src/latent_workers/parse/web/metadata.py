"""Metadata of a page: title, author, date, canonical address, language; and its invisible characters."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final

from lxml import etree, html
from lxml.html import HtmlElement
from trafilatura.metadata import extract_metadata

from latent_core.domain.errors import Invalid
from latent_core.domain.web_address import WebAddress
from latent_workers.parse.text.decode import clean

# Tags and variation selectors carry whole messages, bidi controls turn lines around.
_SMUGGLING: Final = (
    "\U000e0000-\U000e007f\U000e0100-\U000e01ef\ufe00-\ufe0e\u202a-\u202e\u2066-\u2069"
)
# Zero width and other blanks, soft hyphens, joiners of mathematics, Hangul fillers.
_BLANK: Final = "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb"
_ALWAYS: Final = re.compile(f"[{_SMUGGLING}{_BLANK}]")
_HIDDEN: Final = re.compile(f"[{_SMUGGLING}]")
# Joiners are spelling in Arabic and Indic scripts, and hold emoji together; elsewhere they only break words apart.
_JOINERS: Final = re.compile(
    "(?<![\u0600-\u08ff\u0900-\u109f\u1780-\u18af\ua800-\uabff\ufb50-\ufeff\u2190-\u2bff\ufe0f\U0001f000-\U0001faff])[\u200c\u200d]"
)


def strip_invisible(text: str) -> tuple[str, int]:
    """``text`` without them, and the number of those that can carry a message."""
    hidden = len(_HIDDEN.findall(text))
    return _JOINERS.sub("", _ALWAYS.sub("", text)), hidden


_MAX_CHARS: Final = 1000
_MAX_ELEMENTS: Final = 50_000
_LANGUAGE: Final = re.compile(r"\s*([A-Za-z]{2})(?:[-_][A-Za-z0-9-]*)?\s*$")
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")
# Exact ones first; each as meta[@property or @name or @itemprop].
_MODIFIED: Final = ("article:modified_time", "og:updated_time", "dateModified", "last-modified")
_PUBLISHED: Final = (
    "article:published_time",
    "datePublished",
    "date",
    "dc.date",
    "dcterms.created",
)


@dataclass(frozen=True, slots=True)
class PageMetadata:
    title: str | None
    language: str | None
    meta: dict[str, Any]
    """``author, date, modified, site, canonical_url, description``, if known; dates in ISO 8601."""


def about(tree: HtmlElement) -> PageMetadata:
    """Reads the whole page including its head; for a very long page, only the head."""
    metas = _named(tree)
    language, canonical = _language(tree, metas), _canonical(tree)
    if int(tree.xpath("count(//*)")) > _MAX_ELEMENTS:
        tree = html.document_fromstring(etree.tostring(tree.find("head")), ensure_head_body=True)
    found = extract_metadata(tree, date_config={"original_date": True, "extensive_search": False})
    meta = {
        "author": _words(found.author),
        "date": _moment(metas, _PUBLISHED) or _day(found.date),
        "modified": _moment(metas, _MODIFIED),
        "site": _words(found.sitename),
        "description": _words(found.description),
        "canonical_url": canonical,
    }
    return PageMetadata(
        title=_words(found.title) or _words(tree.findtext(".//title")),
        language=language,
        meta={name: value for name, value in meta.items() if value},
    )


def _named(tree: HtmlElement) -> dict[str, str]:
    """Contents of ``meta`` elements by their names in lower case; the first of each name counts."""
    metas: dict[str, str] = {}
    for element in tree.iter("meta"):
        content = element.get("content", "").strip()
        for attribute in ("property", "name", "itemprop", "http-equiv"):
            name = element.get(attribute, "").strip().lower()
            if name and content:
                metas.setdefault(name, content)
    return metas


def _words(value: str | None) -> str | None:
    seen = clean(strip_invisible(value or "")[0])[0]
    return " ".join(seen.split())[:_MAX_CHARS] or None


def _moment(metas: dict[str, str], names: tuple[str, ...]) -> str | None:
    for name in names:
        value = metas.get(name.lower(), "")
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            continue
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        try:
            return moment.astimezone(UTC).isoformat()
        except OverflowError:
            continue
    return None


def _day(value: str | None) -> str | None:
    if not value or not _DAY.fullmatch(value):
        return None
    try:
        day = date.fromisoformat(value)
    except ValueError:
        return None
    return datetime(day.year, day.month, day.day, tzinfo=UTC).isoformat()


def _canonical(tree: HtmlElement) -> str | None:
    """Only stored: the address that a page declares does not identify it."""
    for link in tree.iter("link"):
        if "canonical" in link.get("rel", "").lower().split():
            try:
                return str(WebAddress.parse(link.get("href", "")))
            except Invalid:
                return None
    return None


def _language(tree: HtmlElement, metas: dict[str, str]) -> str | None:
    attribute = "{http://www.w3.org/XML/1998/namespace}lang"
    given = (
        tree.get("lang"),
        tree.get("xml:lang"),
        tree.get(attribute),
        metas.get("content-language"),
        metas.get("og:locale"),
    )
    for value in given:
        found = _LANGUAGE.match(value or "")
        if found:
            return found[1].lower()
    return None
