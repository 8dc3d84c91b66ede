"""Synthetic text with the statistics of real text: the same seed gives the same words on every machine.

Words are drawn by a Zipf-Mandelbrot law. The frequent ones are those of the local model's own word
list, which stands in order of frequency (stop words first); the long tail is made of its words and
endings. A part of each text repeats what it has said, as texts about something do.
"""

from __future__ import annotations

import json
import string
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from latent_core.models.embedding.minilm import wheel_folder

VOCABULARY: Final = 200_000
HEAD: Final = 2.7
"""The law: the word of rank r is said in proportion to 1 / (r + HEAD)."""
REPEATED: Final = 0.2
SENTENCE_WORDS: Final = 14
PASSAGE_WORDS: Final = 140
MAX_WORDS: Final = 175
"""Of a passage: with the word pieces of the tail still one window of the local model."""
FULL_WORDS: Final = 186
"""Of a passage that fills that window, or nearly."""
SPREAD: Final = 0.3
SHORT_TERMS: Final = 3
QUESTION_WORDS: Final = 14
COMMON: Final = 200
"""Ranks that a short query does not ask for: stop words, for the most part."""

Random = np.random.Generator


@cache
def vocabulary() -> list[str]:
    """Distinct lower-case words, the most frequent first."""
    model = json.loads((wheel_folder() / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    pieces = sorted(model["vocab"], key=model["vocab"].__getitem__)
    words = [piece for piece in pieces if _is_word(piece) and len(piece) > 1]
    endings = [piece[2:] for piece in pieces if piece.startswith("##") and _is_word(piece[2:])]
    made = (f"{word}{ending}" for ending in endings[100:] for word in words[500:8000:7])
    known = dict.fromkeys(words)
    for word in made:
        if len(known) >= VOCABULARY:
            break
        known.setdefault(word)
    return list(known)


def _is_word(piece: str) -> bool:
    return all(letter in string.ascii_lowercase for letter in piece)


class PassageWriter:
    """Writes passages, one after the other."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._words = np.array(vocabulary())
        self._reach = np.cumsum(1.0 / (np.arange(len(self._words)) + HEAD))

    def passages(self, count: int) -> Iterator[str]:
        """Of many lengths, each within one window of the local model."""
        for _ in range(count):
            length = self._random.lognormal(np.log(PASSAGE_WORDS), SPREAD)
            yield self.text(int(np.clip(length, 20, MAX_WORDS)))

    def full_passages(self, count: int) -> Iterator[str]:
        """Of about as many words as one window holds."""
        for _ in range(count):
            yield self.text(FULL_WORDS)

    def text(self, words: int) -> str:
        text_words = self._words[self._ranks(words)].tolist()
        starts = range(0, words, SENTENCE_WORDS)
        sentences = (" ".join(text_words[at : at + SENTENCE_WORDS]) for at in starts)
        return " ".join(f"{sentence.capitalize()}." for sentence in sentences)

    def _ranks(self, count: int) -> NDArray[np.int64]:
        random = self._random
        ranks = np.searchsorted(self._reach, random.random(count) * self._reach[-1])
        again = np.flatnonzero(random.random(count) < REPEATED)
        ranks[again] = ranks[(again * random.random(len(again))).astype(np.int64)]
        drawn: NDArray[np.int64] = ranks.astype(np.int64)
        return drawn


def queries(texts: Sequence[str], count: int, seed: int = 11) -> list[str]:
    """Short queries (a few telling words) and questions (a stretch of a text), in turns."""
    random = np.random.default_rng(seed)
    common = frozenset(vocabulary()[:COMMON])
    questions = []
    for number in range(count):
        words = texts[int(random.integers(len(texts)))].replace(".", "").lower().split()
        if number % 2:
            start = int(random.integers(max(1, len(words) - QUESTION_WORDS)))
            questions.append(" ".join(words[start : start + QUESTION_WORDS]))
        else:
            telling = [word for word in dict.fromkeys(words) if word not in common]
            questions.append(" ".join(random.permutation(telling)[:SHORT_TERMS].tolist()))
    return questions


def write_text(path: Path, texts: Iterable[str]) -> Path:
    """A text file, a paragraph a text."""
    path.write_text("\n\n".join(texts), encoding="utf-8")
    return path


def write_jsonl(path: Path, texts: Iterable[str]) -> Path:
    """A JSONL corpus, a record a text."""
    with path.open("w", encoding="utf-8") as file:
        for number, text in enumerate(texts):
            file.write(json.dumps({"_id": str(number), "title": "", "text": text}) + "\n")
    return path
