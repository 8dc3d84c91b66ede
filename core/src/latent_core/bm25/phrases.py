"""Phrases: consecutive words as they are written (DESIGN §6).

Postings give the chunks with the stems of all words, and their term vectors those with the stems in order. Only the
texts of these are read and compared.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from psycopg.rows import tuple_row

from latent_core.bm25.analyser import PhraseWord, placed
from latent_core.bm25.literal import LiteralPhrase, contains
from latent_core.bm25.packing import unpack_chunk_nos
from latent_core.db.connection import Connection, Database
from latent_core.domain.generated import FIRST_POSITION

CANDIDATES_WITH_TERMS: Final = """
SELECT term, chunk_nos FROM postings WHERE container_id = %(container_id)s AND term = ANY(%(terms)s)
UNION ALL
SELECT term, chunk_nos FROM unmerged_postings WHERE container_id = %(container_id)s AND term = ANY(%(terms)s)
"""

# A language in which all words of the phrases are stop words has no terms: then the text alone decides.
CHUNKS_WITH_PHRASES: Final = f"""
SELECT c.chunk_no, c.text, c.meta->>'front_matter'
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE c.container_id = %(container_id)s AND c.chunk_no = ANY(%(chunk_nos)s::bigint[]) AND d.deleted_at IS NULL
  AND c.position < {FIRST_POSITION}
  AND coalesce(c.tsv @@ (SELECT phrase_query.phrase::tsquery FROM unnest(%(languages)s::text[], %(phrases)s::text[]) AS phrase_query(language, phrase)
                         WHERE phrase_query.language = d.language), true)
"""
BATCH: Final = 1000
"""Chunks whose texts are read and checked together."""


@dataclass(frozen=True, slots=True)
class Phrases:
    """The required phrases: as they are written, and their terms by language, which select the texts to read."""

    by_language: Mapping[str, tuple[tuple[PhraseWord, ...], ...]]
    literal: tuple[LiteralPhrase, ...]
    listable: bool
    """Every language has terms, so that postings give all chunks that may contain the phrases."""

    @classmethod
    def of(cls, phrases: Iterable[str], languages: Iterable[str]) -> Phrases:
        literal = tuple(one for text in phrases if (one := LiteralPhrase.of(text)).words)
        read = {
            language: tuple(
                found for one in literal if (found := tuple(placed(one.text, language)))
            )
            for language in languages
        }
        by_language = {language: found for language, found in read.items() if found}
        return cls(by_language, literal, listable=bool(read) and len(by_language) == len(read))

    def __bool__(self) -> bool:
        return bool(self.literal)

    def terms(self, language: str) -> set[str]:
        return {word.lexeme for phrase in self.by_language[language] for word in phrase}

    def parameters(self) -> dict[str, list[str]]:
        return {
            "languages": list(self.by_language),
            "phrases": [" & ".join(map(_written, found)) for found in self.by_language.values()],
        }


class PhraseIndex:
    """Over ``postings``, ``unmerged_postings`` and the chunks' term vectors."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def with_terms(self, container_id: str, phrases: Phrases) -> NDArray[np.int64]:
        """chunk_nos of all chunks with every word; they include all chunks with the phrases."""
        terms = set().union(*(phrases.terms(language) for language in phrases.by_language))
        values = {"container_id": container_id, "terms": sorted(terms)}
        held: defaultdict[str, list[bytes]] = defaultdict(list)
        async with self._database.reading() as conn:
            cursor = conn.cursor(row_factory=tuple_row, binary=True)
            await cursor.execute(CANDIDATES_WITH_TERMS, values)
            for term, chunk_nos in await cursor.fetchall():
                held[term].append(chunk_nos)
        opened = {term: unpack_chunk_nos(chunk_nos) for term, chunk_nos in held.items()}
        none = np.empty(0, np.uint32)
        each = [
            reduce(np.intersect1d, (opened.get(term, none) for term in phrases.terms(language)))
            for language in phrases.by_language
        ]
        return np.unique(np.concatenate(each)).astype(np.int64)

    async def with_phrases(
        self, container_id: str, phrases: Phrases, chunk_nos: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The visible ones among ``chunk_nos`` that contain every phrase as it is written."""
        found: list[int] = []
        async with self._database.reading() as conn:
            for start in range(0, len(chunk_nos), BATCH):
                some = chunk_nos[start : start + BATCH].tolist()
                texts = await _candidates(conn, container_id, phrases, some)
                found += await asyncio.to_thread(_containing, texts, phrases)
        return np.array(found, dtype=np.int64)


def _containing(texts: Sequence[tuple[int, str, str | None]], phrases: Phrases) -> list[int]:
    """A phrase stands in the text or in the front matter, never in both together."""
    return [
        chunk_no
        for chunk_no, text, fields in texts
        if contains(text, phrases.literal)
        or (
            fields
            and all(contains(text, [one]) or contains(fields, [one]) for one in phrases.literal)
        )
    ]


async def _candidates(
    conn: Connection, container_id: str, phrases: Phrases, chunk_nos: Sequence[int]
) -> list[tuple[int, str, str | None]]:
    values: dict[str, Any] = {
        "container_id": container_id,
        "chunk_nos": chunk_nos,
        **phrases.parameters(),
    }
    async with conn.cursor(row_factory=tuple_row, binary=True) as cursor:
        await cursor.execute(CHUNKS_WITH_PHRASES, values)
        return list(await cursor.fetchall())


def _written(phrase: Sequence[PhraseWord]) -> str:
    """A tsquery: each word with its distance from the previous one."""
    parts = [phrase[0].quoted]
    for before, word in pairwise(phrase):
        parts.append(f"<{word.position - before.position}> {word.quoted}")
    return f"({' '.join(parts)})"
