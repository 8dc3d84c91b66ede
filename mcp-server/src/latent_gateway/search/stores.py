"""What a search reads: handed in by the composition root."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from latent_core.keywords.analyser import query_terms
from latent_core.keywords.exact import ExactIndex
from latent_core.keywords.phrases import PhraseIndex
from latent_core.keywords.port import KeywordIndex
from latent_core.registry.connection import Database
from latent_core.rerank.resolve import Rerankers
from latent_core.stack import Stack
from latent_core.vectors.port import VectorIndex
from latent_gateway.search.embed import QueryCache
from latent_gateway.search.ports import Embedders


@dataclass(frozen=True, slots=True)
class Stores:
    db: Database
    keywords: KeywordIndex
    vectors: VectorIndex
    embedders: Embedders
    query_terms: Callable[[str, Sequence[str]], list[str]]
    exact: ExactIndex
    phrases: PhraseIndex
    rerankers: Rerankers
    queries: QueryCache

    @classmethod
    def of(cls, stack: Stack, queries: QueryCache) -> Stores:
        return cls(
            stack.db,
            stack.keywords,
            stack.vectors,
            stack.embedders,
            query_terms,
            ExactIndex(stack.db),
            PhraseIndex(stack.db),
            stack.rerankers,
            queries,
        )
