"""Rows of container sizes: what a container takes in each store, one measurement per day."""

from __future__ import annotations

from typing import Any, Final

from latent_core.db.connection import Connection, only_row
from latent_core.wire.container_sizes import MAX_DAYS, StoreSizes

# Large containers are measured once a day: all their rows are read.
DUE: Final = """
SELECT c.id FROM containers c
JOIN keyword_stats k ON k.container_id = c.id
LEFT JOIN LATERAL (SELECT s.measured_at FROM container_sizes s WHERE s.container_id = c.id
                   ORDER BY s.day DESC LIMIT 1) last ON true
WHERE c.deleted_at IS NULL
  AND (last.measured_at IS NULL
       OR last.measured_at < now() - CASE WHEN k.live_chunks > %(large)s THEN interval '1 day' ELSE interval '1 hour' END)
ORDER BY last.measured_at NULLS FIRST, c.id
LIMIT %(limit)s
"""

# A value out of line counts as it is stored, and is not read. 28: header of a row and its pointer.
ROWS: Final = """
WITH sizes (name, rows, bytes) AS (
    SELECT 'documents', count(*), sum(28 + pg_column_size(d.*))
    FROM documents d WHERE d.container_id = %(id)s
    UNION ALL
    SELECT 'chunks', count(*), sum(220 + pg_column_size(c.text) + pg_column_size(coalesce(c.embed_text, c.embed_head)) + pg_column_size(c.tsv)
                                   + pg_column_size(c.heading_path) + pg_column_size(c.provenance) + pg_column_size(c.meta))
    FROM chunks c WHERE c.container_id = %(id)s
    UNION ALL
    SELECT 'signatures', count(*), sum(36 + pg_column_size(s.container_id) + pg_column_size(s.bits))
    FROM signatures s WHERE s.container_id = %(id)s
    UNION ALL
    SELECT 'duplicates', count(*), sum(44 + pg_column_size(u.container_id) + pg_column_size(u.signature))
    FROM duplicates u WHERE u.container_id = %(id)s
    UNION ALL
    SELECT 'postings', count(*), sum(36 + pg_column_size(p.container_id) + pg_column_size(p.term) + pg_column_size(p.chunk_nos)
                                     + pg_column_size(p.tfs) + pg_column_size(p.lens))
    FROM postings p WHERE p.container_id = %(id)s
    UNION ALL
    SELECT 'unmerged_postings', count(*), sum(36 + pg_column_size(p.container_id) + pg_column_size(p.term)
                                              + pg_column_size(p.chunk_nos) + pg_column_size(p.tfs) + pg_column_size(p.lens))
    FROM unmerged_postings p WHERE p.container_id = %(id)s
    UNION ALL
    SELECT 'pages', count(*), sum(150 + pg_column_size(p.text))
    FROM pages p JOIN documents d ON d.id = p.doc_id WHERE d.container_id = %(id)s
    UNION ALL
    SELECT 'blob_refs', count(*), sum(28 + pg_column_size(r.*))
    FROM blob_refs r JOIN documents d ON d.id = r.doc_id WHERE d.container_id = %(id)s
    UNION ALL
    SELECT 'summaries', count(*), sum(28 + pg_column_size(s.*))
    FROM summaries s JOIN documents d ON d.id = s.doc_id WHERE d.container_id = %(id)s
    UNION ALL
    SELECT 'page_extractions', count(*), sum(28 + pg_column_size(e.*))
    FROM page_extractions e JOIN documents d ON d.id = e.doc_id WHERE d.container_id = %(id)s
    UNION ALL
    SELECT 'model_answers', count(*), sum(28 + pg_column_size(a.*))
    FROM model_answers a WHERE a.container_id = %(id)s
)
SELECT sum(s.rows)::bigint AS postgres_rows,
       coalesce(sum(s.bytes + s.rows * pg_indexes_size(t.oid) / greatest(t.reltuples, s.rows, 1)), 0)::bigint AS postgres_bytes
FROM sizes s JOIN pg_class t ON t.oid = s.name::regclass
"""

