"""More like this: a document, or one of its chunks, as the query.

Vectors: the mean of the source's stored vectors, where a container has the same embedding model; its text is embedded
for any other model. Words: its characteristic terms, which are frequent in it and rare in its container. The source and
its copies are no results.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import numpy as np

from latent_core.bm25.scoring import idf
from latent_core.db.conditions import FilterCondition
from latent_core.db.containers import Container, Space
from latent_core.db.documents import chunk_texts, similar
from latent_core.db.documents.similar import SourceChunk, SourceTerm
from latent_core.domain.chunk import Modality
from latent_core.domain.errors import Conflict, LatentError
from latent_core.domain.vector_types import Vector
from latent_core.search.readable import Readable, SearchStores

MAX_SAMPLED: Final = 64
"""Chunks of a long document, evenly spaced, whose vectors and terms stand for the whole."""
MAX_TERMS: Final = 25
"""Characteristic terms: more make the search slow and bring in common words."""
MAX_TEXT_CHARS: Final = 2_000
"""Of the text that other models embed."""
MIN_LENGTH: Final = 1e-6
"""A shorter mean has no direction."""


@dataclass(frozen=True, slots=True)
class LikeSource:
    """The document or chunk that results resemble."""

    doc_id: UUID
    container: Container
    vector: Vector | None
    """Of length 1, in the container's space; None if it is not stored there as its embedder made it."""
    text: str
    terms: tuple[str, ...]
    """The most characteristic ones first."""
    others: FilterCondition
    """Chunks that may be results."""

    def vector_in(self, space: Space) -> Vector | None:
        """The stored vector, if it is comparable with those of ``space``."""
        own = self.container.space
        same = (own.embedder, own.version, own.dims) == (space.embedder, space.version, space.dims)
        return self.vector if same and space.adapter is None else None

    def with_words(self, terms: Sequence[str]) -> list[str]:
        """The terms of a query and those of the source; both count about the same together."""
        times = math.ceil(len(self.terms) / len(terms)) if terms else 0
        return [*(list(terms) * max(times, 1)), *self.terms]


async def like_source(
    stores: SearchStores,
    container: Readable,
    doc_id: UUID,
    chunk_id: UUID | None,
    *,
    vector_seconds: float,
) -> LikeSource:
    """Read the source, one chunk of the document if ``chunk_id`` is given. ``Conflict`` while it has no text. If the
    vector store gives no vectors within ``vector_seconds``, the text stands for them."""
    space = container.space
    async with stores.db.reading() as conn:
        chunks = await similar.chunks_of(conn, doc_id, collection_id=space.collection_id)
        sampled = _sampled([one for one in chunks if chunk_id in (None, one.id)])
        if not sampled:
            raise Conflict(
                f"document '{doc_id}' has no searchable text yet: wait for its job",
                doc_id=str(doc_id),
            )
        chunk_nos = [one.chunk_no for one in sampled]
        terms = await similar.terms_of(conn, container.id, chunk_nos)
        texts = await chunk_texts.of_chunk_nos(conn, container.id, chunk_nos)
    return LikeSource(
        doc_id,
        container,
        await _mean(stores, space, sampled, vector_seconds),
        "\n".join(texts[no] for no in chunk_nos if no in texts)[:MAX_TEXT_CHARS],
        characteristic(terms),
        similar.others_than(doc_id, container.id, chunks),
    )


def characteristic(terms: Sequence[SourceTerm]) -> tuple[str, ...]:
    """The terms with the highest product of frequency in the source and rarity in its container."""

    def weight(one: SourceTerm) -> float:
        return one.tf * idf(max(one.chunks, one.df), one.df)

    ranked = sorted(terms, key=lambda one: (-weight(one), one.term))
    return tuple(one.term for one in ranked[:MAX_TERMS])


def _sampled(chunks: Sequence[SourceChunk]) -> list[SourceChunk]:
    """At most ``MAX_SAMPLED``, evenly spaced; texts if there are any, since pictures lie elsewhere in a space."""
    texts = [one for one in chunks if one.modality == Modality.TEXT.value] or list(chunks)
    count = min(MAX_SAMPLED, len(texts))
    return [texts[n * len(texts) // count] for n in range(count)]


async def _mean(
    stores: SearchStores, space: Space, chunks: Sequence[SourceChunk], seconds: float
) -> Vector | None:
    """The mean direction of the stored vectors."""
    if space.adapter is not None:
        return None
    points = [point for one in chunks for point in one.points]
    try:
        async with asyncio.timeout(seconds):
            vectors = await stores.vectors.vectors(space.collection(), points)
    except (
        LatentError,
        TimeoutError,
    ):  # the vector channel reports it; other containers search by the text
        return None
    mean = np.sum(list(vectors.values()), axis=0) if vectors else np.zeros(space.dims)
    length = float(np.linalg.norm(mean))
    return (mean / length).astype(np.float32) if length > MIN_LENGTH else None
