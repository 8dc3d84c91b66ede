"""The analyser: the terms under which a text is indexed, and the terms of a query.

``analyse`` is pure: the same text and language give the same terms on every machine, for documents and queries
alike (FACTS §1). Words are folded (case, accents). Stop words are dropped but keep their position. Snowball stems
the rest. ``segment`` splits identifiers and scripts without spaces. All forms of a token count in the term
frequency and in the length.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import Stemmer

from latent_core.bm25 import literal, segment
from latent_core.bm25.language import CODE, DEFAULT, SIMPLE
from latent_core.bm25.stopwords import STOP_WORDS

MAX_POSITION: Final = 16_383
"""Postgres's limit in a tsvector: later words share this position."""
MAX_TF: Final = 255
MAX_LENGTH: Final = 65_535
MAX_VECTOR_BYTES: Final = 700_000
"""Limit of the distinct lexemes of one text: a tsvector holds 1 MB including positions."""
SMALL_TEXT: Final = 40_000
"""Characters that cannot reach ``MAX_VECTOR_BYTES``."""

NAME_COUNT: Final = 4
"""Occurrences of a name where it is defined, so that it counts in long definitions, too. The length does not include
them."""

CACHED_TOKENS: Final = 32_768
CACHED_LENGTH: Final = 64

_STOP: Final[Mapping[str, frozenset[str]]] = {
    language: frozenset(map(segment.fold, words)) for language, words in STOP_WORDS.items()
}
_LANGUAGES: Final = frozenset(Stemmer.algorithms())

Entry = tuple[int, tuple[tuple[str, int], ...]]
"""Of a token: the number of its positions, and its lexemes with their offsets."""


@dataclass(frozen=True, slots=True)
class AnalysedText:
    """The index terms of a text."""

    positions: Mapping[str, Sequence[int]]
    """Term to its positions, counted from 1, ascending, at most ``MAX_TF`` of them."""
    length: int
    """Terms counted by BM25: every occurrence of every term."""

    @property
    def tfs(self) -> dict[str, int]:
        """Term to the number of its occurrences, at most ``MAX_TF``."""
        return {term: len(places) for term, places in self.positions.items()}


@dataclass(frozen=True, slots=True)
class TokenSpan:
    """A token with its place in the text and its index terms."""

    start: int
    end: int
    terms: tuple[str, ...]


def analyse(text: str, language: str, fields: str = "", names: Sequence[str] = ()) -> AnalysedText:
    """Terms of ``text`` by the rules of ``language``: a Snowball name or ``code``; any other is ``simple``. ``fields``
    are further words of the chunk that are not in its text, ``names`` the terms of what is defined in it."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    at, length = 1, 0
    tokens = segment.tokens(text)
    for token in (*tokens, *segment.tokens(fields)) if fields else tokens:
        width, lexemes = _entry(token, language)
        for lexeme, offset in lexemes:
            found[lexeme].append(at + offset)
        at += width
        length += len(lexemes)
    for name in names:
        found[name] += range(at, at + NAME_COUNT)
        at += NAME_COUNT
    if length > MAX_TF or len(text) > SMALL_TEXT:
        return AnalysedText(_bounded(found), min(length, MAX_LENGTH))
    return AnalysedText(dict(found), length)


def spans(text: str, language: str) -> list[TokenSpan]:
    """Every indexed token with its place, for highlights and snippets."""
    return [
        TokenSpan(match.start(), match.end(), tuple(lexeme for lexeme, _ in lexemes))
        for match in segment.TOKEN.finditer(text)
        if (lexemes := _entry(match.group(), language)[1])
    ]


@dataclass(frozen=True, slots=True)
class PhraseWord:
    """A word of a phrase: its lexeme and its position, counted from 1; stop words leave gaps."""

    lexeme: str
    position: int

    @property
    def quoted(self) -> str:
        """In the syntax of a tsquery."""
        return _quoted(self.lexeme)


def placed(text: str, language: str) -> list[PhraseWord]:
    """The words of a phrase in order: the words of a compound one by one if they are indexed, so that ``on-line`` finds
    "on line"; identifiers as a whole."""
    found: list[PhraseWord] = []
    at = 1
    for token in segment.tokens(text):
        width, lexemes = _entry(token, language)
        parts = _parts(token, language)
        chosen = parts if set(parts) <= set(lexemes) else _whole(lexemes)
        found += [PhraseWord(lexeme, at + offset) for lexeme, offset in chosen]
        at += width
    return found


def _parts(token: str, language: str) -> list[tuple[str, int]]:
    """The lexemes of the words of a compound (``literal.words``), with their offsets in it."""
    found: list[tuple[str, int]] = []
    at = 0
    for word in literal.words(token):
        width, lexemes = _entry(word.group(), language)
        found += [(lexeme, at + offset) for lexeme, offset in _whole(lexemes)]
        at += width
    return found


def _whole(lexemes: tuple[tuple[str, int], ...]) -> list[tuple[str, int]]:
    if not lexemes:
        return []
    offset = lexemes[0][1]
    return [max((one for one in lexemes if one[1] == offset), key=lambda one: len(one[0]))]


def query_terms(text: str, languages: Iterable[str]) -> list[str]:
    """The terms of ``text`` in a container with documents in ``languages``, in order of appearance.

    The union over the languages; a term that one of them yields twice counts twice. Stop words are never indexed: a
    query that consists of them has no terms, and the keyword channel finds nothing.
    """
    counts: Counter[str] = Counter()
    for language in dict.fromkeys(languages):
        counts |= Counter(_sequence(text, language))
    return list(counts.elements())


def plain_terms(words: Sequence[str], language: str) -> list[str]:
    """The term of each word, which is folded and of letters only; empty for a stop word."""
    stop = _STOP.get(language, frozenset())
    return ["" if word in stop else _stem(word, language) for word in words]


@lru_cache(maxsize=64)
def unindexed(languages: frozenset[str]) -> Mapping[str, tuple[str, ...]]:
    """Terms that are indexed in some of ``languages`` and are stop words in others, each with those others."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for silent in languages & _STOP.keys():
        for other in languages - {silent}:
            for word in _STOP[silent]:
                for lexeme, _ in _entry(word, other)[1]:
                    found[lexeme].add(silent)
    return {lexeme: tuple(sorted(silent)) for lexeme, silent in found.items()}


