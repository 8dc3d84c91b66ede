"""Rows of records: documents from a JSONL corpus, one per line.

A record shares the requests of its corpus: its ``request`` is the last one that contained it. Records below
a later request, or below the corpus's deletion, are gone from the corpus.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from latent_core.db.connection import Connection
from latent_core.db.documents import documents
from latent_core.db.documents.documents import DeletionFloor, SourceInfo

ACCEPT: Final = """
INSERT INTO documents (id, container_id, uri, mime, external_id, parent_id, request)
SELECT r.id, %(container_id)s, r.uri, %(mime)s, r.external_id, %(parent_id)s, %(request)s
FROM unnest(%(ids)s::uuid[], %(uris)s::text[], %(external_ids)s::text[]) AS r (id, uri, external_id)
ORDER BY r.id
ON CONFLICT (id) DO UPDATE
SET deleted_at = NULL, restorable_until = NULL, request = greatest(documents.request, excluded.request),
    updated_at = CASE WHEN documents.deleted_at IS NULL THEN documents.updated_at ELSE now() END
WHERE documents.floor_request <= %(request)s
"""

KEEP: Final = """
UPDATE documents SET request = greatest(request, %(request)s)
WHERE id IN (SELECT id FROM documents WHERE id = ANY(%(ids)s) ORDER BY id FOR UPDATE)
  AND deleted_at IS NULL AND floor_request <= %(request)s
"""

# Only up to the given request: records of a later one may become live.
TOMBSTONE: Final = """
UPDATE documents
SET deleted_at = now(), updated_at = now(), live_generation = NULL, fingerprint = NULL, live_chunks = 0,
    sha256 = NULL, bytes = NULL, source_mtime_ns = NULL, first_fetched_at = NULL,
    floor_generation = next_generation, request = %(below)s, floor_request = greatest(floor_request, %(below)s)
WHERE id = ANY(%(ids)s) AND deleted_at IS NULL AND request < %(below)s
RETURNING id, floor_generation, floor_request
"""

VANISHED: Final = """
SELECT id FROM documents
WHERE parent_id = %(id)s AND deleted_at IS NULL AND request < %(below)s
ORDER BY id LIMIT %(limit)s
"""

CORPORA: Final = """
SELECT c.id FROM unnest(%(ids)s::uuid[]) AS c (id)
WHERE EXISTS (SELECT 1 FROM documents r WHERE r.parent_id = c.id AND r.deleted_at IS NULL)
ORDER BY c.id
"""


async def accept(
    conn: Connection, records: Sequence[SourceInfo], corpus: UUID, request: int
) -> None:
    """Insert rows for records of a corpus (one container, each id once) that ``request`` contains; newer
    deletions stay."""
    if records:
        await conn.execute(
            ACCEPT,
            {
                "container_id": records[0].container_id,
                "mime": records[0].mime,
                "parent_id": corpus,
                "request": request,
                "ids": [r.doc_id for r in records],
                "uris": [r.uri for r in records],
                "external_ids": [r.external_id for r in records],
            },
        )


async def keep(conn: Connection, doc_ids: Sequence[UUID], request: int) -> None:
    """Records that ``request`` contains but that cannot be read: their live generation stays."""
    if doc_ids:
        await conn.execute(KEEP, {"ids": sorted(doc_ids), "request": request})


async def tombstone(
    conn: Connection, doc_ids: Sequence[UUID], below: int
) -> dict[UUID, DeletionFloor]:
    """Make records invisible that no request of their corpus from ``below`` on contains. Lock them first."""
    cursor = await conn.execute(TOMBSTONE, {"ids": sorted(doc_ids), "below": below})
    return documents.floors(await cursor.fetchall())


async def vanished(conn: Connection, corpus_id: UUID, below: int, limit: int) -> list[UUID]:
    """Visible records of a corpus that no request from ``below`` on contains."""
    cursor = await conn.execute(VANISHED, {"id": corpus_id, "below": below, "limit": limit})
    return [r["id"] for r in await cursor.fetchall()]


async def corpora(conn: Connection, doc_ids: Sequence[UUID]) -> list[UUID]:
    """Those of ``doc_ids`` that have records."""
    cursor = await conn.execute(CORPORA, {"ids": list(doc_ids)})
    return [r["id"] for r in await cursor.fetchall()]
