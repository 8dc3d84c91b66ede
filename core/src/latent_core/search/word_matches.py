"""Where a text has words that match query terms, for snippets and highlights (the innermost loop of a search).

Stemming every word of every hit would cost more than the rest of a search. In ASCII text, only those words are stemmed
that contain the beginning of a term, found by plain search of strings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final

from latent_core.bm25.analyser import TokenSpan
from latent_core.bm25.language import CODE, SIMPLE
from latent_core.bm25.segment import ASCII_TOKEN, TOKEN

Spans = Callable[[str, str], Sequence[TokenSpan]]
"""Maps (text, language) to the words with their lexemes."""

TermMatch = tuple[int, int, set[str]]
"""Start, end and terms; an exact match has the term ``=pattern``."""

KEEP_BEGINNINGS: Final = frozenset({"english", CODE, SIMPLE})
"""Languages whose stems differ from the word in their last two letters at most."""
ENDING: Final = 2
"""Last letters of a term that a word may not have: ``abl`` is the term of ``ability``."""
MIN_BEGINNING: Final = 2
MAX_BEGINNING: Final = 6
"""Longer beginnings rule out no more words."""
JOINTS: Final = ".'-"
"""Words with one of these inside have terms that are no part of the text: ``on-line`` has ``onlin``."""
REMEMBERED_TOKENS: Final = 32_768
"""Cached tokens with their terms; most words of a hit occurred in earlier hits."""
REMEMBERED_CHARS: Final = 64
"""Longer tokens are rare and not cached."""


def word_matches(
    text: str, language: str, query_terms: set[str], spans: Spans
) -> Iterator[TermMatch]:
    """The words of ``text`` that match a query term, in order: start, end and terms."""
    standing: dict[str, set[str]] = {}
    for match in _candidates(text, language, query_terms):
        token = match.group()
        terms = standing.get(token)
        if terms is None:
            find = _remembered if len(token) <= REMEMBERED_CHARS else _terms
            terms = standing[token] = query_terms.intersection(find(token, language, spans))
        if terms:
            yield match.start(), match.end(), terms


def _candidates(text: str, language: str, query_terms: set[str]) -> Iterator[re.Match[str]]:
    """The tokens of ``text`` that may match a query term."""
    if not text.isascii():
        return TOKEN.finditer(text)
    if language not in KEEP_BEGINNINGS:
        return ASCII_TOKEN.finditer(text)
    return _tokens_at(text, _places(text, beginnings(frozenset(query_terms))))


@lru_cache(maxsize=64)  # all hits of a search have the same terms
def beginnings(terms: frozenset[str]) -> frozenset[str]:
    """What a word of letters begins with if one of ``terms`` is its term, in a language of ``KEEP_BEGINNINGS``."""
    found = {term[: max(MIN_BEGINNING, min(len(term) - ENDING, MAX_BEGINNING))] for term in terms}
    found |= {f"{two[0]}y" for two in found if two[1:] == "i"}  # dying: die
    return frozenset(found)


def _places(text: str, needles: frozenset[str]) -> list[int]:
    """Offsets within the tokens that may match, in order."""
    lowered = text.lower()
    found = [at for one in needles for at in _found(lowered, one) if _may_begin(text, at)]
    last = len(text) - 1
    found += [
        at
        for joint in JOINTS
        for at in _found(text, joint)
        if 0 < at < last and _in_word(text[at - 1]) and _in_word(text[at + 1])
    ]
    found.sort()
    return found


def _found(text: str, needle: str) -> Iterator[int]:
    at = text.find(needle)
    while at >= 0:
        yield at
        at = text.find(needle, at + 1)


def _may_begin(text: str, at: int) -> bool:
    """Whether a part of a token may begin here: never a small letter after a letter (``latent_core.bm25.segment``)."""
    return at == 0 or not (text[at].islower() and text[at - 1].isalpha())


def _in_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def _tokens_at(text: str, places: Sequence[int]) -> Iterator[re.Match[str]]:
    """The tokens that contain one of ``places``, each once. No token contains white space, so that looking for one may
    begin after any, as it may after a token."""
    done = 0
    for place in places:
        if place < done:
            continue
        start = max(done, text.rfind(" ", done, place) + 1, text.rfind("\n", done, place) + 1)
        for token in ASCII_TOKEN.finditer(text, start):
            if token.start() > place:
                break
            done = token.end()
            if place < done:
                yield token
                break


def _terms(token: str, language: str, spans: Spans) -> tuple[str, ...]:
    """The index terms of one token."""
    return tuple(term for span in spans(token, language) for term in span.terms)


_remembered = lru_cache(maxsize=REMEMBERED_TOKENS)(_terms)
