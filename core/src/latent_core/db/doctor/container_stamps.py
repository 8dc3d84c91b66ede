"""Derived fields of a container that the doctor can compare with their sources."""

from __future__ import annotations

from typing import Any, Final

from latent_core.db.connection import Connection

MANIFEST: Final = "SELECT manifest, etag FROM containers WHERE id = %(id)s AND deleted_at IS NULL"

LOST_LANGUAGES: Final = """
SELECT DISTINCT d.language FROM documents d
WHERE d.container_id = %(id)s AND d.deleted_at IS NULL AND d.live_generation IS NOT NULL AND d.live_chunks > 0
  AND d.language IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM container_languages l WHERE l.container_id = d.container_id AND l.language = d.language)
ORDER BY d.language
"""

SET_DIMS: Final = """
UPDATE spaces SET dims = %(dims)s
WHERE container_id = %(id)s AND coalesce(collection_id, id) = %(collection_id)s AND dims <> %(dims)s
"""

SET_ETAG: Final = "UPDATE containers SET etag = %(etag)s WHERE id = %(id)s AND etag = %(before)s"

# Missing containers, in tokens that are still live.
DANGLING: Final = """
SELECT t.id, t.principal, t.name, array_agg(named.id ORDER BY named.id) AS gone
FROM tokens t CROSS JOIN LATERAL unnest(t.containers) AS named (id)
WHERE t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())
  AND NOT EXISTS (SELECT 1 FROM containers c WHERE c.id = named.id AND c.deleted_at IS NULL)
GROUP BY t.id
ORDER BY t.id
LIMIT %(limit)s
"""


async def manifest(conn: Connection, container_id: str) -> dict[str, Any] | None:
    """As it is stored, with its etag."""
    return await (await conn.execute(MANIFEST, {"id": container_id})).fetchone()


async def lost_languages(conn: Connection, container_id: str) -> list[str]:
    """Languages of live documents that are missing in the container's list."""
    rows = await (await conn.execute(LOST_LANGUAGES, {"id": container_id})).fetchall()
    return [row["language"] for row in rows]


async def set_dims(conn: Connection, container_id: str, collection_id: int, dims: int) -> None:
    """Of all spaces that read one collection."""
    await conn.execute(SET_DIMS, {"id": container_id, "collection_id": collection_id, "dims": dims})


async def set_etag(conn: Connection, container_id: str, before: str, etag: str) -> None:
    """Not when the manifest was changed in between."""
    await conn.execute(SET_ETAG, {"id": container_id, "before": before, "etag": etag})


async def dangling_tokens(conn: Connection, limit: int) -> list[dict[str, Any]]:
    """Live tokens that name missing containers."""
    return await (await conn.execute(DANGLING, {"limit": limit})).fetchall()