BLOBS: Final = """
SELECT count(*) FILTER (WHERE f.original) AS originals,
       coalesce(sum(b.bytes) FILTER (WHERE f.original), 0)::bigint AS original_bytes,
       count(*) FILTER (WHERE NOT f.original) AS page_files,
       coalesce(sum(b.bytes) FILTER (WHERE NOT f.original), 0)::bigint AS page_file_bytes
FROM (SELECT DISTINCT r.role = 'original' AS original, r.bucket, r.sha256
      FROM blob_refs r JOIN documents d ON d.id = r.doc_id WHERE d.container_id = %(id)s) f
JOIN blobs b ON b.bucket = f.bucket AND b.sha256 = f.sha256
"""

ARCHIVES: Final = """
SELECT count(*) AS archives, coalesce(sum(bytes), 0)::bigint AS archive_bytes
FROM archives WHERE container_id = %(id)s AND kind IN ('export', 'backup')
"""

CONTENTS: Final = """
SELECT count(*) AS documents, coalesce(sum(live_chunks), 0)::bigint AS chunks
FROM documents WHERE container_id = %(id)s AND deleted_at IS NULL AND live_generation IS NOT NULL
"""

SAVE: Final = """
INSERT INTO container_sizes (
    container_id, day, measured_at, documents, chunks, postgres_rows, postgres_bytes, vectors, vector_bytes,
    originals, original_bytes, page_files, page_file_bytes, archives, archive_bytes)
SELECT id, (now() AT TIME ZONE 'UTC')::date, now(), %(documents)s, %(chunks)s, %(postgres_rows)s, %(postgres_bytes)s,
       %(vectors)s, %(vector_bytes)s, %(originals)s, %(original_bytes)s, %(page_files)s, %(page_file_bytes)s,
       %(archives)s, %(archive_bytes)s
FROM containers WHERE id = %(id)s AND deleted_at IS NULL
ON CONFLICT (container_id, day) DO UPDATE
SET measured_at = excluded.measured_at, documents = excluded.documents, chunks = excluded.chunks,
    postgres_rows = excluded.postgres_rows, postgres_bytes = excluded.postgres_bytes,
    vectors = excluded.vectors, vector_bytes = excluded.vector_bytes,
    originals = excluded.originals, original_bytes = excluded.original_bytes,
    page_files = excluded.page_files, page_file_bytes = excluded.page_file_bytes,
    archives = excluded.archives, archive_bytes = excluded.archive_bytes
"""

FORGET: Final = (
    "DELETE FROM container_sizes WHERE day < (now() AT TIME ZONE 'UTC')::date - %(days)s::integer"
)

HISTORY: Final = """
SELECT day, measured_at, documents, chunks, postgres_rows, postgres_bytes, vectors, vector_bytes, originals, original_bytes,
       page_files, page_file_bytes, archives, archive_bytes
FROM container_sizes
WHERE container_id = %(id)s AND day > (now() AT TIME ZONE 'UTC')::date - %(days)s::integer
ORDER BY day
"""

LARGE: Final = 100_000
"""Chunks from which a container is measured once a day instead of every hour."""


async def due(conn: Connection, limit: int) -> list[str]:
    """Containers to measure now, those without a measurement first."""
    cursor = await conn.execute(DUE, {"large": LARGE, "limit": limit})
    return [row["id"] for row in await cursor.fetchall()]


async def measured(conn: Connection, container_id: str) -> dict[str, Any]:
    """All sizes but those of vectors, by the names of ``StoreSizes``. Reads all rows of the container."""
    found: dict[str, Any] = {}
    for statement in (CONTENTS, ROWS, BLOBS, ARCHIVES):
        found |= await only_row(await conn.execute(statement, {"id": container_id}))
    return found


async def save(conn: Connection, container_id: str, sizes: dict[str, Any]) -> None:
    """Store a measurement in the place of an earlier one of today; nothing if the container is deleted."""
    await conn.execute(SAVE, {"id": container_id, **sizes})


async def forget(conn: Connection) -> None:
    """Delete measurements that are older than ``MAX_DAYS``."""
    await conn.execute(FORGET, {"days": MAX_DAYS})


async def history(conn: Connection, container_id: str, days: int) -> list[StoreSizes]:
    """The measurements of the last ``days`` days, oldest first."""
    cursor = await conn.execute(HISTORY, {"id": container_id, "days": days})
    return [StoreSizes(**row) for row in await cursor.fetchall()]
