"""Edits of TOML that add or remove one table of text and values, and leave every other byte as it is."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from latent_core.domain.agent_clients import table_lines
from latent_core.domain.errors import Invalid

_HEADER: Final = re.compile(r"\s*\[")
_PASSED: Final = re.compile(r"\s*(?:#.*)?$")

Path = Sequence[str]


def parse(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as exc:
        raise Invalid(f"it is not valid TOML: {exc}") from exc


def value_at(text: str, path: Path) -> Any:
    """The value under these keys; ``None`` if there is none."""
    value: Any = parse(text)
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def with_entry(text: str, path: Path, value: Mapping[str, Any]) -> str:
    """The text with one more table at its end."""
    expected = _with(parse(text), path, value)
    newline = "\r\n" if "\r\n" in text else "\n"
    above = text if not text or text.endswith("\n") else text + newline
    blank = newline if above.strip() else ""
    edited = above + blank + newline.join(table_lines(path, value)) + newline
    return _checked(edited, expected)


def without_entry(text: str, path: Path) -> str:
    """The text without the table and the tables in it. Comments below it stay."""
    before = parse(text)
    if value_at(text, path) is None:
        return text
    header = re.compile(r"\s*\[\s*" + r"\s*\.\s*".join(map(_name, path)) + r"\s*(?:\.[^\]]*)?\]")
    kept: list[str] = []
    table: list[str] | None = None
    for line in [*text.splitlines(keepends=True), "["]:
        if _HEADER.match(line):
            kept += _after(table or ())
            table = [] if header.match(line) else None
            if table is not None and kept and not kept[-1].strip():
                kept.pop()
        if table is None:
            kept.append(line)
        else:
            table.append(line)
    return _checked("".join(kept[:-1]), _without(before, path))


def _after(table: Sequence[str]) -> Sequence[str]:
    """The blank lines and comments at the end of a table: they belong to what follows."""
    end = len(table)
    while end and _PASSED.match(table[end - 1].rstrip("\r\n")):
        end -= 1
    return table[end:]


def _name(key: str) -> str:
    return rf"[\"']?{re.escape(key)}[\"']?"


def _with(values: dict[str, Any], path: Path, value: Mapping[str, Any]) -> dict[str, Any]:
    first, *rest = path
    inner = values.get(first, {})
    if not isinstance(inner, dict):
        raise Invalid(f"'{first}' is not a table")
    return {**values, first: _with(inner, rest, value) if rest else dict(value)}


def _without(values: dict[str, Any], path: Path) -> dict[str, Any]:
    first, *rest = path
    others = {key: value for key, value in values.items() if key != first}
    return others | {first: _without(values[first], rest)} if rest else others


def _checked(text: str, expected: dict[str, Any]) -> str:
    """``Invalid`` if a table that is written in another way would be changed."""
    try:
        found = parse(text)
    except Invalid:
        found = {}
    if _filled(found) != _filled(expected):
        raise Invalid("its tables are written in a way that cannot be edited safely")
    return text


def _filled(values: Any) -> Any:
    """Without empty tables, which a header leaves no trace of."""
    if not isinstance(values, dict):
        return values
    inner = {key: _filled(value) for key, value in values.items()}
    return {key: value for key, value in inner.items() if value != {}}
