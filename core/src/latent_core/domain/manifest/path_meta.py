"""``ingest.meta_from_path``: meta from a document's path, by a pattern such as ``{year}/{quarter}/*.pdf``.

``{name}`` matches one or more characters of a part between slashes, ``*`` any number, ``**`` any number of
whole parts. Each matches as little as possible, the last one in a part the rest. A pattern with a slash is
matched from the folder's root; one without a slash is matched against the file name in any folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Self
from urllib.parse import urlsplit

from latent_core.domain.text import trouble

LONGEST_PATTERN: Final = 500
MAX_FIELDS: Final = 16
FILE: Final = "file:///"
ANY_FOLDERS: Final = "**"

_TOKEN: Final = re.compile(r"\{([^{}]*)\}|(\*+)|([^{}*]+)|([{}])")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")


@dataclass(frozen=True, slots=True)
class _PathPart:
    """One part of a pattern: literals with wildcards between them."""

    literals: tuple[str, ...]
    names: tuple[str | None, ...]
    """Names of the wildcards; None for a ``*``, which is not stored."""

    def match(self, text: str) -> dict[str, str] | None:
        """The values of the names in ``text``; None when it does not match. Linear in ``text``."""
        first, last = self.literals[0], self.literals[-1]
        if not self.names:
            return {} if text == first else None
        at, end = len(first), len(text) - len(last)
        if at > end or not text.startswith(first) or not text.endswith(last):
            return None
        taken: dict[str, str] = {}
        for name, literal in zip(self.names, (*self.literals[1:-1], None), strict=True):
            earliest = at if name is None else at + 1
            found = end if literal is None else text.find(literal, earliest, end)
            if found < earliest:
                return None
            if name is not None:
                taken[name] = text[at:found]
            at = found + len(literal or "")
        return taken


@dataclass(frozen=True, slots=True)
class PathRule:
    """A parsed pattern."""

    head: tuple[_PathPart, ...]
    """From the root on."""
    tail: tuple[_PathPart, ...] | None
    """Parts up to the file name, after any number of parts; None: the pattern is the head only."""

    @classmethod
    def of(cls, pattern: str) -> Self:
        """Parse a pattern; ``ValueError`` says what is wrong."""
        if not pattern or len(pattern) > LONGEST_PATTERN:
            raise ValueError(f"a pattern has 1 to {LONGEST_PATTERN} characters")
        wrong = trouble(pattern)
        if wrong is not None:
            raise ValueError(wrong)
        written = pattern.removeprefix("/").split("/")
        if "/" not in pattern:
            written = [ANY_FOLDERS, *written]
        if written.count(ANY_FOLDERS) > 1:
            raise ValueError("contains more than one **")
        parts = [None if part == ANY_FOLDERS else _part(part) for part in written]
        if parts[-1] is None:
            raise ValueError("ends in **; name the file too, such as **/*.md")
        _check_names([name for part in parts if part for name in part.names if name])
        cut = parts.index(None) if None in parts else len(parts)
        return cls(
            tuple(part for part in parts[:cut] if part),
            tuple(part for part in parts[cut:] if part) if cut < len(parts) else None,
        )

    def meta(self, path: str) -> dict[str, str]:
        """The values of the names in ``path``; empty when the pattern does not match."""
        texts = path.split("/")
        tail = self.tail or ()
        earliest = len(self.head) + len(tail)
        if len(texts) < earliest or (self.tail is None and len(texts) > earliest):
            return {}
        parts = (*self.head, *tail)
        ends = texts[: len(self.head)] + texts[len(texts) - len(tail) :]
        taken: dict[str, str] = {}
        for part, text in zip(parts, ends, strict=True):
            found = part.match(text)
            if found is None:
                return {}
            taken |= found
        return taken


def path_meta(pattern: str | None, uri: str) -> dict[str, str]:
    """Meta from the path of a source: the path below the folder's root, the name of a single file, or the path of an address."""
    if pattern is None:
        return {}
    path = path_of(uri)
    return _rule(pattern).meta(path) if path else {}


def path_of(uri: str) -> str:
    """Without a slash in front; empty when the uri has none."""
    if uri.startswith(FILE):
        root, slash, below = uri.removeprefix(FILE).partition("/")
        return below if slash else root
    try:
        return urlsplit(uri).path.lstrip("/")
    except ValueError:
        return ""


def check_pattern(pattern: str) -> str:
    """Return ``pattern`` if it is valid; ``ValueError`` otherwise."""
    PathRule.of(pattern)
    return pattern


@lru_cache(maxsize=256)
def _rule(pattern: str) -> PathRule:
    return PathRule.of(pattern)


def _part(written: str) -> _PathPart:
    if not written:
        raise ValueError("has an empty part between its slashes")
    literals, names = [""], list[str | None]()
    for name, star, literal in _tokens(written):
        if literal:
            literals[-1] += literal
        elif names and not literals[-1]:
            raise ValueError(f"'{written}': put a literal character between two wildcards")
        else:
            names.append(None if star else name)
            literals.append("")
    return _PathPart(tuple(literals), tuple(names))


def _tokens(written: str) -> Iterator[tuple[str, bool, str]]:
    """Yield (name, is star, literal), of which exactly one is set."""
    for found in _TOKEN.finditer(written):
        name, star, literal, stray = found.groups()
        if stray:
            raise ValueError(f"'{written}': unbalanced brace")
        if star and len(star) > 1:
            raise ValueError(f"'{written}': ** must be a whole part between slashes")
        if name is not None and not _NAME.match(name):
            raise ValueError(f"'{{{name}}}' is not a name: use letters, digits and _")
        yield name or "", bool(star), literal or ""


def _check_names(names: Sequence[str]) -> None:
    if not names:
        raise ValueError("names no field; write one as {name}, such as {city}.md")
    if len(names) > MAX_FIELDS:
        raise ValueError(f"names {len(names)} fields; the limit is {MAX_FIELDS}")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"names the field '{twice[0]}' twice")
