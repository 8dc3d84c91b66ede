"""JSON schemas as servers accept them: keywords that a server does not enforce go to the description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_STRUCTURE: Final = frozenset(
    {"type", "properties", "required", "items", "enum", "const", "anyOf", "$ref", "$defs"}
    | {"description", "title", "additionalProperties"}
)
_RANGES: Final = frozenset(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
)
OF_CHAT: Final = _STRUCTURE | _RANGES | {"pattern", "format", "minItems", "maxItems"}
"""Of chat completions with ``strict``."""
OF_MESSAGES: Final = _STRUCTURE | {"format"}
"""Of Anthropic's messages."""
MAX_DEPTH: Final = 50


def narrowed(schema: Mapping[str, Any], keywords: frozenset[str], depth: int = 0) -> dict[str, Any]:
    """``schema`` with ``keywords`` only. Others are written into the description, so that the model reads them."""
    if depth > MAX_DEPTH:
        raise ValueError(f"a schema has more than {MAX_DEPTH} levels")

    def inner(value: Any) -> Any:
        return narrowed(value, keywords, depth + 1) if isinstance(value, Mapping) else value

    kept: dict[str, Any] = {}
    others: list[str] = []
    for key, value in schema.items():
        if key not in keywords:
            others.append(f"{key}: {value}")
        elif key in ("properties", "$defs"):
            kept[key] = {name: inner(child) for name, child in value.items()}
        elif key == "anyOf":
            kept[key] = [inner(child) for child in value]
        else:
            kept[key] = inner(value)
    if others:
        kept["description"] = " ".join(
            part for part in (kept.get("description", ""), f"({', '.join(others)})") if part
        )
    return kept


def is_strict(schema: Any) -> bool:
    """Whether each object has no other keys and requires all that it has, as ``strict`` demands."""
    if isinstance(schema, list):
        return all(is_strict(one) for one in schema)
    if not isinstance(schema, Mapping):
        return True
    if isinstance(names := schema.get("properties"), Mapping):
        closed = schema.get("additionalProperties") is False
        if not closed or set(schema.get("required", ())) != set(names):
            return False
        return all(is_strict(value) for value in names.values()) and all(
            is_strict(value) for key, value in schema.items() if key != "properties"
        )
    return all(is_strict(value) for value in schema.values())
