"""Proof of the right to read a container, which searches require; and the stores of a search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NewType

from latent_core.bm25.exact import ExactIndex
from latent_core.bm25.phrases import PhraseIndex
from latent_core.bm25.port import KeywordIndex
from latent_core.db.connection import Database
from latent_core.db.containers import Container
from latent_core.models.rerank.resolve import Rerankers
from latent_core.search.channel_outages import ChannelOutages
from latent_core.search.circuit_breaker import CircuitBreakers
from latent_core.search.cosine_scales import CosineScales
from latent_core.search.embed import EmbedderLookup, QueryCache
from latent_core.vectors.port import VectorIndex

Readable = NewType("Readable", Container)
"""Only the gateway's access check (``auth/access.py``) constructs it, for the principal of a request. A worker's job
also constructs it, for the container that its principal was allowed to evaluate or refresh."""


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
    breakers: CircuitBreakers
    """Of the services that searches wait for."""
    channel_outages: ChannelOutages
    cosine_scales: CosineScales
