"""The stores and models that a search reads; built by ``Stack.search_stores``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from latent_core.bm25.exact import ExactIndex
from latent_core.bm25.phrases import PhraseIndex
from latent_core.bm25.port import KeywordIndex
from latent_core.db.connection import Database
from latent_core.models.rerank.resolve import Rerankers
from latent_core.search.embed import EmbedderLookup, QueryCache
from latent_core.vectors.port import VectorIndex


@dataclass(frozen=True, slots=True)
class SearchStores:
    db: Database
    keywords: KeywordIndex
    vectors: VectorIndex
    embedders: EmbedderLookup
    query_terms: Callable[[str, Sequence[str]], list[str]]
    exact: ExactIndex
    phrases: PhraseIndex
    rerankers: Rerankers
    queries: QueryCache
