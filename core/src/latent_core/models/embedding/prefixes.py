"""What stands before a text when a model that tells tasks apart is served by a server that does not.

The prefix is part of what decides a vector; it goes by the embedder's name, which is part of its space.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Prefixes:
    document: str = ""
    query: str = ""

    def put(self, texts: Sequence[str], *, query: bool) -> Sequence[str]:
        prefix = self.query if query else self.document
        return [prefix + text for text in texts] if prefix else texts


NONE: Final = Prefixes()
_NOMIC_TEXT: Final = Prefixes("search_document: ", "search_query: ")


def prefixes_of(model: str) -> Prefixes:
    """Of ``model`` as its server names it, with or without a path before it."""
    return _NOMIC_TEXT if model.rpartition("/")[2].startswith("nomic-embed-text") else NONE
