"""The served schema (OpenAPI 3.1) read for people: operations with their parameters, bodies and answers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from latent_gateway.openapi import operations

Json = Mapping[str, Any]

MAX_DEPTH: Final = 3
"""Of fields within fields; deeper ones are named by their type alone."""
MAX_FIELDS: Final = 120
"""Of one body."""
OTHER: Final = "other"
NOT_A_WORD: Final = re.compile(r"[^a-z0-9_]+")
JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    place: str
    """``path``, ``query`` or ``header``."""
    type: str
    required: bool
    description: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BodyField:
    """A field of a body; ``path`` has dots, and ``[]`` after the name of a list."""

    path: str
    type: str
    required: bool
    description: str


@dataclass(frozen=True, slots=True)
class Body:
    media_type: str
    fields: tuple[BodyField, ...]
    example: str
    """A JSON object with the required fields; empty for other media types."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: str
    description: str
    media_types: tuple[str, ...]
    fields: tuple[BodyField, ...]


@dataclass(frozen=True, slots=True)
class Operation:
    id: str
    """Of its page's address: ``post-v1-containers-search``."""
    method: str
    path: str
    summary: str
    description: str
    tag: str
    parameters: tuple[Parameter, ...]
    body: Body | None
    answers: tuple[Answer, ...]


def read(schema: Json) -> dict[str, Operation]:
    """The operations of a schema by id, in its order."""
    found = (_operation(schema, path, verb, one) for path, verb, one in operations(dict(schema)))
    return {operation.id: operation for operation in found}


def _operation(schema: Json, path: str, verb: str, given: Json) -> Operation:
    summary = str(given.get("summary", ""))
    return Operation(
        id=NOT_A_WORD.sub("-", f"{verb}{path}").strip("-"),
        method=verb.upper(),
        path=path,
        summary=summary,
        description=str(given.get("description", "")),
        tag=str(next(iter(given.get("tags", ())), _tag(path))),
        parameters=tuple(_parameter(schema, one) for one in given.get("parameters", ())),
        body=_body(schema, given.get("requestBody")),
        answers=tuple(_answer(schema, *one) for one in sorted(given.get("responses", {}).items())),
    )


def _tag(path: str) -> str:
    """The resource of a path: ``containers`` of ``/v1/containers/list``."""
    parts = [part for part in path.split("/") if part and part != "v1"]
    return parts[0] if path.startswith("/v1/") else OTHER


def _parameter(schema: Json, given: Json) -> Parameter:
    of = _resolved(schema, given.get("schema", {}))
    return Parameter(
        name=str(given["name"]),
        place=str(given["in"]),
        type=_type(schema, given.get("schema", {})),
        required=bool(given.get("required", False)),
        description=str(given.get("description", of.get("description", ""))),
        choices=tuple(map(str, of.get("enum", ()))),
    )


def _body(schema: Json, given: Json | None) -> Body | None:
    if given is None:
        return None
    content: Json = given.get("content", {})
    media_type = JSON if JSON in content else next(iter(content), "")
    of = content.get(media_type, {}).get("schema", {})
    fields = tuple(_fields(schema, of))[:MAX_FIELDS]
    example = ""
    if media_type == JSON:
        skeleton = _skeleton(schema, of, 0)
        example = orjson.dumps(skeleton, option=orjson.OPT_INDENT_2).decode()
    return Body(media_type, fields, example)


def _answer(schema: Json, status: str, given: Json) -> Answer:
    content: Json = given.get("content", {})
    of = content.get(JSON, {}).get("schema", {})
    good = status.startswith("2")
    fields = tuple(_fields(schema, of))[:MAX_FIELDS] if good else ()
    return Answer(status, str(given.get("description", "")), tuple(content), fields)


def _fields(
    schema: Json, given: Json, prefix: str = "", seen: tuple[str, ...] = ()
) -> Iterator[BodyField]:
    """Depth first. A schema within itself is shown once."""
    of = _resolved(schema, given)
    name = str(given.get("$ref", ""))
    if name in seen or len(seen) >= MAX_DEPTH:
        return
    required = of.get("required", ())
    for key, value in of.get("properties", {}).items():
        path = f"{prefix}{key}"
        inner = _resolved(schema, value)
        description = str(value.get("description", inner.get("description", "")))
        yield BodyField(path, _type(schema, value), key in required, description)
        item = _object_in(schema, value)
        if item is not None:
            mark = "[]." if inner.get("type") == "array" else "."
            yield from _fields(schema, item, path + mark, (*seen, name))


def _object_in(schema: Json, given: Json) -> Json | None:
    """The object that a field is, may be (with null), or is a list of."""
    of = _resolved(schema, given)
    if of.get("type") == "array":
        return _object_in(schema, of.get("items", {}))
    if "properties" in of:
        return given
    options = [one for one in of.get("anyOf", ()) if one.get("type") != "null"]
    return _object_in(schema, options[0]) if len(options) == 1 else None


def _type(schema: Json, given: Json) -> str:
    """``string``, ``integer or null``, ``list of Hit``."""
    name = str(given.get("$ref", "")).rpartition("/")[2]
    of = _resolved(schema, given)
    if "anyOf" in of or "oneOf" in of:
        options = of.get("anyOf") or of["oneOf"]
        return " or ".join(dict.fromkeys(_type(schema, one) for one in options))
    if "enum" in of:
        return " | ".join(map(str, of["enum"]))
    if "const" in of:
        return str(of["const"])
    if of.get("type") == "array":
        return f"list of {_type(schema, of.get('items', {}))}"
    if "properties" in of:
        return name.removeprefix("Manifest_") or "object"
    shape = str(of.get("type", "any"))
    return f"{shape} ({of['format']})" if "format" in of else shape


def _skeleton(schema: Json, given: Json, depth: int) -> Any:
    """A value with the required fields only, by their types."""
    of = _resolved(schema, given)
    if "properties" in of:
        if depth > MAX_DEPTH:
            return {}
        required = of.get("required", ())
        shown = [key for key in of["properties"] if key in required]
        return {key: _skeleton(schema, of["properties"][key], depth + 1) for key in shown}
    if "default" in of:
        return of["default"]
    if options := of.get("anyOf") or of.get("oneOf"):
        return _skeleton(schema, options[0], depth)
    if "enum" in of:
        return of["enum"][0]
    low = of.get("minimum", 0)
    empty: dict[str, Any] = {
        "array": [],
        "integer": int(low),
        "number": low,
        "boolean": False,
        "object": {},
    }
    return empty.get(str(of.get("type")), "")


def _resolved(schema: Json, given: Json) -> Json:
    """``given`` with its reference followed; what does not exist is an empty schema."""
    hops = 0
    while "$ref" in given and hops < MAX_DEPTH:
        found: Any = schema
        for part in str(given["$ref"]).removeprefix("#/").split("/"):
            found = found.get(part, {}) if isinstance(found, Mapping) else {}
        given, hops = found, hops + 1
    if len(given.get("allOf", ())) == 1:
        return _resolved(schema, given["allOf"][0])
    return given
