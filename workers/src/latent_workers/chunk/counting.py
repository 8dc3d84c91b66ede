"""Fast token counts: texts repeat words, and most tokenizers count each word separately."""

from __future__ import annotations

import string
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Final

from latent_core.models.embedding.port import Tokenizer

CHARS_PER_TOKEN: Final = 16
"""Text counts as at least one token per this number of characters, since some tokenizers make one unknown token of
a word of any length."""

Split = tuple[list[str], int]
"""The words of a text, and the number of its punctuation marks."""

_BATCH_CHARS: Final = 500_000
_MAX_WORDS: Final = 300_000
_WORDS_AT_ONCE: Final = 512
_MARKS: Final = string.punctuation.encode()
_APART: Final = str.maketrans(dict.fromkeys(string.punctuation, " "))
# Control characters but for white space.
_CONTROLS: Final = bytes([*range(0x09), *range(0x0E, 0x1C), 0x7F])
# Rare words, capitals, endings, every mark of ASCII, and scripts that tokenizers treat differently next to
# a space than alone.
_PROBES: Final = (
    "The unforgettable zymurgist's quixotic hypothesis, re-examined: it doesn't hold (see §3.14)!",
    "Phosphatidylinositol kinases — and Schrödinger's naïve coöperation — cost $1,234.50 in 1987.",
    "def parse_http2_frames(self, *args): return [x**2 for x in self._buf[1:]]  # NB: overflow",
    "| Köln | 50°56N | ~1,084,394 |\n|---|:-:|--:|\n- [ ] https://example.org/a?b=c&d=%20#frag",
    "Быстрая лиса 日本語のテキスト、処理。 한국어 문장입니다. مرحبا بالعالم emoji 🙂🙃 done...",
    "Gorgonzola mizzled athwart xylophonic jackdaws; Wolframite\tpyx\n\n\n   outliers   HTTPSConnection",
    "__init__ -> {'k': `v`}; a\\b <!-- c --> x^2 d@e === ### ''' !!! ??? \"quoted\" e/f~g",
    " ".join(string.punctuation),
)


class WordCounter:
    """A ``Tokenizer`` that counts each distinct word once.

    WordPiece counts a text as the sum of its words, and each ASCII mark as one token. Samples show whether a
    tokenizer does so; if not, texts are counted whole. Keep one per process: it caches words across documents, up
    to a bound. Thread-safe.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._words: dict[str, int] = {}
        self.additive = self._by_words(_PROBES) == list(tokenizer.count(_PROBES))
        """Whether the count of a text is the sum of its words."""

    def count(self, texts: Sequence[str]) -> list[int]:
        if not self.additive:
            return list(self._tokenizer.count(texts)) if texts else []
        return [count for batch in _batches(texts) for count in self._by_words(batch)]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        return self._tokenizer.offsets(text)

    def _by_words(self, texts: Sequence[str]) -> list[int]:
        # Nearly all texts are without, which is told of many together at little cost.
        controls = _has_controls("".join(texts))
        split = [_split(text, controls) for text in texts]
        # Another thread may begin a new dictionary at any moment; this call keeps to the one it has.
        known = self._words
        try:
            return _summed(split, known)
        except KeyError:  # as a rule only in the first of several looks at a text
            self._learn(split, known)
        return _summed(split, known)

    def _learn(self, split: Sequence[Split], known: dict[str, int]) -> None:
        every: set[str] = set().union(*(words for words, _ in split))
        unknown = [word for word in every if word not in known]
        for start in range(0, len(unknown), _WORDS_AT_ONCE):
            some = unknown[start : start + _WORDS_AT_ONCE]
            known.update(zip(some, self._apart(some), strict=True))
        if len(known) > _MAX_WORDS:
            self._words = {}

    def _apart(self, words: Sequence[str]) -> Iterator[int]:
        """The tokens of each word, counted in one text, because many small texts take longer."""
        starts = [start for start, _ in self._tokenizer.offsets(" ".join(words))]
        ends = accumulate((len(word) + 1 for word in words), initial=0)
        for first, after in pairwise(bisect_left(starts, end) for end in ends):
            yield after - first


def _summed(split: Sequence[Split], known: Mapping[str, int]) -> list[int]:
    return [sum(map(known.__getitem__, words)) + marks for words, marks in split]


def _split(text: str, controls: bool) -> Split:
    """The words of ``text`` without ASCII marks, and the number of these marks. Words beyond printable ASCII stay
    whole: the tokens of their parts may not add up."""
    whole: list[str] = []
    if controls or not text.isascii():
        is_plain = _is_printable if controls else str.isascii
        words = text.split()
        whole = [word for word in words if not is_plain(word)]
        text = " ".join(filter(is_plain, words))
    data = text.encode()
    return text.translate(_APART).split() + whole, len(data) - len(data.translate(None, _MARKS))


def _is_printable(word: str) -> bool:
    return word.isascii() and word.isprintable()


def _has_controls(text: str) -> bool:
    data = text.encode("utf-8", "replace")
    return len(data.translate(None, _CONTROLS)) < len(data)


def cost_of(tokens: int, chars: int) -> int:
    """The part of a budget that a text of this many tokens and characters uses."""
    return max(tokens, -(-chars // CHARS_PER_TOKEN))


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= _BATCH_CHARS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
