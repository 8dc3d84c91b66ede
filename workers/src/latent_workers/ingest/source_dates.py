"""Dates that a source itself declares: web pages in their meta, Markdown in its front matter."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from latent_core.domain.chunk import SourceType

MODIFIED: Final = (
    *("lastmod", "last_modified_at", "last_modified", "lastmodified", "last-modified"),
    *("modified", "modified_at", "date_modified", "datemodified"),
    *("updated", "updated_at", "last_updated", "lastupdated"),
)
PUBLISHED: Final = ("date", "published", "publishdate", "pubdate", "published_at", "created")
_SPACED_ZONE: Final = re.compile(r"\s+(?=[+-]\d\d:?\d\d$)")


DATED: Final = (
    SourceType.WEB,
    SourceType.MARKDOWN,
    SourceType.DOCUMENT,
    SourceType.SHEET,
    SourceType.SLIDES,
    SourceType.MAIL,
)
"""Types whose sources may say when they were written."""


def declared_modification(meta: Mapping[str, Any], source_type: SourceType) -> datetime | None:
    """When the author of a Markdown file says that it was changed. It counts before the time of the file, which a
    checkout or a copy sets."""
    return _first(meta, MODIFIED) if source_type is SourceType.MARKDOWN else None


def source_date(meta: Mapping[str, Any], source_type: SourceType) -> datetime | None:
    """The modification date that a source declares, else its publication date; for sources without a time of their
    own."""
    if source_type not in DATED:
        return None
    return _first(meta, (*MODIFIED, *PUBLISHED))


def _first(meta: Mapping[str, Any], names: Iterable[str]) -> datetime | None:
    by_name = {name.lower(): value for name, value in meta.items()}
    dates = (_moment(by_name[name]) for name in names if name in by_name)
    return next((date for date in dates if date is not None), None)


def _moment(value: Any) -> datetime | None:
    """Of an ISO date or time, as Jekyll writes it too (``2024-05-01 10:00:00 +0200``); UTC if it names no zone."""
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(_SPACED_ZONE.sub("", value.strip()))
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
