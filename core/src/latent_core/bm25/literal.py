"""Literal phrases: the same words in the same order, without stems.

Words are runs of letters, digits and ``_``; in scripts without spaces each character is one. Case, accents, and
punctuation and spaces between words do not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from latent_core.bm25.segment import IGNORABLE_CLASS, MARKS_CLASS, UNSPACED_CLASS, fold

_NAME: Final = r"(?:[Cc]\+\+|[CcFf]#)(?![\w+#])"
_SPACED: Final = rf"(?:(?![{UNSPACED_CLASS}])[\w{MARKS_CLASS}{IGNORABLE_CLASS}])+"
_WORD: Final = re.compile(rf"{_NAME}|[{UNSPACED_CLASS}][{MARKS_CLASS}]*|(?=\w){_SPACED}")
# The same for ASCII text, several times faster.
_ASCII_WORD: Final = re.compile(rf"{_NAME}|\w+", re.ASCII)


_SPACED_CHAR: Final = rf"[^\W{UNSPACED_CLASS}]"
_GAP: Final = rf"[^\w{MARKS_CLASS}]{{0,64}}"
"""Between two words; their bounds say that there is something."""
_UNSPACED: Final = re.compile(f"[{UNSPACED_CLASS}]")


def words(text: str) -> Iterator[re.Match[str]]:
    """The words of ``text`` in order, with their places."""
    return (_ASCII_WORD if text.isascii() else _WORD).finditer(text)


@dataclass(frozen=True)
class LiteralPhrase:
    """A phrase as it was written, and its words, folded."""

    text: str
    words: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> LiteralPhrase:
        return cls(text, tuple(fold(match.group()) for match in words(text)))

    @cached_property
    def longest(self) -> str:
        return max(self.words, key=len)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Finds the words in folded text, several times faster than to split the text into words."""
        parts = [_bounded(word) for word in self.words]
        return re.compile(_GAP.join(parts))


def _bounded(word: str) -> str:
    """``word`` as a whole; a character of a script without spaces needs no bounds."""
    if _UNSPACED.match(word):
        return f"{re.escape(word)}(?![{MARKS_CLASS}])"
    after = r"(?![\w+#])" if word.endswith(("+", "#")) else f"(?![{MARKS_CLASS}])(?!{_SPACED_CHAR})"
    return f"(?<!{_SPACED_CHAR}){re.escape(word)}{after}"


def contains(text: str, phrases: Iterable[LiteralPhrase]) -> bool:
    """Whether ``text`` contains all of ``phrases``."""
    folded = fold(text)
    return all(one.longest in folded and one.pattern.search(folded) for one in phrases)


def places(text: str, phrases: Iterable[LiteralPhrase]) -> list[tuple[int, int, str]]:
    """Where the phrases stand in ``text``: start, end, and the phrase."""
    found = [(*match.span(), fold(match.group())) for match in words(text)]
    return [
        (start, end, phrase.text) for phrase in phrases for start, end in _places(found, phrase)
    ]


def _places(found: list[tuple[int, int, str]], phrase: LiteralPhrase) -> Iterator[tuple[int, int]]:
    size = len(phrase.words)
    for at, (start, _, word) in enumerate(found):
        if (
            word == phrase.words[0]
            and tuple(w for _, _, w in found[at : at + size]) == phrase.words
        ):
            yield start, found[at + size - 1][1]
