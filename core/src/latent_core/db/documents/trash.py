"""Rows of deleted documents that can be restored: their newest bytes are kept until ``restorable_until``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from psycopg.rows import class_row

from latent_core.db.connection import Connection

COLUMNS: Final = """
SELECT id, container_id, uri, title, mime, meta, given_meta, accepted_sha256, written_by, written_at, version,
       source_modified_at, deleted_at, restorable_until
FROM documents
"""

ONE: Final = f"""{COLUMNS}
WHERE id = %(id)s AND deleted_at IS NOT NULL AND restorable_until > now() AND accepted_sha256 IS NOT NULL
FOR UPDATE
"""

# Deleted by the same deletion as their note.
VERSIONS: Final = f"""{COLUMNS}
WHERE container_id = %(container_id)s AND starts_with(uri, %(prefix)s) AND deleted_at = %(deleted_at)s
  AND restorable_until > now() AND accepted_sha256 IS NOT NULL
ORDER BY id FOR UPDATE
"""

LISTED: Final = f"""{COLUMNS}
WHERE container_id = %(container_id)s AND deleted_at IS NOT NULL AND restorable_until > now()
  AND uri !~ '^note:///.*\\?version=[0-9]+$'
  AND (%(written_by)s::text IS NULL OR written_by = %(written_by)s)
ORDER BY deleted_at DESC, id LIMIT %(limit)s
"""

EMPTY: Final = """
UPDATE documents SET restorable_until = NULL, accepted_sha256 = NULL
WHERE id = ANY(%(ids)s) AND deleted_at IS NOT NULL
RETURNING id, floor_generation
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedDocument:
    id: UUID
    container_id: str
    uri: str
    title: str | None
    mime: str
    meta: dict[str, Any]
    given_meta: str | None
    accepted_sha256: str
    written_by: str | None
    written_at: datetime
    version: int
    source_modified_at: datetime | None
    deleted_at: datetime
    restorable_until: datetime


async def one(conn: Connection, doc_id: UUID) -> DeletedDocument | None:
    """The document if it can be restored, locked."""
    async with conn.cursor(row_factory=class_row(DeletedDocument)) as cursor:
        await cursor.execute(ONE, {"id": doc_id})
        return await cursor.fetchone()


async def versions(conn: Connection, note: DeletedDocument, prefix: str) -> list[DeletedDocument]:
    """The former texts that were deleted with the note, locked."""
    values = {
        "container_id": note.container_id,
        "prefix": prefix,
        "deleted_at": note.deleted_at,
    }
    async with conn.cursor(row_factory=class_row(DeletedDocument)) as cursor:
        await cursor.execute(VERSIONS, values)
        return await cursor.fetchall()


async def listed(
    conn: Connection, container_id: str, *, written_by: str | None, limit: int
) -> list[DeletedDocument]:
    """The newest deletions; only those of one writer if named."""
    values = {"container_id": container_id, "written_by": written_by, "limit": limit}
    async with conn.cursor(row_factory=class_row(DeletedDocument)) as cursor:
        await cursor.execute(LISTED, values)
        return await cursor.fetchall()


async def empty(conn: Connection, doc_ids: list[UUID]) -> list[tuple[UUID, int]]:
    """Give up what is kept for restoring; returns each document with the generation below which all is removed."""
    rows = await (await conn.execute(EMPTY, {"ids": doc_ids})).fetchall()
    return [(row["id"], row["floor_generation"]) for row in rows]
