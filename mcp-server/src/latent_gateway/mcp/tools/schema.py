"""The JSON schemas of tools, as short as clients allow: every model reads them before its first call.

Ranges and defaults stand in the descriptions in words, because some clients drop their keywords.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from pydantic import BaseModel

from latent_gateway.mcp.tools.arguments import UNLISTED

_DROPPED: Final = frozenset({"title", "$defs", "default", "additionalProperties", "pattern"}) | {
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    *("minLength", "maxLength", "minItems", "maxItems"),
}
MAX_LISTED: Final = 1
"""Of the fields of an answer."""
_NULL: Final = {"type": "null"}


@cache
def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of arguments. Optional fields are not required; that they may be null is not mentioned."""
    written = model.model_json_schema()
    for name, field in model.model_fields.items():
        if UNLISTED in field.metadata:
            del written["properties"][name]
    schema = _simple(written, written.get("$defs", {}))
    schema.pop("description", None)  # the tool has its own
    schema.setdefault("properties", {})
    return schema


@cache
def answer_schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of an answer: the first fields that it always has, and their types. Answers have further ones; each
    name here is paid for by every session of every model."""
    written = model.model_json_schema()
    definitions = written.get("$defs", {})
    fields = written.get("properties", {})
    always = [name for name in written.get("required", ()) if not _nullable(fields[name])]
    always = always[:MAX_LISTED]
    return {
        "type": "object",
        "properties": {name: _bare(fields[name], definitions) for name in always},
        "required": always,
    }


def _simple(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    node = {**_meant(node, definitions)}
    kept = {key: value for key, value in node.items() if key not in _DROPPED}
    for key, value in kept.items():
        if key == "properties":
            kept[key] = {name: _simple(inner, definitions) for name, inner in value.items()}
        elif isinstance(value, dict) and key == "items":
            kept[key] = _simple(value, definitions)
        elif key in ("anyOf", "prefixItems"):
            kept[key] = [_simple(inner, definitions) for inner in value]
    return kept


def _bare(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    meant = _meant(node, definitions)
    return {key: meant[key] for key in ("type",) if key in meant}


def _nullable(node: Mapping[str, Any]) -> bool:
    return _NULL in node.get("anyOf", ())


def _meant(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """The node without references, and without null if one other form remains."""
    if "$ref" in node:
        rest = {key: value for key, value in node.items() if key != "$ref"}
        return {**_meant(definitions[node["$ref"].rpartition("/")[2]], definitions), **rest}
    forms = [form for form in node.get("anyOf", ()) if form != _NULL]
    if len(forms) == 1:
        rest = {key: value for key, value in node.items() if key != "anyOf"}
        return {**_meant(forms[0], definitions), **rest}
    return node
