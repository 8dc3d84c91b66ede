"""What an export reads: live documents in the order of their chunk_nos, in pages that need no long snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from latent_core.db.connection import Connection

# The first chunk of a document gives its place; chunks of the source come before generated ones. A document that is published again during the export comes later
# with higher chunk_nos; a document added since then is in the next export.
DOCUMENTS: Final = """
SELECT c.chunk_no AS first_chunk_no, d.id AS doc_id, d.live_generation AS generation, d.uri, p.uri AS parent_uri, d.external_id,
       d.mime, d.source_type, d.title, d.sha256, d.bytes, d.meta, d.live_chunks, d.language, d.fingerprint, d.recipe,
       d.given_meta, d.validators, d.source_modified_at, d.source_mtime_ns, d.first_fetched_at, d.fetched_at,
       d.created_at, d.origin, d.written_by, d.token_name, d.written_at, d.session, d.version, CASE WHEN d.superseded_at <= %(begun)s THEN d.superseded_at END AS superseded_at,
       d.expires_at, (SELECT s.uri FROM documents s WHERE s.id = d.superseded_by) AS superseded_by
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
LEFT JOIN documents p ON p.id = d.parent_id
WHERE c.container_id = %(container_id)s AND c.chunk_no > %(after)s AND d.deleted_at IS NULL
  AND (c.position = 0 OR c.generated IS NOT NULL AND NOT EXISTS (
           SELECT 1 FROM chunks f WHERE f.doc_id = c.doc_id AND f.generation = c.generation AND f.position < c.position))
  AND d.created_at <= %(begun)s
ORDER BY c.chunk_no
LIMIT %(limit)s
"""

# Corpora: their records are documents too.
WITHOUT_CHUNKS: Final = """
SELECT d.id AS doc_id, d.live_generation AS generation, d.uri, p.uri AS parent_uri, d.external_id,
       d.mime, d.source_type, d.title, d.sha256, d.bytes, d.meta, d.live_chunks, d.language, d.fingerprint, d.recipe,
       d.given_meta, d.validators, d.source_modified_at, d.source_mtime_ns, d.first_fetched_at, d.fetched_at,
       d.created_at, d.origin, d.written_by, d.token_name, d.written_at, d.session, d.version, CASE WHEN d.superseded_at <= %(begun)s THEN d.superseded_at END AS superseded_at,
       d.expires_at, (SELECT s.uri FROM documents s WHERE s.id = d.superseded_by) AS superseded_by
FROM documents d
LEFT JOIN documents p ON p.id = d.parent_id
WHERE d.container_id = %(container_id)s AND d.live_generation IS NOT NULL AND d.deleted_at IS NULL
  AND d.live_chunks = 0 AND d.created_at <= %(begun)s AND (%(after)s::uuid IS NULL OR d.id > %(after)s)
ORDER BY d.id
LIMIT %(limit)s
"""

# Mapped by a drift adapter: vectors that a refresh mapped, and those of documents ingested while the space had an
# adapter (by their lineage, even after a rollback removed it), unless a refresh has embedded them since.
CHUNKS: Final = """
SELECT c.doc_id, c.generation, c.id, c.chunk_no, c.position AS ordinal, c.modality, c.source_type, c.block_type, c.text,
       coalesce(c.embed_text, c.embed_head || c.text) AS embed_text,
       c.page, c.page_end, c.line_start, c.line_end, c.heading_path, c.key_path, c.parent_section, c.table_id,
       c.row_group, c.offset_start, c.offset_end, c.content_hash, c.token_count,
       coalesce(k.windows, c.windows) AS windows, c.tsv::text AS tsv,
       c.length, c.provenance, c.meta, c.generated, c.created_at, l.signature, l.original,
       coalesce(e.mapped, false) OR e.job_id IS NULL AND c.provenance ->> 'embedder_version' LIKE '%%+drift%%' AS mapped
FROM unnest(%(doc_ids)s::uuid[], %(generations)s::integer[]) AS w (doc_id, generation)
JOIN chunks c ON c.doc_id = w.doc_id AND c.generation = w.generation
LEFT JOIN duplicates l ON l.container_id = c.container_id AND l.chunk_no = c.chunk_no
LEFT JOIN point_counts k ON k.container_id = c.container_id AND k.chunk_no = c.chunk_no AND k.collection_id = %(collection_id)s
LEFT JOIN embedded e ON e.doc_id = c.doc_id AND e.collection_id = %(collection_id)s AND e.generation = c.generation
WHERE c.chunk_no > %(after)s
ORDER BY c.chunk_no
LIMIT %(limit)s
"""

PAGES: Final = """
SELECT p.doc_id, p.page, p.image_sha256, p.pdf_sha256, p.text, p.width, p.height, p.line_start, p.line_end, p.visual,
       CASE WHEN p.words_at IS NULL THEN p.words END AS words,
       b.bytes, CASE WHEN e.page IS NOT NULL THEN to_jsonb(e) - '{doc_id,generation,page}'::text[] END AS extraction
