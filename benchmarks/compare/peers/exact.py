"""No library at all: exact vectors by numpy and counted words. It is here for tests of the harness."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.compare.peers.port import Rows, Vector, best, fused

DEPTH = 100


class ExactPeer:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._counts: list[Counter[str]] = []
        self._rows: Rows = np.empty((0, 0), np.float32)

    def ingest(self, texts: Sequence[str], vectors: Rows) -> None:
        self._counts = [Counter(re.findall(r"\w+", text.lower())) for text in texts]
        self._rows = vectors
        np.save(self._folder / "vectors.npy", vectors)

    def words(self, query: str, k: int) -> list[int]:
        terms = re.findall(r"\w+", query.lower())
        scores = np.array([sum(counts[word] for word in terms) for counts in self._counts], float)
        return [one for one in best(scores, k) if scores[one]]

    def vectors(self, vector: Vector, k: int) -> list[int]:
        return best(self._rows @ vector, k)

    def hybrid(self, query: str, vector: Vector, k: int) -> list[int]:
        return fused([self.words(query, DEPTH), self.vectors(vector, DEPTH)], k)


PEER = ExactPeer
