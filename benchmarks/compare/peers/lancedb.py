"""LanceDB in process: IVF-PQ with refinement by exact vectors, its own index of words, its own hybrid by RRF."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.compare.peers.port import Rows, Vector

REFINED = 200
"""Candidates that are scored again by exact vectors: its refine_factor times its limit."""
DEPTH = 100
"""Hits of each kind that are fused: its limit is also that of both searches, whose default is the few that are shown."""
INDEXED_FROM = 5000
"""Its documentation advises no vector index for small tables."""


class LanceDbPeer:
    def __init__(self, folder: Path) -> None:
        self._library = importlib.import_module("lancedb")
        self._arrow = importlib.import_module("pyarrow")
        self._rerankers = importlib.import_module("lancedb.rerankers")
        self._database = self._library.connect(str(folder))
        self._table: Any = None

    def ingest(self, texts: Sequence[str], vectors: Rows) -> None:
        arrow = self._arrow
        flat = arrow.array(vectors.reshape(-1), arrow.float32())
        rows = arrow.table(
            {
                "number": arrow.array(range(len(texts)), arrow.int64()),
                "text": arrow.array(list(texts)),
                "vector": arrow.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
            }
        )
        self._table = self._database.create_table("texts", rows)
        self._table.create_fts_index("text", replace=True)
        if len(texts) >= INDEXED_FROM:
            self._table.create_index(metric="cosine")

    def words(self, query: str, k: int) -> list[int]:
        found = self._table.search(query, query_type="fts").select(["number"]).limit(k)
        return _numbers(found)

    def vectors(self, vector: Vector, k: int) -> list[int]:
        found = (
            self._table.search(vector).distance_type("cosine").refine_factor(max(1, REFINED // k))
        )
        return _numbers(found.select(["number"]).limit(k))

    def hybrid(self, query: str, vector: Vector, k: int) -> list[int]:
        found = self._table.search(query_type="hybrid").vector(vector).text(query)
        depth = max(k, DEPTH)
        found = found.distance_type("cosine").refine_factor(max(1, REFINED // depth))
        found = found.select(["number"]).rerank(self._rerankers.RRFReranker())
        return _numbers(found.limit(depth))[:k]


def _numbers(found: Any) -> list[int]:
    return [int(one) for one in found.to_arrow()["number"].to_pylist()]


PEER = LanceDbPeer
