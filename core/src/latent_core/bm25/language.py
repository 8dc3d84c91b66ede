"""Detects the language of a text for its keywords."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

from latent_core.bm25.segment import fold
from latent_core.bm25.stopwords import STOP_WORDS

SIMPLE: Final = "simple"
"""No stems, no stop words."""
CODE: Final = "code"
"""English stems without stop words: ``if``, ``not`` and ``for`` matter in source code."""
DEFAULT: Final = "english"

WINDOW_CHARACTERS: Final = 4000
"""Characters at the start, the middle and the end that are examined."""
MIN_DISTINCT: Final = 3
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

_WORD: Final = re.compile(r"[^\W\d_]+")
_LATIN: Final = re.compile("[A-Za-z\u00c0-\u024f\u1e00-\u1eff]")

# Script, its language, and letters that only other languages of the script use.
_SCRIPTS: Final = (
    (
        re.compile("[\u0400-\u052f]"),
        "russian",
        re.compile("[\u0404\u0406-\u0408\u0454\u0456-\u0458\u0490\u0491]"),
    ),
    (re.compile("[\u0370-\u03ff\u1f00-\u1fff]"), "greek", None),
    (
        re.compile("[\u0600-\u06ff\u0750-\u077f]"),
        "arabic",
        re.compile("[\u067e\u0686\u0698\u06af\u06a9\u06cc]"),
    ),
    (re.compile("[\u0900-\u097f]"), "hindi", None),
)


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


def detect_language(text: str) -> str:
    """The Snowball language of ``text``, ``code``, or ``simple``.

    Languages other than English need evidence: a short title in Latin script counts as English unless its function
    words say otherwise. Code with comments in another language has that language.
    """
    sample = " ".join(_windows(text))
    latin = len(_LATIN.findall(sample))
    letters = sum(map(str.isalpha, sample))
    if latin * 2 >= letters:
        spoken = _by_function_words(sample)
        return CODE if spoken == DEFAULT and _looks_like_code(sample) else spoken
    for script, language, foreign in _SCRIPTS:
        if len(script.findall(sample)) * 2 > letters:
            return SIMPLE if foreign is not None and foreign.search(sample) else language
    return SIMPLE


def _windows(text: str) -> Iterator[str]:
    if len(text) <= 3 * WINDOW_CHARACTERS:
        yield text
        return
    for start in (0, (len(text) - WINDOW_CHARACTERS) // 2, len(text) - WINDOW_CHARACTERS):
        yield text[start : start + WINDOW_CHARACTERS]


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
