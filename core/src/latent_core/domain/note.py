"""Notes: texts that agents and people add directly, each under a name of its writer."""

from __future__ import annotations

import hashlib
import re
from typing import Final
from urllib.parse import quote

SCHEME: Final = "note:///"
MIME: Final = "text/markdown"
MAX_TEXT_CHARS: Final = 200_000
MAX_NAME_CHARS: Final = 200
NAME_CHARS: Final = 16
"""Of a name that is derived from the text."""
_VERSION: Final = re.compile(r"\?version=\d+\Z")
_HEADING: Final = re.compile(r"\s{0,3}#{1,6}\s")


def note_uri(principal: str, name: str) -> str:
    """The source uri of the note; two writers never share one."""
    return f"{SCHEME}{quote(principal, safe=':@')}/{quote(name, safe='')}"


def name_of(text: str) -> str:
    """The name of a note without one: its content decides, so that a repeated call adds no second note."""
    return hashlib.sha256(text.encode()).hexdigest()[:NAME_CHARS]


def version_uri(uri: str, version: int) -> str:
    """The uri under which a former text of the note is kept."""
    return f"{uri}?version={version}"


def versions_prefix(uri: str) -> str:
    """Uris of all former texts of the note begin with it."""
    return f"{uri}?version="


def is_note(uri: str) -> bool:
    return uri.startswith(SCHEME)


def is_version(uri: str) -> bool:
    """Whether it is the uri of a former text."""
    return is_note(uri) and _VERSION.search(uri) is not None


def markdown(title: str | None, text: str) -> str:
    """The stored text: with its title as heading, unless it begins with a heading."""
    if title is None or _HEADING.match(text):
        return text
    return f"# {title}\n\n{text}"
