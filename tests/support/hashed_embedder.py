"""Vectors of texts without a model: the same words give near vectors, on every machine and in every process."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final
from zlib import crc32

import numpy as np

from latent_core.domain.vector_types import Matrix

PLACES: Final = 4
"""Dimensions that one word adds to."""
_WORD: Final = re.compile(r"\w+")
_HEAVY: Final = 8
"""Letters of a word that weighs 1; short words, which are in every text, weigh less."""
_EVERYWHERE: Final = ""
"""A word of every text, so that one without words has a vector as well."""


class HashedWords:
    """A random projection of the bag of words, by feature hashing. Quick: tens of microseconds a passage."""

    def __init__(self, dims: int) -> None:
        self.dims = dims
        self._numbers: dict[str, int] = {}
        self._columns = np.empty((0, PLACES), np.int64)
        self._weights = np.empty((0, PLACES), np.float64)

    def vectors(self, texts: Sequence[str]) -> Matrix:
        """One unit row a text."""
        words = [[_EVERYWHERE, *_WORD.findall(text.lower())] for text in texts]
        numbers = self._numbers_of(list(chain.from_iterable(words)))
        rows = np.repeat(np.arange(len(texts)), [len(own) for own in words])
        places = (rows * self.dims)[:, None] + self._columns[numbers]
        weights = self._weights[numbers]
        size = len(texts) * self.dims
        sums = np.bincount(places.ravel(), weights.ravel(), minlength=size).astype(np.float64)
        matrix = sums.reshape(len(texts), self.dims)
        matrix[:, 0] += 1e-3  # words that cancel each other leave something
        unit: Matrix = (matrix / np.linalg.norm(matrix, axis=1, keepdims=True)).astype(np.float32)
        return unit

    def _numbers_of(self, words: Sequence[str]) -> list[int]:
        known = self._numbers
        new = [word for word in dict.fromkeys(words) if word not in known]
        if new:
            known.update(zip(new, range(len(known), len(known) + len(new)), strict=True))
            columns, weights = zip(*(self._entry(word) for word in new), strict=True)
            self._columns = np.concatenate([self._columns, np.array(columns, np.int64)])
            self._weights = np.concatenate([self._weights, np.array(weights, np.float64)])
        return [known[word] for word in words]

    def _entry(self, word: str) -> tuple[list[int], list[float]]:
        hashes = list(_hashes(word))
        weight = (1 + min(len(word), _HEAVY)) / (1 + _HEAVY)
        return [h % self.dims for h in hashes], [weight if h & 1 << 31 else -weight for h in hashes]


def _hashes(word: str) -> Iterator[int]:
    """Checksums of 32 bits, spread: of like words they would be alike."""
    data = word.encode("utf-8", "surrogatepass")
    for place in range(PLACES):
        mixed = (crc32(data, place) ^ len(data)) * 0x9E3779B97F4A7C15 & (1 << 64) - 1
        yield mixed >> 32
