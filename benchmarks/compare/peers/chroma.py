"""Chroma in process, persistent: vectors by its HNSW. Its local engine ranks no words, so it has one mode."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.compare.peers.port import Rows, Vector

BATCH = 5000
"""Its limit for one call is a little higher."""


class ChromaPeer:
    def __init__(self, folder: Path) -> None:
        library = importlib.import_module("chromadb")
        settings = library.config.Settings(anonymized_telemetry=False)
        client = library.PersistentClient(path=str(folder), settings=settings)
        space = {"hnsw": {"space": "cosine"}}
        self._texts: Any = client.create_collection("texts", configuration=space)

    def ingest(self, texts: Sequence[str], vectors: Rows) -> None:
        for start in range(0, len(texts), BATCH):
            part = slice(start, start + BATCH)
            numbers = range(start, min(start + BATCH, len(texts)))
            self._texts.add(
                ids=[str(number) for number in numbers],
                documents=list(texts[part]),
                embeddings=vectors[part],
            )

    def words(self, query: str, k: int) -> list[int]:
        raise NotImplementedError

    def vectors(self, vector: Vector, k: int) -> list[int]:
        found = self._texts.query(query_embeddings=[vector], n_results=k, include=[])
        return [int(one) for one in found["ids"][0]]

    def hybrid(self, query: str, vector: Vector, k: int) -> list[int]:
        raise NotImplementedError


PEER = ChromaPeer
