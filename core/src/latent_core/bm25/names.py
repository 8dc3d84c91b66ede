"""Names of definitions as terms, so that a query with the words of a name finds the definition before its uses
(docs/adr/0043-code-windows.md).

``=findedge`` is the term of ``findEdge``, ``find_edge`` and "find edge". The chunk in which the definition begins has
it, in addition to the words of its text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from latent_core.bm25.segment import cut, fold, shape, tokens

SIGN: Final = "="
"""Before a name. No word of a text begins with it."""
MAX_WORDS: Final = 12
"""Of a query that may be a name as a whole."""
MAX_RUN: Final = 4
"""Neighbouring words within a query that may be a name."""
MAX_SEARCHED: Final = 16
"""Words at the start of a query among which names are looked for."""


def is_name(term: str) -> bool:
    return term.startswith(SIGN)


def defined_names(meta: Mapping[str, Any]) -> list[str]:
    """The terms of the definition that begins in a chunk: its name, alone and after the name around it."""
    if meta.get("continued") or "symbol" not in meta:
        return []
    path = [*map(str, meta.get("parents", ())), str(meta["symbol"])]
    return _distinct(path[-steps:] for steps in (1, 2))


def query_names(text: str) -> list[str]:
    """The terms of the names that a query may mean: its identifiers, up to four neighbouring words, and twice all of
    its words together."""
    words = tokens(text)
    if len(words) > MAX_WORDS:
        return _distinct(_within(words[:MAX_SEARCHED]))
    whole = _distinct([words])
    return [*whole, *_distinct([words, *_within(words)])]


def _within(words: Sequence[str]) -> Iterator[Sequence[str]]:
    for first, word in enumerate(words):
        if len(shape(word).forms) > 1:
            yield [word]
        for after in range(first + 2, min(first + MAX_RUN, len(words)) + 1):
            yield words[first:after]


def _distinct(runs: Iterable[Sequence[str]]) -> list[str]:
    return list(dict.fromkeys(filter(None, map(_term, runs))))


def _term(words: Sequence[str]) -> str:
    """The term of words joined, in any case; empty without letters and digits."""
    plain = "".join(filter(str.isalnum, fold("".join(words))))
    return cut(SIGN + plain) if plain else ""
