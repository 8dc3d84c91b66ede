"""``metadata.custom_schema``: the declared meta fields of a container's documents, and their types.

A field is written as a type, as a list of allowed values, or as an object with both and more::

    confidence: float
    period: [modernism, baroque, renaissance]
    city: {type: string, required: true, enum: [Berlin, Potsdam]}

Types are string, number, integer, boolean, date (ISO 8601) and list (of plain values). Meta may contain
further fields. Values that come as text (from a path or a command line) are converted to the field's type.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Self, TypeAlias, assert_never

from latent_core.domain.text import MAX_INTEGER, MIN_INTEGER, trouble

MAX_FIELDS: Final = 200
MAX_CHOICES: Final = 1000
MAX_ITEMS: Final = 1000
LONGEST_NAME: Final = 64

Plain: TypeAlias = str | int | float | bool

_KEYS: Final = ("type", "required", "enum")
_ALIASES: Final = {"float": "number", "int": "integer", "bool": "boolean", "str": "string"}
_NUMBER: Final = re.compile(r"[+-]?\d{1,300}(?:\.\d{1,300})?(?:[eE][+-]?\d{1,3})?\Z")
_INTEGER: Final = re.compile(r"[+-]?\d{1,20}\Z")
_DATE: Final = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:?\d\d)?)?\Z"
)
_TRUTH: Final = {"true": True, "false": False}


class FieldKind(StrEnum):
    STRING = "string"
    NUMBER = "number"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    DATE = "date"
    LIST = "list"


@dataclass(frozen=True, slots=True)
class FieldRule:
    """The rule of one field."""

    kind: FieldKind | None = None
    """None: any plain value, one of ``choices``."""
    required: bool = False
    choices: tuple[Plain, ...] = ()
    """Allowed values, or items of a list; empty means all."""

    @classmethod
    def of(cls, written: Any) -> Self:
        """Parse a rule of the manifest; ``ValueError`` says what is wrong."""
        if isinstance(written, str):
            return cls(kind=_kind(written))
        if isinstance(written, list):
            return cls(choices=_choices(written, None))
        if not isinstance(written, dict):
            raise ValueError(f"{_shown(written)} is not a field type; {_HOW}")
        strange = [key for key in written if key not in _KEYS]
        if strange:
            near = difflib.get_close_matches(str(strange[0]), _KEYS, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"known here: {', '.join(_KEYS)}"
            raise ValueError(f"unknown key '{strange[0]}'; {hint}")
        if not isinstance(written.get("required", False), bool):
            raise ValueError("required: must be true or false")
        if "type" not in written and "enum" not in written:
            raise ValueError(f"has neither type nor enum; {_HOW}")
        kind = _kind(written["type"]) if "type" in written else None
        choices = _choices(written["enum"], kind) if "enum" in written else ()
        return cls(kind, written.get("required", False), choices)

    def read(self, value: Any) -> Any:
        """``value`` in its stored form; ``ValueError`` says what is allowed."""
        if self.kind is FieldKind.LIST:
            items = value if isinstance(value, list) else [value]
            if len(items) > MAX_ITEMS:
                raise ValueError(f"has {len(items)} items; the limit is {MAX_ITEMS}")
            return [self._chosen(_plain(item)) for item in items]
        return self._chosen(_plain(value) if self.kind is None else _as_kind(self.kind, value))

    def _chosen(self, value: Plain) -> Plain:
        if not self.choices:
            return value
        for choice in self.choices:
            if _same(choice, value) or (isinstance(value, str) and value == _text(choice)):
                return choice
        allowed = ", ".join(_text(choice) for choice in self.choices[:20])
        more = ", …" if len(self.choices) > 20 else ""
        raise ValueError(f"must be one of {allowed}{more}, not {_shown(value)}")


_HOW: Final = f"write a type ({', '.join(FieldKind)}), a list of the allowed values, or {{{', '.join(_KEYS)}}}"


@dataclass(frozen=True, slots=True)
class Violation:
    """A field whose value violates its rule."""

    field: str
    message: str


@dataclass(frozen=True, slots=True)
class CustomSchema:
    """The rules of a container's meta."""

    rules: Mapping[str, FieldRule]

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> Self:
        """Parse the schema of a manifest that is already validated."""
        return cls({name: FieldRule.of(rule) for name, rule in written.items()})

    def read(
        self, meta: Mapping[str, Any], *, whole: bool
    ) -> tuple[dict[str, Any], tuple[Violation, ...]]:
        """``meta`` in its stored form, and its violations.

        Required fields may be missing unless ``whole`` is set; null counts as missing.
        """
        kept = dict(meta)
        wrong: list[Violation] = []
        for name, rule in self.rules.items():
            given = kept.get(name)
            if given is None:
                if rule.required and whole:
                    wrong.append(
                        Violation(name, "is required by the container's schema, but missing")
                    )
                continue
            try:
                kept[name] = rule.read(given)
            except ValueError as exc:
                wrong.append(Violation(name, str(exc)))
        return kept, tuple(wrong)


