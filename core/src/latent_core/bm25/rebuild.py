"""Write a container's keyword index again, from the term vectors of its live chunks.

One transaction, so that searches see the old index or the new one. It holds the container: publications
and deletions wait for it, and are tried again when that takes longer than a lock may. A held snapshot
slows the queue, so this is for repairs only.
"""

from __future__ import annotations

from typing import Any, Final

from psycopg.rows import tuple_row

from latent_core.bm25 import postings
from latent_core.bm25.packing import ChunkTerms
from latent_core.db.connection import Connection, Database
from latent_core.db.doctor.repairs import seize

CHUNKS_PER_PAGE: Final = 2000

CHUNKS: Final = """
SELECT c.chunk_no, c.length, d.language, tsvector_to_array(c.tsv),
       ARRAY(SELECT cardinality(positions) FROM unnest(c.tsv))
FROM chunks c JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE c.container_id = %(container_id)s AND d.deleted_at IS NULL AND c.chunk_no > %(after)s
ORDER BY c.chunk_no LIMIT %(limit)s
"""

EMPTY: Final = """
INSERT INTO keyword_stats (container_id) VALUES (%(container_id)s) ON CONFLICT DO NOTHING
"""


async def rebuild(database: Database, container_id: str) -> int:
    """How many chunks the index holds now; 0 also when the container is gone."""
    total, after = 0, -1
    async with database.transaction() as conn:
        if not await seize(conn, container_id):
            return 0
        await postings.drop(conn, container_id)
        await conn.execute(EMPTY, {"container_id": container_id})
        while page := await _page(conn, container_id, after):
            await postings.write(conn, container_id, [_terms(*row) for row in page])
            after, total = page[-1][0], total + len(page)
    return total


async def _page(conn: Connection, container_id: str, after: int) -> list[Any]:
    values = {"container_id": container_id, "after": after, "limit": CHUNKS_PER_PAGE}
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(CHUNKS, values)
        return await cursor.fetchall()


def _terms(
    chunk_no: int, length: int, language: str, terms: list[str], counts: list[int]
) -> ChunkTerms:
    return ChunkTerms(chunk_no, length, dict(zip(terms, counts, strict=True)), language)
