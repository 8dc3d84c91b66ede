"""txtai: BM25 and FAISS, fused by its own weighted scores (`hybrid=True`), vectors given by an external transform."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compare.peers.port import Rows, Vector


class TxtaiPeer:
    """Vectors are given: of texts when they are ingested, in their order, of a query while it is asked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._given: Iterator[Vector] = iter(())
        self._of_query: dict[str, Vector] = {}
        self._index: Any = importlib.import_module("txtai").Embeddings(
            method="external", transform=lambda texts: self._vectors_of(texts), hybrid=True
        )

    def _vectors_of(self, texts: Sequence[str]) -> Rows:
        queries = self._of_query
        return np.stack(
            [queries.pop(one) if one in queries else next(self._given) for one in texts]
        )

    def ingest(self, texts: Sequence[str], vectors: Rows) -> None:
        self._given = iter(vectors)
        self._index.index((number, text, None) for number, text in enumerate(texts))
        self._index.save(str(self._folder))

    def words(self, query: str, k: int) -> list[int]:
        return _numbers(self._index.scoring.search(query, k))

    def vectors(self, vector: Vector, k: int) -> list[int]:
        return _numbers(self._index.ann.search(vector[None], k)[0])

    def hybrid(self, query: str, vector: Vector, k: int) -> list[int]:
        self._of_query[query] = vector
        return _numbers(self._index.search(query, k))


def _numbers(found: Sequence[tuple[int, float]]) -> list[int]:
    return [int(number) for number, _ in found]


PEER = TxtaiPeer