def term_vector(analysed: AnalysedText) -> str:
    """The tsvector literal of an analysed text."""
    return " ".join(
        f"{_quoted(lexeme)}:{','.join(map(str, places))}"
        for lexeme, places in analysed.positions.items()
    )


def _sequence(text: str, language: str) -> list[str]:
    return [lexeme for token in segment.tokens(text) for lexeme, _ in _entry(token, language)[1]]


def _quoted(lexeme: str) -> str:
    if "'" in lexeme or "\\" in lexeme:
        lexeme = lexeme.replace("\\", "\\\\").replace("'", "''")
    return f"'{lexeme}'"


def _bounded(found: Mapping[str, list[int]]) -> dict[str, list[int]]:
    """Limited to what a tsvector can hold: positions, positions of a lexeme, bytes of all lexemes."""
    kept: dict[str, list[int]] = {}
    remaining = MAX_VECTOR_BYTES
    for lexeme, places in found.items():
        remaining -= len(lexeme.encode()) + 4
        if remaining < 0:
            break
        if places[-1] > MAX_POSITION:
            places = sorted({min(place, MAX_POSITION) for place in places})
        kept[lexeme] = places[:MAX_TF]
    return kept


def _entry(token: str, language: str) -> Entry:
    return (_cached if len(token) <= CACHED_LENGTH else _terms)(token, language)


def _terms(token: str, language: str) -> Entry:
    stop = _STOP.get(language, frozenset())
    if "'" in (plain := segment.fold(token).replace("\u2019", "'")) and plain in stop:
        return 1, ()
    shape = segment.shape(token)
    lexemes = (
        (_stem(form.text, language) if form.word else form.text, form.offset)
        for form in shape.forms
        if not (form.word and form.text in stop)
    )
    return shape.width, tuple(sorted(dict.fromkeys(lexemes), key=_offset))


def _offset(lexeme: tuple[str, int]) -> int:
    return lexeme[1]


_cached = lru_cache(maxsize=CACHED_TOKENS)(_terms)


class _Stemmers(threading.local):
    """Snowball's stemmers keep state, so each thread has its own."""

    def __init__(self) -> None:
        self.by_language: dict[str, Any] = {}

    def of(self, language: str) -> Any:
        found = self.by_language.get(language)
        if found is None:
            found = self.by_language[language] = Stemmer.Stemmer(language, 0)
        return found


_stemmers: Final = _Stemmers()


def _stem(word: str, language: str) -> str:
    if language == CODE:
        language = DEFAULT
    if language == SIMPLE or language not in _LANGUAGES:
        return word
    return _stemmers.of(language).stemWord(word) or word
