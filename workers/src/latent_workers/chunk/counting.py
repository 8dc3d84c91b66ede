"""Counting tokens fast: texts repeat their words, and most tokenizers count each word by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from latent_core.embedding.port import Tokenizer

CHARS_PER_TOKEN: Final = 16
"""Text counts as at least one token for so many characters, since some tokenizers take a word of any
length for one unknown token."""

_BATCH_CHARS: Final = 500_000
_MOST_WORDS: Final = 300_000
_PART: Final = re.compile(r"\w+|[^\w\s]+")
# Rare words, capitals, endings, punctuation and scripts that tokenizers treat differently next to a
# space than alone.
_PROBES: Final = (
    "The unforgettable zymurgist's quixotic hypothesis, re-examined: it doesn't hold (see §3.14)!",
    "Phosphatidylinositol kinases — and Schrödinger's naïve coöperation — cost $1,234.50 in 1987.",
    "def parse_http2_frames(self, *args): return [x**2 for x in self._buf[1:]]  # NB: overflow",
    "| Köln | 50°56N | ~1,084,394 |\n|---|:-:|--:|\n- [ ] https://example.org/a?b=c&d=%20#frag",
    "Быстрая лиса 日本語のテキスト、処理。 한국어 문장입니다. مرحبا بالعالم emoji 🙂🙃 done...",
    "Gorgonzola mizzled athwart xylophonic jackdaws; Wolframite\tpyx\n\n\n   outliers   HTTPSConnection",
)


class WordCounter:
    """A ``Tokenizer`` that counts each distinct word once.

    WordPiece counts a text as the sum of its words; whether the tokenizer at hand does is tried on
    samples. If not, texts are counted whole. Keep one for a process: it remembers words across
    documents, up to a bound. May be used from several threads.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._words: dict[str, int] = {}
        self._parts: dict[str, int] = {}
        self.additive = self._by_words(_PROBES) == list(tokenizer.count(_PROBES))
        """Whether a text counts as much as its words together."""

    def count(self, texts: Sequence[str]) -> list[int]:
        if not self.additive:
            return list(self._tokenizer.count(texts)) if texts else []
        return [count for batch in _batches(texts) for count in self._by_words(batch)]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        return self._tokenizer.offsets(text)

    def _by_words(self, texts: Sequence[str]) -> list[int]:
        split = [text.split() for text in texts]
        # Another thread may begin a new dictionary at any moment; this call keeps to the one it has.
        known = self._words
        unknown = [word for word in set().union(*split) if word not in known]
        if unknown:
            known.update(self._counted(unknown))
        counts = [sum(map(known.__getitem__, words)) for words in split]
        if len(known) > _MOST_WORDS:
            # The parts of source code are few, its words are many: what was costly to count is kept.
            self._words = {}
        if len(self._parts) > _MOST_WORDS:
            self._parts = {}
        return counts

    def _counted(self, words: Sequence[str]) -> Iterator[tuple[str, int]]:
        # Beyond plain ASCII, parts may count otherwise together than apart.
        split = {
            word: _PART.findall(word) if word.isascii() and word.isprintable() else [word]
            for word in words
        }
        known = self._parts
        unknown = [part for part in set().union(*split.values()) if part not in known]
        if unknown:
            known.update(zip(unknown, self._tokenizer.count(unknown), strict=True))
        for word, parts in split.items():
            yield word, sum(map(known.__getitem__, parts))


def cost_of(tokens: int, chars: int) -> int:
    """What a text of so many tokens and characters takes of a budget."""
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
