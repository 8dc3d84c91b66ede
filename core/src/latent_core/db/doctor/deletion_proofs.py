"""Counts of the rows that a deletion removed: the proof that its job keeps."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from latent_core.db.connection import Connection

# A posting is one term of one chunk: the term vector holds as many lexemes.
DELETE_CHUNKS: Final = """
WITH gone AS (
    DELETE FROM chunks c
    WHERE c.doc_id = %(doc_id)s AND c.generation < %(below)s
      AND c.generation IS DISTINCT FROM (SELECT live_generation FROM documents WHERE id = %(doc_id)s)
    RETURNING length(c.tsv) AS postings
)
SELECT count(*) AS chunks, coalesce(sum(postings), 0)::bigint AS postings FROM gone
"""

DELETE_PAGES: Final = """
DELETE FROM pages p
WHERE p.doc_id = %(doc_id)s AND p.generation < %(below)s
  AND p.generation IS DISTINCT FROM (SELECT live_generation FROM documents WHERE id = %(doc_id)s)
"""

DELETE_SUMMARIES: Final = """
DELETE FROM summaries s
WHERE s.doc_id = %(doc_id)s AND s.generation < %(below)s
  AND s.generation IS DISTINCT FROM (SELECT live_generation FROM documents WHERE id = %(doc_id)s)
"""

DELETE_EXTRACTIONS: Final = """
DELETE FROM page_extractions e
WHERE e.doc_id = %(doc_id)s AND e.generation < %(below)s
  AND e.generation IS DISTINCT FROM (SELECT live_generation FROM documents WHERE id = %(doc_id)s)
"""

# Not of a replaced one: the pages that did not change need no new answer.
DELETE_ANSWERS: Final = """
DELETE FROM model_answers a
WHERE a.doc_id = %(doc_id)s AND EXISTS (SELECT 1 FROM documents d WHERE d.id = a.doc_id AND d.deleted_at IS NOT NULL)
"""

DELETE_REFS: Final = """
DELETE FROM blob_refs r
WHERE r.doc_id = %(doc_id)s AND r.generation < %(below)s
  AND r.generation IS DISTINCT FROM (SELECT live_generation FROM documents WHERE id = %(doc_id)s)
RETURNING r.bucket, r.sha256
"""

SHARED: Final = """
SELECT count(*) AS shared FROM unnest(%(buckets)s::text[], %(hashes)s::text[]) AS given (bucket, sha256)
WHERE EXISTS (SELECT 1 FROM blob_refs r WHERE r.bucket = given.bucket AND r.sha256 = given.sha256)
   OR EXISTS (SELECT 1 FROM uploads u WHERE u.bucket = given.bucket AND u.sha256 = given.sha256)
   OR EXISTS (SELECT 1 FROM upload_parts p WHERE p.bucket = given.bucket AND p.sha256 = given.sha256)
   OR EXISTS (SELECT 1 FROM documents d JOIN containers c ON c.id = d.container_id
              WHERE d.accepted_sha256 = given.sha256 AND c.bucket = given.bucket
                AND (d.deleted_at IS NULL OR d.restorable_until > now()))
"""

OF_CONTAINER: Final = """
SELECT (SELECT count(*) FROM documents WHERE container_id = %(id)s) AS documents,
       (SELECT count(*) FROM chunks c JOIN documents d ON d.id = c.doc_id WHERE d.container_id = %(id)s) AS chunks,
       (SELECT count(*) FROM pages p JOIN documents d ON d.id = p.doc_id WHERE d.container_id = %(id)s) AS pages,
       (SELECT coalesce(sum(octet_length(tfs)), 0)::bigint FROM postings WHERE container_id = %(id)s)
       + (SELECT coalesce(sum(octet_length(tfs)), 0)::bigint FROM unmerged_postings WHERE container_id = %(id)s)
           AS postings,
       (SELECT count(*) FROM blob_refs r JOIN documents d ON d.id = r.doc_id WHERE d.container_id = %(id)s)
           AS blob_refs,
       (SELECT count(*) FROM eval_runs WHERE container_id = %(id)s) AS eval_runs,
       (SELECT count(*) FROM golden_queries WHERE container_id = %(id)s) AS golden_queries,
       (SELECT count(*) FROM query_log WHERE container_id = %(id)s) AS logged_queries
"""

BLOBS_OF_CONTAINER: Final = """
SELECT count(*) AS blobs, count(*) FILTER (WHERE EXISTS (
           SELECT 1 FROM blob_refs r JOIN documents d ON d.id = r.doc_id
           WHERE r.bucket = mine.bucket AND r.sha256 = mine.sha256 AND d.container_id <> %(id)s)) AS shared
FROM (SELECT DISTINCT r.bucket, r.sha256 FROM blob_refs r JOIN documents d ON d.id = r.doc_id
      WHERE d.container_id = %(id)s) mine
"""


OF_RECORDS: Final = """
SELECT id, state, result FROM jobs
WHERE container_id = %(container_id)s AND kind = 'purge' AND payload ->> 'of' = %(of)s::text
ORDER BY id
"""


@dataclass(frozen=True, slots=True)
class DeletedRows:
    """Rows of one document's dead generations that were deleted."""

    chunks: int
    postings: int
    pages: int
    blobs: tuple[tuple[str, str], ...]
    """Bucket and hash, one per reference to a blob."""


async def delete_dead(conn: Connection, doc_id: UUID, below: int) -> DeletedRows:
    """Delete what belongs to generations < ``below`` that are not live."""
    values = {"doc_id": doc_id, "below": below}
    row = await (await conn.execute(DELETE_CHUNKS, values)).fetchone()
    pages = (await conn.execute(DELETE_PAGES, values)).rowcount
    for statement in (DELETE_SUMMARIES, DELETE_EXTRACTIONS, DELETE_ANSWERS):
        await conn.execute(statement, values)
    refs = await (await conn.execute(DELETE_REFS, values)).fetchall()
    counted = row or {"chunks": 0, "postings": 0}
    return DeletedRows(
        counted["chunks"],
        counted["postings"],
        pages,
        tuple((r["bucket"], r["sha256"]) for r in refs),
    )


async def still_referred_to(conn: Connection, blobs: Collection[tuple[str, str]]) -> int:
    """How many of these blobs, by bucket and hash, something else keeps."""
    values = {"buckets": [b for b, _ in blobs], "hashes": [h for _, h in blobs]}
    row = await (await conn.execute(SHARED, values)).fetchone()
    return int(row["shared"]) if row else 0


async def of_records(conn: Connection, container_id: str, of: int) -> list[dict[str, Any]]:
    """The purges of a deleted corpus's records: id, state and result."""
    values = {"container_id": container_id, "of": of}
    return await (await conn.execute(OF_RECORDS, values)).fetchall()


async def of_container(conn: Connection, container_id: str) -> dict[str, int]:
    """Counts of everything in a container, before its removal."""
    values = {"id": container_id}
    rows = await (await conn.execute(OF_CONTAINER, values)).fetchone() or {}
    blobs = await (await conn.execute(BLOBS_OF_CONTAINER, values)).fetchone()
    shared = int(blobs["shared"]) if blobs else 0
    released = int(blobs["blobs"]) - shared if blobs else 0
    counted = {name: int(count) for name, count in rows.items()}
    return counted | {"blobs_released": released, "blobs_kept": shared}
