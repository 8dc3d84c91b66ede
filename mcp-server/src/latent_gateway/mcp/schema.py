"""JSON Schemas as every client takes them: nothing at the root but an object, no references, no null."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from pydantic import BaseModel

_DROPPED: Final = frozenset({"title", "$defs"})
_NULL: Final = {"type": "null"}


@cache
def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Of a model's fields. An optional field may be left out; that it may be null is not told."""
    written = model.model_json_schema()
    schema = _simple(written, written.get("$defs", {}))
    schema.pop("description", None)  # the tool has its own
    schema.setdefault("properties", {})
    return schema


def _simple(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    node = {**_meant(node, definitions)}
    kept = {key: value for key, value in node.items() if key not in _DROPPED}
    if kept.get("default", ...) is None:
        del kept["default"]
    for key, value in kept.items():
        if key == "properties":
            kept[key] = {name: _simple(inner, definitions) for name, inner in value.items()}
        elif isinstance(value, dict) and key in ("items", "additionalProperties"):
            kept[key] = _simple(value, definitions)
        elif key in ("anyOf", "prefixItems"):
            kept[key] = [_simple(inner, definitions) for inner in value]
    return kept


def _meant(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """The node without reference, and without null where one other form is left."""
    if "$ref" in node:
        rest = {key: value for key, value in node.items() if key != "$ref"}
        return {**_meant(definitions[node["$ref"].rpartition("/")[2]], definitions), **rest}
    forms = [form for form in node.get("anyOf", ()) if form != _NULL]
    if len(forms) == 1:
        rest = {key: value for key, value in node.items() if key != "anyOf"}
        return {**_meant(forms[0], definitions), **rest}
    return node
