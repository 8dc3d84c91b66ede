"""qdrant-client with its engine in the process: dense and sparse vectors, fused by its own reciprocal ranks.

Words are sparse vectors as its documentation recommends (`Qdrant/bm25`): saturated term frequencies here, without stop
words and by the mean length of the texts, and the rarity of a word by the collection's modifier. The weights are
computed here, since its own model is loaded from a hub.
"""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

from benchmarks.compare.peers.port import Rows, Vector

TEXTS = "latent-compare"
DEPTH = 100
BATCH = 500
K1, B = 1.2, 0.75
"""The defaults of `Qdrant/bm25`."""


class QdrantPeer:
    """A client of any kind has the same methods."""

    def __init__(self, folder: Path, client: Any = None) -> None:
        library = importlib.import_module("qdrant_client")
        self._models = library.models
        self._stemmer = importlib.import_module("Stemmer").Stemmer("english")
        self._stop_words = frozenset(importlib.import_module("stop_words").get_stop_words("en"))
        self._client = library.QdrantClient(path=str(folder)) if client is None else client

    def ingest(self, texts: Sequence[str], vectors: Rows) -> float:
        models = self._models
        dense = models.VectorParams(size=vectors.shape[1], distance=models.Distance.COSINE)
        self._client.create_collection(
            TEXTS,
            vectors_config={"dense": dense},
            sparse_vectors_config={"words": models.SparseVectorParams(modifier="idf")},
        )
        counts = [self._terms(text) for text in texts]
        average = sum(one.total() for one in counts) / len(texts)
        for start in range(0, len(texts), BATCH):
            self._client.upsert(
                TEXTS,
                [
                    models.PointStruct(
                        id=number,
                        vector={
                            "dense": vectors[number].tolist(),
                            "words": self._sparse(counts[number], average),
                        },
                        payload={"text": texts[number]},
                    )
                    for number in range(start, min(start + BATCH, len(texts)))
                ],
            )
        return self._until_indexed()

    def _until_indexed(self) -> float:
        """Seconds that it waited to be sure. The engine in the process has no indexes."""
        return 0.0

    def words(self, query: str, k: int) -> list[int]:
        return self._hits(query=self._of_query(query), using="words", limit=k)

    def vectors(self, vector: Vector, k: int) -> list[int]:
        return self._hits(query=vector.tolist(), using="dense", limit=k)

    def hybrid(self, query: str, vector: Vector, k: int) -> list[int]:
        models = self._models
        prefetch = [
            models.Prefetch(query=self._of_query(query), using="words", limit=DEPTH),
            models.Prefetch(query=vector.tolist(), using="dense", limit=DEPTH),
        ]
        return self._hits(
            prefetch=prefetch, query=models.FusionQuery(fusion=models.Fusion.RRF), limit=k
        )

    def _hits(self, **query: Any) -> list[int]:
        found = self._client.query_points(TEXTS, with_payload=True, **query)
        return [int(point.id) for point in found.points]

    def _terms(self, text: str) -> Counter[int]:
        words = [one for one in re.findall(r"\w+", text.lower()) if one not in self._stop_words]
        return Counter(crc32(word.encode()) for word in self._stemmer.stemWords(words))

    def _sparse(self, counts: Counter[int], average: float) -> Any:
        norm = K1 * (1 - B + B * counts.total() / average)
        weights = [count * (K1 + 1) / (count + norm) for count in counts.values()]
        return self._models.SparseVector(indices=list(counts), values=weights)

    def _of_query(self, query: str) -> Any:
        counts = self._terms(query)
        return self._models.SparseVector(indices=list(counts), values=[1.0] * len(counts))


PEER = QdrantPeer
