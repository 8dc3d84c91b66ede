"""Configuration without what may be a secret: only values that we write ourselves are shown."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from difflib import unified_diff
from typing import Any, Final

from latent_cli.connect.config_file import FileChange

HIDDEN: Final = '"***"'
_JSON: Final = re.compile(
    r'(?P<text>"(?:[^"\\\n]|\\.)*")(?P<key>\s*:)?|(?P<comment>//[^\n]*|/\*.*?\*/)', re.DOTALL
)
_TOML: Final = re.compile(
    r"(?P<text>\"\"\".*?\"\"\"|'''.*?'''|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*')(?P<key>\s*=)?|(?P<comment>\#[^\n]*)",
    re.DOTALL,
)


def diff_of(change: FileChange, shown: Collection[str]) -> str:
    """The lines that change, without their surroundings; every text in them but keys and ``shown`` is hidden."""
    is_toml = change.path.suffix == ".toml"
    before, after = (
        _masked((content or b"").decode("utf-8", "replace"), shown, is_toml=is_toml)
        for content in (change.before, change.after)
    )
    name = str(change.path)
    lines = unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), name, name, n=0
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def texts_in(value: Any) -> Iterator[str]:
    """All texts of a value, without keys."""
    if isinstance(value, str):
        yield value
    for one in value.values() if isinstance(value, dict) else value if _is_list(value) else ():
        yield from texts_in(one)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _masked(text: str, shown: Collection[str], *, is_toml: bool) -> str:
    def shown_or_hidden(found: re.Match[str]) -> str:
        if found["comment"] is not None:
            return "# ***" if is_toml else "/* *** */"
        if found["key"] or _plain(found["text"]) in shown:
            return found[0]
        return HIDDEN

    return (_TOML if is_toml else _JSON).sub(shown_or_hidden, text)


def _plain(text: str) -> str:
    try:
        plain = json.loads(text)
    except ValueError:  # of TOML
        return text.strip("'\"")
    return str(plain)
