"""What a search reads: handed in by the composition root."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from latent_core.embedding.port import Embedder
from latent_core.keywords.analyser import query_terms
from latent_core.keywords.port import KeywordIndex
from latent_core.registry.connection import Database
from latent_core.registry.containers import Space
from latent_core.stack import Stack
from latent_core.vectors.port import VectorIndex


class Embedders(Protocol):
    """Gives the embedder of a space; ``Unavailable`` says what is missing when it is not configured."""

    def for_space(self, space: Space) -> Embedder: ...


@dataclass(frozen=True, slots=True)
class Stores:
    db: Database
    keywords: KeywordIndex
    vectors: VectorIndex
    embedders: Embedders
    query_terms: Callable[[str, Sequence[str]], list[str]]

    @classmethod
    def of(cls, stack: Stack) -> Stores:
        return cls(stack.db, stack.keywords, stack.vectors, stack.embedders, query_terms)