FROM pages p
JOIN documents d ON d.id = p.doc_id AND d.live_generation = p.generation
JOIN containers c ON c.id = d.container_id
LEFT JOIN blobs b ON b.bucket = c.bucket AND b.sha256 = p.image_sha256
LEFT JOIN page_extractions e ON e.doc_id = p.doc_id AND e.generation = p.generation AND e.page = p.page
WHERE p.doc_id = ANY(%(doc_ids)s)
ORDER BY p.doc_id, p.page
"""

REFS: Final = """
SELECT r.doc_id, r.role, r.part, r.sha256, r.mime, r.filename, b.bytes
FROM blob_refs r
JOIN documents d ON d.id = r.doc_id AND d.live_generation = r.generation
JOIN blobs b ON b.bucket = r.bucket AND b.sha256 = r.sha256
WHERE r.doc_id = ANY(%(doc_ids)s)
ORDER BY r.doc_id, r.role, r.part
"""

SUMMARIES: Final = """
SELECT s.doc_id, to_jsonb(s) - '{doc_id,generation}'::text[] AS summary
FROM summaries s JOIN documents d ON d.id = s.doc_id AND d.live_generation = s.generation
WHERE s.doc_id = ANY(%(doc_ids)s)
"""

GENERATIONS: Final = """
SELECT id, live_generation, live_chunks FROM documents WHERE id = ANY(%(doc_ids)s) AND deleted_at IS NULL
"""

LIVE_CHUNKS: Final = "SELECT live_chunks FROM keyword_stats WHERE container_id = %(container_id)s"

NOW: Final = "SELECT now() AS now"


async def now(conn: Connection) -> Any:
    """The database's clock."""
    row = await (await conn.execute(NOW)).fetchone()
    if row is None:
        raise RuntimeError("SELECT now() returned no row")
    return row["now"]


async def live_chunks(conn: Connection, container_id: str) -> int:
    """Counts, to report progress."""
    row = await (await conn.execute(LIVE_CHUNKS, {"container_id": container_id})).fetchone()
    return int(row["live_chunks"]) if row else 0


async def generations(conn: Connection, doc_ids: Sequence[UUID]) -> dict[UUID, int | None]:
    """The live generations of documents that are not deleted."""
    return {i: generation for i, (generation, _) in (await sizes(conn, doc_ids)).items()}


async def sizes(conn: Connection, doc_ids: Sequence[UUID]) -> dict[UUID, tuple[int | None, int]]:
    """The live generations of documents that are not deleted, and the number of their chunks."""
    cursor = await conn.execute(GENERATIONS, {"doc_ids": list(doc_ids)})
    return {r["id"]: (r["live_generation"], r["live_chunks"]) for r in await cursor.fetchall()}


async def summaries(conn: Connection, doc_ids: Sequence[UUID]) -> dict[UUID, dict[str, Any]]:
    """The summaries of live generations."""
    cursor = await conn.execute(SUMMARIES, {"doc_ids": list(doc_ids)})
    return {r["doc_id"]: r["summary"] for r in await cursor.fetchall()}


async def documents(
    conn: Connection, container_id: str, *, after: int, begun: Any, limit: int
) -> list[dict[str, Any]]:
    """Documents with chunks whose first chunk_no is over ``after``, in that order."""
    values = {"container_id": container_id, "after": after, "begun": begun, "limit": limit}
    return await (await conn.execute(DOCUMENTS, values)).fetchall()


async def without_chunks(
    conn: Connection, container_id: str, *, after: UUID | None, begun: Any, limit: int
) -> list[dict[str, Any]]:
    values = {"container_id": container_id, "after": after, "begun": begun, "limit": limit}
    return await (await conn.execute(WITHOUT_CHUNKS, values)).fetchall()


async def chunks(
    conn: Connection, generations: Mapping[UUID, int], collection_id: int, *, after: int, limit: int
) -> list[dict[str, Any]]:
    """Chunks of these generations of documents in the order of their chunk_nos, live or not.

    ``windows`` is the number of points of a chunk in the collection ``collection_id``; ``mapped`` marks vectors
    that were mapped from another model.
    """
    values = {
        "doc_ids": list(generations),
        "generations": list(generations.values()),
        "collection_id": collection_id,
        "after": after,
        "limit": limit,
    }
    return await (await conn.execute(CHUNKS, values)).fetchall()


async def pages(conn: Connection, doc_ids: Sequence[UUID]) -> list[dict[str, Any]]:
    return await (await conn.execute(PAGES, {"doc_ids": list(doc_ids)})).fetchall()


async def refs(conn: Connection, doc_ids: Sequence[UUID]) -> list[dict[str, Any]]:
    return await (await conn.execute(REFS, {"doc_ids": list(doc_ids)})).fetchall()
