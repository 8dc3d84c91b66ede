"""Answers that a stand-in for a language model gives: true to the text of the prompt and to the schema, or spoiled."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from tests.support.servers.llm_dialects import SeenRequest

Schema = Mapping[str, Any]
_SENTENCE: Final = re.compile(r"[^.!?\n]+[.!?]?")
_FORMATS: Final = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T00:00:00Z",
    "uri": "https://example.org",
}
OUTSIDE: Final = 999_999


def extractive(schema: Schema | None, text: str) -> str:
    """Sentences of ``text``, as one text or in the smallest instance of ``schema``."""
    sentences = _sentences(text)
    if schema is None:
        return " ".join(next(sentences) for _ in range(2))
    return orjson.dumps(_instance(schema, schema, sentences)).decode()


def reading(seen: SeenRequest) -> str:
    """Of a model that sees the pictures of a test, and keeps its schema."""
    if seen.schema is not None:
        return extractive(seen.schema, seen.text)
    if seen.images:
        return "Red."
    return "It is 7431." if seen.pdfs or "7431" in seen.text else "hello"


def _sentences(text: str) -> Iterator[str]:
    found = [one.strip() for one in _SENTENCE.findall(text) if one.strip()] or ["nothing"]
    while True:
        yield from found


def _instance(schema: Schema, root: Schema, texts: Iterator[str]) -> Any:
    if "$ref" in schema:
        return _instance(root["$defs"][schema["$ref"].rpartition("/")[2]], root, texts)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return _instance(schema["anyOf"][0], root, texts)
    kind = schema["type"]
    match kind if isinstance(kind, str) else kind[0]:
        case "object":
            properties = schema.get("properties", {})
            return {key: _instance(child, root, texts) for key, child in properties.items()}
        case "array":
            count = schema.get("minItems", 1)
            return [_instance(schema["items"], root, texts) for _ in range(count)]
        case "string":
            return _text(schema, texts)
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return False
        case _:
            return None


def _text(schema: Schema, texts: Iterator[str]) -> str:
    if "format" in schema:
        return _FORMATS.get(schema["format"], "2026-01-31")
    return next(texts)[: schema.get("maxLength", 200)]


def with_extra_key(text: str) -> str:
    return orjson.dumps({**orjson.loads(text), "unexpected": "key"}).decode()


def out_of_range(text: str) -> str:
    """The same with each number far outside."""
    return orjson.dumps(_outside(orjson.loads(text))).decode()


def _outside(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _outside(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_outside(child) for child in value]
    return OUTSIDE if isinstance(value, int) and not isinstance(value, bool) else value
