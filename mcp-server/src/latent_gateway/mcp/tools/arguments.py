"""Arguments as models write them: empty values, other names, numbers as text, numbers out of range."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import NoneType
from typing import Any, Final, Self, get_args, get_origin

import orjson
from annotated_types import Ge, Le
from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationInfo,
    model_validator,
)
from pydantic.fields import FieldInfo

ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "top_k": ("limit", "k", "n", "count", "max_results", "num_results"),
    "limit": ("top_k", "k", "n", "count", "max_results", "num_results"),
    "source_type": ("formats", "format", "source_types", "types", "type"),
    "containers": ("container", "container_id", "container_ids", "collection", "collections"),
    "container_id": ("container", "containers", "container_name", "collection", "id", "name"),
    "query": ("q", "question", "text", "search"),
    "filters": ("filter", "where"),
    "must_terms": ("must", "terms", "exact"),
    "regexes": ("regex", "pattern"),
    "path_like": ("path", "glob"),
    "max_chars": ("max_characters", "max_length", "max_bytes"),
    "doc_id": ("id", "document_id", "document", "doc", "uri"),
    "page": ("page_number", "page_no"),
    "job_id": ("id", "job"),
    "wait_seconds": ("wait", "timeout", "seconds"),
    "uri": ("url", "address"),
    "meta": ("metadata",),
}
"""Names that models use for an argument, where a tool has no argument of that name itself."""
CAPITAL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
PAGE_URI: Final = re.compile(r"page://[^/]+/(?P<page>[0-9]{1,9})")


class _ClampedNumber:
    """Marks a number: one out of its range is set to the nearest limit, and the answer says so."""


CLAMPED: Final = _ClampedNumber()


class _UnlistedArgument:
    """Marks an argument that is accepted and documented, but not in the list of tools, which every session pays for."""


UNLISTED: Final = _UnlistedArgument()


class Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid")

    _notes: list[str] = PrivateAttr(default_factory=list)

    @property
    def notes(self) -> list[str]:
        """What was used instead of what was given, for the issues of the answer."""
        return self._notes

    @model_validator(mode="wrap")
    @classmethod
    def _as_meant(
        cls, given: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        if not isinstance(given, Mapping):
            return handler(given)
        present = {name: value for name, value in given.items() if not _absent(value)}
        named = _renamed(present, cls.model_fields)
        for name, default in (info.context or {}).items():
            if name in cls.model_fields:
                named.setdefault(name, default)
        notes: list[str] = []
        for name, value in named.items():
            field = cls.model_fields.get(name)
            if field is not None:
                named[name] = _clamped(name, _shaped(value, field), field, notes)
        arguments = handler(named)
        arguments._notes = notes
        return arguments


def _absent(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _renamed(given: dict[str, Any], fields: Mapping[str, FieldInfo]) -> dict[str, Any]:
    """By the names of the fields. The uri of a page also names the page."""
    named = {name: value for name, value in given.items() if name in fields}
    for name, value in given.items():
        if name not in fields:
            named[_field_of(name, fields, named)] = value
    uri = PAGE_URI.fullmatch(str(named.get("doc_id", "")))
    if uri is not None and "page" in fields:
        named.setdefault("page", int(uri["page"]))
    return named


def _field_of(name: str, fields: Mapping[str, FieldInfo], taken: Mapping[str, Any]) -> str:
    """The field that is meant by an unknown name, unless it is given itself; else the name."""
    plain = CAPITAL.sub("_", name).lower().replace("-", "_")
    free = [field for field in fields if field not in taken]
    if plain in free:
        return plain
    return next((field for field in free if plain in ALIASES.get(field, ())), name)


def _shaped(value: Any, field: FieldInfo) -> Any:
    """An object from its JSON; one value from a list of one."""
    kind = _kind(field.annotation)
    if kind is dict and isinstance(value, str):
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return value
    if kind is not list and isinstance(value, list) and len(value) == 1:
        return value[0]
    return value


def _kind(annotation: Any) -> Any:
    """``list`` or ``dict`` for a field that takes one, also if it may be absent."""
    forms = [form for form in get_args(annotation) if form is not NoneType]
    is_optional = NoneType in get_args(annotation) and len(forms) == 1
    return get_origin(forms[0] if is_optional else annotation)


def _clamped(name: str, value: Any, field: FieldInfo, notes: list[str]) -> Any:
    """Within the range of the field, if it is a number that is clamped."""
    if CLAMPED not in field.metadata or isinstance(value, bool):
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        return value
    for limit in field.metadata:
        if isinstance(limit, Le) and number > float(str(limit.le)):
            notes.append(f"{name} {number:g} is above the limit {limit.le}: {limit.le} used")
            return limit.le
        if isinstance(limit, Ge) and number < float(str(limit.ge)):
            notes.append(f"{name} {number:g} is below the limit {limit.ge}: {limit.ge} used")
            return limit.ge
    return value
