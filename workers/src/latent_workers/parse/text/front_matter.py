"""Front matter of Markdown: meta at the top of the file, as YAML (``---``), TOML (``+++``) or a JSON object.

Obsidian, Jekyll and Hugo write it. What cannot be read is text like any other.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from latent_core.domain.errors import Issue, IssueCode
from latent_workers.parse.text.decode import clean_value
from latent_workers.parse.text.lines import Lines

MAX_CHARS: Final = 65_536
"""Longer front matter is text."""
_EOL: Final = r"(?:\r\n|\n|\r)"
_FENCED: Final = re.compile(
    rf"\A(?:(?P<yaml>---)|\+\+\+)[ \t]*{_EOL}(?P<body>(?:.{{0,{MAX_CHARS}}}?{_EOL})??)"
    r"(?(yaml)(?:---|\.\.\.)|\+\+\+)[ \t]*(?=[\r\n]|\Z)",
    re.DOTALL,
)
_AFTER_JSON: Final = re.compile(r"[ \t]*(?=[\r\n]|\Z)")


class _Unreadable(Exception):
    """Why front matter cannot be read."""


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """Meta, the number of its lines at the top, its language, and the error if it cannot be read."""

    meta: dict[str, Any] = field(default_factory=dict)
    lines: int = 0
    language: str = "yaml"
    warnings: tuple[Issue, ...] = ()

    @property
    def is_text(self) -> bool:
        """It is not there, or it could not be read."""
        return not self.lines or bool(self.warnings)


NONE: Final = FrontMatter()


def front_matter(text: str, lines: Lines) -> FrontMatter:
    """The front matter at the top of ``text``; ``NONE`` without any."""
    if text.startswith("{"):
        return _json(text, lines)
    found = _FENCED.match(text)
    if not found:
        return NONE
    is_toml = not found["yaml"]
    language = "toml" if is_toml else "yaml"
    taken = lines.at(found.end())
    try:
        value = _toml(found["body"]) if is_toml else _yaml(found["body"])
    except _Unreadable as exc:
        return FrontMatter({}, taken, language, (_doubt(str(exc)),))
    if value is None:
        return FrontMatter({}, taken, language)
    if not isinstance(value, dict):
        return NONE
    return FrontMatter(clean_value(value), taken, language)


def _yaml(body: str) -> Any:
    try:
        # An alias may stand for more than the file could hold.
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(body)):
            raise _Unreadable("uses YAML aliases")
        return yaml.safe_load(body)
    except (
        yaml.YAMLError,
        ValueError,
        RecursionError,
        LookupError,  # a tag such as !!int on what is none: PyYAML's constructors raise what they come upon
        AttributeError,
        TypeError,
    ) as exc:
        problem = str(exc).partition("\n")[0]
        raise _Unreadable(f"is not valid YAML ({problem})") from exc


def _toml(body: str) -> dict[str, Any]:
    try:
        return tomllib.loads(body.replace("\r\n", "\n").replace("\r", "\n"))
    except (ValueError, RecursionError) as exc:
        raise _Unreadable(f"is not valid TOML ({exc})") from exc


def _json(text: str, lines: Lines) -> FrontMatter:
    """A JSON object at the top with nothing behind it in its last line. Any other text may begin with a brace."""
    try:
        value, end = json.JSONDecoder().raw_decode(text[:MAX_CHARS])
    except (ValueError, RecursionError):
        return NONE
    if not isinstance(value, dict) or not value or not _AFTER_JSON.match(text, end):
        return NONE
    return FrontMatter(clean_value(value), lines.at(end), "json")


def _doubt(problem: str) -> Issue:
    return Issue(
        code=IssueCode.INGEST_FAIL, message=f"The front matter {problem}; it is kept as text only."
    )


INDEXED: Final = (
    *("title", "subtitle", "aliases", "alias", "tags", "tag", "keywords", "categories", "category"),
    *("description", "summary", "excerpt", "author", "authors"),
    *(
        "key_topics",
        "product_tags",
        "api_symbols",
        "suggested_queries",
    ),  # of summaries that agents write
)
"""Keys whose words find the document, in any case."""
MAX_INDEXED_CHARS: Final = 2000


def indexed_fields(meta: Mapping[str, Any]) -> str:
    """The words of front matter by which its document is found, a line per value."""
    by_key = {key.lower(): value for key, value in meta.items()}
    values = dict.fromkeys(text for key in INDEXED for text in _texts(by_key.get(key)))
    return "\n".join(values)[:MAX_INDEXED_CHARS]


def _texts(value: Any) -> list[str]:
    items = value if isinstance(value, list) else [value]
    plain = [
        str(item)
        for item in items
        if isinstance(item, str | int | float) and not isinstance(item, bool)
    ]
    return [" ".join(text.split()) for text in plain if text.strip()]
