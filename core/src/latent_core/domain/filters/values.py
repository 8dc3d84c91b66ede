"""Readers of filter values. A ``ValueError`` says which values are allowed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from latent_core.domain.filters.model import MAX_CHARS, FilterOp
from latent_core.domain.generated import GeneratedKind
from latent_core.domain.manifest.custom_schema import FieldKind, FieldRule
from latent_core.domain.manifest.path_meta import FILE
from latent_core.domain.text import MAX_INTEGER, MIN_INTEGER, language_named, trouble

MAX_PAGE: Final = 2**31 - 1
MAX_AGE: Final = timedelta(days=36_500)

Plain = str | int | float | bool

_DATE: Final = re.compile(
    r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:?\d\d)?)?\Z"
)
_AGE: Final = re.compile(r"(\d{1,9})(s|min|h|d|w|y)\Z")
_UNITS: Final = {
    "y": timedelta(days=365),
    "w": timedelta(weeks=1),
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "min": timedelta(minutes=1),
    "s": timedelta(seconds=1),
}


_TYPES: Final[Mapping[FieldKind | None, tuple[tuple[type, ...], str]]] = {
    None: ((str, bool, int, float), "a plain value"),
    FieldKind.LIST: ((str, bool, int, float), "a plain value"),
    FieldKind.STRING: ((str,), "a text"),
    FieldKind.NUMBER: ((int, float), "a number"),
    FieldKind.INTEGER: ((int,), "a whole number"),
    FieldKind.BOOLEAN: ((bool,), "true or false"),
}
"""The Python types of a kind, and its name in messages."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time or, with ``end`` (the start of the next day), a whole day. In UTC."""

    start: datetime
    end: datetime | None = None


def text(value: Any) -> str:
    """A text that a store may hold."""
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {format_value(value)}")
    if not value:
        raise ValueError("must not be empty")
    return _sound(value)


def _sound(value: str) -> str:
    if len(value) > MAX_CHARS:
        raise ValueError(f"has {len(value)} characters; the limit is {MAX_CHARS}")
    wrong = trouble(value, layout=True)
    if wrong is not None:
        raise ValueError(wrong)
    return value


def one_of(known: type[StrEnum]) -> Callable[[Any], str]:
    """A reader of the names in an enum."""

    def read(value: Any) -> str:
        if isinstance(value, str) and value in list(known):
            return value
        raise ValueError(f"must be one of {', '.join(known)}, not {format_value(value)}")

    return read


def generated(value: Any) -> bool | str:
    """Whether a model wrote it, or what it wrote."""
    if isinstance(value, bool) or (isinstance(value, str) and value in list(GeneratedKind)):
        return value
    raise ValueError(
        f"must be true, false or one of {', '.join(GeneratedKind)}, not {format_value(value)}"
    )


def language(value: Any) -> str:
    """A language's name, from its name or code."""
    written = text(value)
    try:
        return language_named(written)
    except ValueError as exc:
        raise ValueError(f"{format_value(value)} {exc}") from exc


def document_id(value: Any) -> UUID:
    try:
        return UUID(text(value))
    except ValueError as exc:
        raise ValueError(f"{format_value(value)} is not a document id (a UUID)") from exc


def path(value: Any) -> str:
    """A path or pattern in the form of documents, also from a uri or an absolute path."""
    return text(text(value).removeprefix(FILE).lstrip("/"))


def pattern(value: Any) -> str:
    """A glob; a slash at the end means everything below."""
    written = text(value).removeprefix(FILE).lstrip("/")
    return f"{written}**" if not written or written.endswith("/") else written


def page(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_PAGE:
        raise ValueError(
            f"must be a page number (a whole number, 1 or more), not {format_value(value)}"
        )
    return value


def moment(value: Any) -> Moment:
    """An ISO 8601 time, or a date, which means the whole day; UTC without a zone."""
    found = _DATE.match(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(
            f"must be a date such as 2026-01-31 or a time such as 2026-01-31T12:00:00Z, not {format_value(value)}"
        )
    try:
        read = datetime.fromisoformat(value)
        start = read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
        return Moment(start, None if found[1] else start + timedelta(days=1))
    except (ValueError, OverflowError) as exc:
        raise ValueError(f"{format_value(value)} is not a valid calendar date") from exc


def age(value: Any) -> timedelta:
    """Such as ``30d``: a whole number of s, min, h, d, w or y (365 days)."""
    found = _AGE.match(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(
            f"must be an age such as 12h, 30d, 6w or 1y (units {', '.join(_UNITS)}), not {format_value(value)}"
        )
    count, unit = int(found[1]), _UNITS[found[2]]
    if not 1 <= count <= MAX_AGE // unit:
        raise ValueError("must be more than 0 and at most 100 years")
    return count * unit


def shown_age(value: timedelta) -> str:
    """As ``age`` reads it, in the largest unit that fits."""
    unit, length = next((u, s) for u, s in _UNITS.items() if not value % s)
    return f"{value // length}{unit}"


def plain(value: Any) -> Plain:
    """A text, number or boolean that JSON and the stores can hold."""
    if isinstance(value, str):
        return _sound(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        if not MIN_INTEGER <= value < MAX_INTEGER:
            raise ValueError("must not be an integer of more than 64 bits")
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise ValueError(f"must be a text, a number, true or false, not {format_value(value)}")


def sizeable(value: Any) -> Plain:
    """A value with an order: a text or a number."""
    if isinstance(value, bool):
        raise ValueError("must be a number or a text: true and false have no order")
    return plain(value)


def declared(rule: FieldRule, op: FilterOp, value: Any) -> Plain | Moment:
    """A value for a declared field. Unlike meta of a document, texts are not converted to the field's type."""
    if rule.kind is FieldKind.DATE:
        return moment(value)
    types, kind = _TYPES[rule.kind]
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise ValueError(f"must be {kind} (by the container's schema), not {format_value(value)}")
    read = (
        sizeable(value)
        if op in (FilterOp.GT, FilterOp.GTE, FilterOp.LT, FilterOp.LTE)
        else plain(value)
    )
    if op is FilterOp.IN or (op is FilterOp.CONTAINS and rule.kind is FieldKind.LIST):
        _check_choice(rule, read)
    return read


def _check_choice(rule: FieldRule, value: Plain) -> None:
    if rule.choices and (isinstance(value, bool), value) not in {
        (isinstance(choice, bool), choice) for choice in rule.choices
    }:
        names = ", ".join(str(choice) for choice in rule.choices[:20])
        more = ", …" if len(rule.choices) > 20 else ""
        raise ValueError(f"must be one of {names}{more}, not {format_value(value)}")


def format_value(value: Any) -> str:
    """Any value, formatted for a message."""
    match value:
        case None:
            return "null"
        case str():
            return f"'{visible(value, 60)}'"
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value) if abs(value) < 1e30 else "a very large number"
        case list():
            return f"a list of {len(value)}"
        case dict():
            return "an object"
    return type(value).__name__


def visible(written: str, max_chars: int) -> str:
    """A text for a message: unprintable characters are escaped, long texts are cut."""
    cut = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in written[:max_chars])
    return f"{cut}…" if len(written) > max_chars else cut
