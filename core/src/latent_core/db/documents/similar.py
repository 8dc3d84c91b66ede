"""What a search for similar texts reads of its source: chunks, terms, and how common the terms are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from psycopg.rows import class_row, tuple_row
from psycopg.sql import SQL

from latent_core.db.conditions import FilterCondition
from latent_core.db.connection import Connection
from latent_core.domain.generated import FIRST_POSITION
from latent_core.domain.ids import PointId, point_id

MAX_CHUNKS: Final = 5_000
"""Of the source, that are compared with candidates to recognise its copies."""
MAX_TERMS: Final = 1_000
"""Of the source, the most frequent first."""

DOCUMENT_OF: Final = """
SELECT c.doc_id
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE c.id = %(chunk_id)s AND d.deleted_at IS NULL
"""

CHUNKS: Final = f"""
SELECT c.chunk_no, c.id, c.generation, c.modality, c.content_hash, coalesce(u.original, c.chunk_no) AS original,
       coalesce(n.windows, c.windows) AS windows
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
LEFT JOIN duplicates u ON u.container_id = c.container_id AND u.chunk_no = c.chunk_no
LEFT JOIN point_counts n ON n.container_id = c.container_id AND n.chunk_no = c.chunk_no AND n.collection_id = %(collection_id)s
WHERE c.doc_id = %(doc_id)s AND d.deleted_at IS NULL AND c.position < {FIRST_POSITION}
ORDER BY c.position
LIMIT %(limit)s
"""

TERMS: Final = """
WITH frequent AS (
    SELECT t.lexeme AS term, sum(cardinality(t.positions)) AS tf
    FROM chunks c
    CROSS JOIN LATERAL unnest(c.tsv) AS t
    WHERE c.container_id = %(container_id)s AND c.chunk_no = ANY(%(chunk_nos)s::bigint[])
    GROUP BY 1
    ORDER BY 2 DESC, 1
    LIMIT %(limit)s
)
SELECT f.term, f.tf::float8,
       coalesce((SELECT sum(octet_length(p.tfs)) FROM postings p
                 WHERE p.container_id = %(container_id)s AND p.term = f.term), 0)::float8
     + coalesce((SELECT sum(octet_length(p.tfs)) FROM unmerged_postings p
                 WHERE p.container_id = %(container_id)s AND p.term = f.term), 0)::float8 AS df,
       coalesce((SELECT live_chunks FROM keyword_stats WHERE container_id = %(container_id)s), 0)::float8 AS chunks
FROM frequent f
"""

OTHERS: Final = SQL("""(c.doc_id <> %(like_doc)s AND c.content_hash <> ALL(%(like_hashes)s::text[])
    AND (c.container_id <> %(like_container)s OR c.chunk_no <> ALL(%(like_originals)s::bigint[]) AND NOT EXISTS (
        SELECT FROM duplicates u
        WHERE u.container_id = c.container_id AND u.chunk_no = c.chunk_no AND u.original = ANY(%(like_originals)s::bigint[]))))""")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceChunk:
    """A row of ``CHUNKS``."""

    chunk_no: int
    id: UUID
    generation: int
    modality: str
    content_hash: str
    original: int
    """The chunk that it repeats, else itself."""
    windows: int

    @property
    def points(self) -> list[PointId]:
        return [point_id(self.id, self.generation, window) for window in range(self.windows)]


@dataclass(frozen=True, slots=True)
class SourceTerm:
    term: str
    tf: float
    """Occurrences in the source."""
    df: float
    """Chunks of its container with the term; dead ones may be among them."""
    chunks: float
    """Live chunks of its container."""


async def document_of(conn: Connection, chunk_id: UUID) -> UUID | None:
    """The document of a visible chunk."""
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(DOCUMENT_OF, {"chunk_id": chunk_id})
        row = await cursor.fetchone()
        return row[0] if row else None


async def chunks_of(
    conn: Connection, doc_id: UUID, *, collection_id: int | None
) -> list[SourceChunk]:
    """The first visible chunks of a document, with the numbers of their points in the collection."""
    values = {"doc_id": doc_id, "collection_id": collection_id, "limit": MAX_CHUNKS}
    async with conn.cursor(row_factory=class_row(SourceChunk)) as cursor:
        await cursor.execute(CHUNKS, values)
        return await cursor.fetchall()


async def terms_of(
    conn: Connection, container_id: str, chunk_nos: Sequence[int]
) -> list[SourceTerm]:
    """The most frequent terms of these chunks."""
    values = {"container_id": container_id, "chunk_nos": list(chunk_nos), "limit": MAX_TERMS}
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(TERMS, values)
        return [SourceTerm(*row) for row in await cursor.fetchall()]


def others_than(doc_id: UUID, container_id: str, chunks: Sequence[SourceChunk]) -> FilterCondition:
    """The chunks of other documents that do not repeat one of ``chunks``, in any container."""
    originals: NDArray[np.int64] = np.unique([one.original for one in chunks]).astype(np.int64)
    values: Mapping[str, Any] = {
        "like_doc": doc_id,
        "like_container": container_id,
        "like_hashes": sorted({one.content_hash for one in chunks}),
        "like_originals": originals,
    }
    return FilterCondition(OTHERS, values)
