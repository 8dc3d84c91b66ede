"""Detects the language of a text for its keywords: by a model of languages, and code by its signs."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from latent_core.bm25.language_model import SIMPLE, best_language
from latent_core.bm25.segment import fold
from latent_core.bm25.stopwords import STOP_WORDS

__all__ = ["CODE", "DEFAULT", "SIMPLE", "detect_language", "language_of_code"]

CODE: Final = "code"
"""English stems without stop words: ``if``, ``not`` and ``for`` matter in source code."""
DEFAULT: Final = "english"

CODE_WINDOW: Final = 4000
"""Characters at the start, the middle and the end that are examined for signs of code."""
LANGUAGE_WINDOW: Final = 1500
"""The same for the model of languages, which needs less and takes 0.4 ms per 1,000."""
MIN_DISTINCT: Final = 5
"""Distinct function words that must indicate the language of comments."""
MIN_SHARE: Final = 0.12
"""Share of all words that must indicate another language than English (its own texts have 0.3 to 0.5)."""
MARGIN: Final = 1.5
"""Factor by which it must exceed English."""

CODE_SIGNS: Final = "(){}[]=_;<>"
CODE_SHARE: Final = 0.04
"""Share of a text's characters, without white space, in ``CODE_SIGNS``: prose has 0.00 to 0.02, functions 0.04 to
0.16."""
CODE_LINES: Final = 3
INDENTED: Final = 4
"""At least one of this many lines of code is indented."""

MIN_LETTERS: Final = 12
"""Outside of tables, for the model of languages."""

_ROW: Final = re.compile(r"^[ \t]*\|.*$", re.MULTILINE)
_WORD: Final = re.compile(r"[^\W\d_]+")
_LATIN: Final = re.compile("[A-Za-z\u00c0-\u024f\u1e00-\u1eff]")


def _votes() -> dict[str, tuple[tuple[str, float], ...]]:
    """For each stop word the languages that it indicates; a word of several languages counts less for each.

    Single letters are too common in code and formulas to indicate another language than English.
    """
    speakers: dict[str, list[str]] = defaultdict(list)
    for language, words in STOP_WORDS.items():
        for word in sorted(set(map(fold, words))):
            if len(word) > 1 or language == DEFAULT:
                speakers[word].append(language)
    return {
        word: tuple((name, 1 / len(names)) for name in names) for word, names in speakers.items()
    }


_VOTES: Final = _votes()


def detect_language(
    text: str,
    counts: Mapping[str, int] | None = None,
    *,
    declared: str | None = None,
    prose: str | None = None,
) -> str:
    """The Snowball language of ``text``, ``code``, or ``simple`` for other languages.

    ``counts``: chunks by language of its container; they decide about texts that are too short. ``declared``: the
    language that its source declares; it counts as much as a small container. ``prose``: the part of ``text`` that is
    no code and no table. Code with comments in another language than English has that language.
    """
    if _looks_like_code(" ".join(_windows(text, CODE_WINDOW))):
        return language_of_code(text)
    sample = " ".join(_windows(_without_rows(text if prose is None else prose), LANGUAGE_WINDOW))
    known = {name: count for name, count in (counts or {}).items() if name != CODE}
    return best_language(sample, known, declared)


def language_of_code(text: str) -> str:
    """The language of the comments if they are in another one than English, otherwise ``code``.

    Names, keywords and brackets mislead a model of languages. Function words of another language do not occur in them.
    """
    sample = " ".join(_windows(text, CODE_WINDOW))
    latin = len(_LATIN.findall(sample))
    if latin * 2 < sum(map(str.isalpha, sample)):
        return best_language(sample, {})
    spoken = _by_function_words(sample)
    return CODE if spoken == DEFAULT else spoken


def _without_rows(text: str) -> str:
    """Without the rows of Markdown tables, which have names of any language; with them if little else is there."""
    rest = _ROW.sub("", text) if "|" in text else text
    return rest if sum(map(str.isalpha, rest)) >= MIN_LETTERS else text


def _windows(text: str, size: int) -> Iterator[str]:
    """The start, the middle and the end."""
    if len(text) <= 3 * size:
        yield text
        return
    for start in (0, (len(text) - size) // 2, len(text) - size):
        yield text[start : start + size]


def _by_function_words(sample: str) -> str:
    counts = Counter(map(fold, _WORD.findall(sample)))
    scores: dict[str, float] = dict.fromkeys(STOP_WORDS, 0.0)
    distinct: Counter[str] = Counter()
    for word, count in counts.items():
        for language, weight in _VOTES.get(word, ()):
            scores[language] += weight * count
            distinct[language] += 1
    best = max(scores, key=lambda name: scores[name])
    enough = distinct[best] >= MIN_DISTINCT and scores[best] >= MIN_SHARE * counts.total()
    return best if enough and scores[best] > MARGIN * scores[DEFAULT] else DEFAULT


def _looks_like_code(sample: str) -> bool:
    lines = [line for line in sample.splitlines() if line.strip()]
    if len(lines) < CODE_LINES or sum(line[0] in " \t" for line in lines) * INDENTED < len(lines):
        return False
    seen = sum(map(len, sample.split()))
    return sum(map(sample.count, CODE_SIGNS)) >= CODE_SHARE * seen
