"""Words at one edit from a word that no text contains: a letter more, less or another, or two neighbours exchanged."""

from __future__ import annotations

import string
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from latent_core.bm25 import segment

MIN_LETTERS: Final = 5
"""Most words of four letters are at one edit from many others."""
MAX_LETTERS: Final = 32
_GREEK: Final = "\u03b1\u03b2\u03b3\u03b4\u03b5\u03b6\u03b7\u03b8\u03b9\u03ba\u03bb\u03bc\u03bd\u03be\u03bf\u03c0\u03c1\u03c3\u03c4\u03c5\u03c6\u03c7\u03c8\u03c9"
_CYRILLIC: Final = (
    "".join(map(chr, range(0x430, 0x450)))
    + "\u0456\u0457\u0454\u0491\u0452\u0458\u0459\u045a\u045b\u045f"
)
_HEBREW: Final = "".join(map(chr, range(0x5D0, 0x5EB)))
_ARABIC: Final = "".join(map(chr, [*range(0x621, 0x63B), *range(0x641, 0x64B)]))
_ARMENIAN: Final = "".join(map(chr, range(0x561, 0x588)))
ALPHABETS: Final = (string.ascii_lowercase, _GREEK, _CYRILLIC, _HEBREW, _ARABIC, _ARMENIAN)


def plain_words(query: str) -> dict[str, str]:
    """The words of ``query`` whose spelling may be corrected: folded, each with its first form in the query.

    Names are not: identifiers, words with digits, compounds with dots or hyphens, and capitals among lower case.
    """
    shouted = query.isupper()
    found: dict[str, str] = {}
    for token in segment.tokens(query):
        word = segment.fold(token)
        is_name = token.isupper() and not shouted
        if not is_name and word.isalpha() and MIN_LETTERS <= len(word) <= MAX_LETTERS:
            forms = segment.shape(token).forms
            if len(forms) == 1 and forms[0].word:
                found.setdefault(word, token)
    return found


def one_edit(word: str) -> list[str]:
    """Every word at one edit from ``word``, each once, without ``word``: those of its length first, as most typing
    errors keep it, then the longer ones, then the shorter ones. Letters are those of its alphabet."""
    letters = next((a for a in ALPHABETS if set(word) <= set(a)), "".join(sorted(set(word))))
    return list(dict.fromkeys(one for one in _edits(word, letters) if one != word))


def _edits(word: str, letters: str) -> Iterator[str]:
    places = range(len(word))
    for at, (left, right) in enumerate(pairwise(word)):
        yield word[:at] + right + left + word[at + 2 :]
    for at in places:
        yield from (word[:at] + letter + word[at + 1 :] for letter in letters)
    for at in range(len(word) + 1):
        yield from (word[:at] + letter + word[at:] for letter in letters)
    for at in places:
        yield word[:at] + word[at + 1 :]