def check_name(name: str) -> str:
    """Return ``name`` if it is a valid field name; ``ValueError`` otherwise."""
    wrong = trouble(name)
    if wrong is not None:
        raise ValueError(wrong)
    if not name.strip() or len(name) > LONGEST_NAME:
        raise ValueError(f"a field's name has 1 to {LONGEST_NAME} characters")
    return name


def check_rule(written: Any) -> Any:
    """Return ``written`` if it is a valid rule; ``ValueError`` otherwise."""
    FieldRule.of(written)
    return written


def _kind(written: Any) -> FieldKind:
    names = [*FieldKind, *_ALIASES]
    if isinstance(written, str):
        name = _ALIASES.get(written.lower(), written.lower())
        if name in list(FieldKind):
            return FieldKind(name)
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"types are {', '.join(FieldKind)}"
        raise ValueError(f"'{written[:80]}' is not a field type; {hint}")
    raise ValueError(f"{_shown(written)} is not a field type; types are {', '.join(FieldKind)}")


def _choices(written: Any, kind: FieldKind | None) -> tuple[Plain, ...]:
    if not isinstance(written, list) or not written:
        raise ValueError("enum: must be a list of at least one value")
    if len(written) > MAX_CHOICES:
        raise ValueError(f"enum: has {len(written)} values; the limit is {MAX_CHOICES}")
    plain = kind is None or kind is FieldKind.LIST
    try:
        read = [_plain(value) if plain else _as_kind(kind, value) for value in written]
    except ValueError as exc:
        raise ValueError(f"enum: a value {exc}") from exc
    if len({(isinstance(value, bool), value) for value in read}) != len(read):
        raise ValueError("enum: contains a value twice")
    return tuple(read)


def _plain(value: Any) -> Plain:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("is not a finite number")
    if isinstance(value, str | bool | int | float):
        return value
    raise ValueError(f"must be a plain value, not {_shown(value)}")


def _as_kind(kind: FieldKind | None, value: Any) -> Plain:
    match kind:
        case None | FieldKind.LIST:
            return _plain(value)
        case FieldKind.STRING:
            return _string(value)
        case FieldKind.NUMBER:
            return _number(value)
        case FieldKind.INTEGER:
            return _integer(value)
        case FieldKind.BOOLEAN:
            return _boolean(value)
        case FieldKind.DATE:
            return _date(value)
    assert_never(kind)


def _string(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise ValueError(f"must be text, not {_shown(value)}: put it in quotes")


def _number(value: Any) -> int | float:
    if isinstance(value, str) and _NUMBER.match(value.strip()):
        text = value.strip()
        value = int(text) if _INTEGER.match(text) else float(text)
    if isinstance(value, int | float) and not isinstance(value, bool) and _keepable(value):
        return value
    raise ValueError(f"must be a number, not {_shown(value)}")


def _integer(value: Any) -> int:
    if isinstance(value, str) and _INTEGER.match(value.strip()):
        value = int(value.strip())
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and _keepable(value):
        return value
    raise ValueError(f"must be a whole number, not {_shown(value)}")


def _boolean(value: Any) -> bool:
    if isinstance(value, str):
        value = _TRUTH.get(value.strip().lower(), value)
    if isinstance(value, bool):
        return value
    raise ValueError(f"must be true or false, not {_shown(value)}")


def _date(value: Any) -> str:
    if isinstance(value, str) and _DATE.match(value.strip()):
        try:
            datetime.fromisoformat(value.strip())
        except ValueError:
            pass  # 2024-02-30
        else:
            return value.strip()
    raise ValueError(f"must be a date such as 2024-01-31, not {_shown(value)}")


def _keepable(value: float) -> bool:
    """Whether JSON and the database can store the number."""
    if isinstance(value, int):
        return MIN_INTEGER <= value < MAX_INTEGER
    return math.isfinite(value)


def _same(one: Plain, other: Plain) -> bool:
    return isinstance(one, bool) is isinstance(other, bool) and one == other


def _text(value: Plain) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shown(value: Any) -> str:
    """A value formatted for a message; long ones are cut."""
    match value:
        case str():
            return f"'{value[:60]}…'" if len(value) > 60 else f"'{value}'"
        case bool():
            return _text(value)
        case int() | float():
            return str(value) if abs(value) < 1e30 else "a very large number"
        case list():
            return f"a list of {len(value)}"
        case dict():
            return "a mapping"
    return "nothing" if value is None else type(value).__name__


def format_violations(violations: Sequence[Violation]) -> str:
    """Violations as one sentence."""
    return "; ".join(f"meta.{wrong.field} {wrong.message}" for wrong in violations)
