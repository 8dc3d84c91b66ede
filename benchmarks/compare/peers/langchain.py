"""LangChain's ensemble of its BM25 retriever and FAISS, fused by its reciprocal ranks.

The BM25 retriever splits at spaces unless it is given a function; it gets one for lower case and whole words.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.compare.peers.port import Rows, Vector

DEPTH = 100
NUMBER = "number"


class LangChainPeer:
    """Vectors are given: of texts when they are ingested, of a query while it is asked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._embeddings = _given_embeddings()
        self._words: Any = None
        self._texts: Any = None
        self._ensemble: Any = None

    def ingest(self, texts: Sequence[str], vectors: Rows) -> None:
        community = importlib.import_module("langchain_community.retrievers")
        stores = importlib.import_module("langchain_community.vectorstores")
        retrievers = importlib.import_module("langchain_classic.retrievers")
        numbered = [{NUMBER: number} for number in range(len(texts))]
        self._words = community.BM25Retriever.from_texts(
            list(texts), metadatas=numbered, preprocess_func=_words_of
        )
        self._texts = stores.FAISS.from_embeddings(
            zip(texts, vectors.tolist(), strict=True), self._embeddings, metadatas=numbered
        )
        self._texts.save_local(str(self._folder))
        self._words.k = DEPTH
        by_vector = self._texts.as_retriever(search_kwargs={"k": DEPTH})
        self._ensemble = retrievers.EnsembleRetriever(
            retrievers=[self._words, by_vector], id_key=NUMBER
        )

    def words(self, query: str, k: int) -> list[int]:
        return _numbers(self._words.invoke(query), k)

    def vectors(self, vector: Vector, k: int) -> list[int]:
        return _numbers(self._texts.similarity_search_by_vector(vector.tolist(), k=k), k)

    def hybrid(self, query: str, vector: Vector, k: int) -> list[int]:
        self._embeddings.of_query[query] = vector.tolist()
        return _numbers(self._ensemble.invoke(query), k)


def _words_of(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _given_embeddings() -> Any:
    base = importlib.import_module("langchain_core.embeddings").Embeddings

    class GivenEmbeddings(base):  # type: ignore[misc,valid-type]
        def __init__(self) -> None:
            self.of_query: dict[str, list[float]] = {}

        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            raise NotImplementedError

        def embed_query(self, text: str) -> list[float]:
            return self.of_query.pop(text)

    return GivenEmbeddings()


def _numbers(found: Sequence[Any], k: int) -> list[int]:
    return [int(one.metadata[NUMBER]) for one in found[:k]]


PEER = LangChainPeer
