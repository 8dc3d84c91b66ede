"""bm25s for words, numpy for exact vectors, and reciprocal rank fusion: all in memory, in one process."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.compare.peers.port import Rows, Vector, best, fused

DEPTH = 100


class Bm25sPeer:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._library = importlib.import_module("bm25s")
        self._stemmer = importlib.import_module("Stemmer").Stemmer("english")
        self._rows: Rows = np.empty((0, 0), np.float32)
        self._index = self._library.BM25(k1=1.2, b=0.75)

    def ingest(self, texts: Sequence[str], vectors: Rows) -> None:
        tokens = self._library.tokenize(
            list(texts), stopwords="en", stemmer=self._stemmer, show_progress=False
        )
        self._index.index(tokens, show_progress=False)
        self._index.save(str(self._folder / "bm25s"))
        np.save(self._folder / "vectors.npy", vectors)
        self._rows = vectors

    def words(self, query: str, k: int) -> list[int]:
        tokens = self._library.tokenize(
            query, stopwords="en", stemmer=self._stemmer, show_progress=False
        )
        found, _ = self._index.retrieve(tokens, k=min(k, len(self._rows)), show_progress=False)
        return [int(one) for one in found[0]]

    def vectors(self, vector: Vector, k: int) -> list[int]:
        return best(self._rows @ vector, k)

    def hybrid(self, query: str, vector: Vector, k: int) -> list[int]:
        return fused([self.words(query, DEPTH), self.vectors(vector, DEPTH)], k)


PEER = Bm25sPeer
