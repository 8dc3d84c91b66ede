"""Rows that repairs read and mend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from latent_core.registry.connection import Connection

# What a document is made of, its own or that of the corpus it is a record of. When nothing of it is live and nothing
# deleted it, what was live last: no other generation's, which would bring back what somebody has replaced.
ORIGINAL: Final = """
SELECT d.id, d.container_id, d.uri, d.meta, d.validators, d.given_meta, d.source_modified_at, d.source_mtime_ns,
       r.sha256, r.mime, r.filename, r.generation,
       EXISTS (SELECT 1 FROM documents c WHERE c.parent_id = d.id) AS corpus
FROM documents asked
JOIN documents d ON d.id = coalesce(asked.parent_id, asked.id)
JOIN blob_refs r ON r.doc_id = d.id AND r.role = 'original'
     AND (r.generation = d.live_generation OR d.live_generation IS NULL AND r.sha256 = d.sha256)
WHERE asked.id = %(doc_id)s AND d.deleted_at IS NULL
ORDER BY r.generation DESC
LIMIT 1
"""

CHUNKS: Final = """
SELECT c.id, c.ordinal, c.ord, c.generation, coalesce(n.windows, c.windows) AS windows, c.embed_text,
       g.image_sha256 AS picture
FROM chunks c JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
LEFT JOIN point_counts n ON n.container_id = c.container_id AND n.ord = c.ord AND n.stored_in = %(stored_in)s
LEFT JOIN pages g ON c.modality = 'image' AND g.doc_id = c.doc_id AND g.generation = c.generation AND g.page = c.page
WHERE d.id = %(doc_id)s AND d.deleted_at IS NULL AND c.ordinal > %(after)s
ORDER BY c.ordinal
LIMIT %(limit)s
"""

# Not the original: without it nothing can be drawn.
DROP_REFS: Final = """
DELETE FROM blob_refs
WHERE sha256 = %(sha256)s AND role <> 'original' AND doc_id = %(doc_id)s AND generation = %(generation)s
RETURNING role
"""

UNDRAW: Final = """
UPDATE pages SET image_sha256 = NULLIF(image_sha256, %(sha256)s), pdf_sha256 = NULLIF(pdf_sha256, %(sha256)s)
WHERE doc_id = %(doc_id)s AND generation = %(generation)s
"""

PRESENT: Final = "UPDATE blobs SET state = 'present', bytes = %(bytes)s WHERE sha256 = %(sha256)s"

DISTRUST: Final = "UPDATE blobs SET state = 'condemned' WHERE sha256 = %(sha256)s"

MARK_LIVE: Final = """
UPDATE spaces s SET state = CASE WHEN s.id = c.live_space THEN 'live' ELSE 'retired' END
FROM containers c
WHERE c.id = %(id)s AND s.container_id = c.id
  AND (s.id = c.live_space AND s.state <> 'live' OR s.id <> c.live_space AND s.state = 'live')
"""

# No further than what was given out: the next attempt may become live.
OVERTAKE: Final = """
UPDATE documents SET floor_generation = greatest(floor_generation, least(%(generation)s + 1, next_generation))
WHERE id = %(doc_id)s
"""

SEIZE: Final = "SELECT 1 FROM containers WHERE id = %(id)s AND deleted_at IS NULL FOR NO KEY UPDATE"


async def original(conn: Connection, doc_id: UUID) -> dict[str, Any] | None:
    """What the live generation was made of, or the last one that was; None when that is not known."""
    return await (await conn.execute(ORIGINAL, {"doc_id": doc_id})).fetchone()


async def live_chunks(
    conn: Connection, doc_id: UUID, after: int, limit: int, *, stored_in: int
) -> list[dict[str, Any]]:
    """Live chunks of a document as they were embedded into a collection, in order."""
    values = {"doc_id": doc_id, "after": after, "limit": limit, "stored_in": stored_in}
    return await (await conn.execute(CHUNKS, values)).fetchall()


async def drop_references(
    conn: Connection, doc_id: UUID, generation: int, sha256: str
) -> Sequence[str]:
    """Forget that a generation has this blob, but for its original; the roles it had."""
    values = {"doc_id": doc_id, "generation": generation, "sha256": sha256}
    rows = await (await conn.execute(DROP_REFS, values)).fetchall()
    if rows:
        await conn.execute(UNDRAW, values)
    return [r["role"] for r in rows]


async def mark_present(conn: Connection, sha256: str, size: int) -> None:
    """The bytes were read and are what their hash says."""
    await conn.execute(PRESENT, {"sha256": sha256, "bytes": size})


async def distrust(conn: Connection, sha256: str) -> None:
    """The bytes are gone: whoever stores them again writes them."""
    await conn.execute(DISTRUST, {"sha256": sha256})


async def mark_live(conn: Connection, container_id: str) -> None:
    """Mark the space that is searched as the live one, and no other."""
    await conn.execute(MARK_LIVE, {"id": container_id})


async def overtake(conn: Connection, doc_id: UUID, generation: int) -> None:
    """A generation that is not live never becomes so. Lock the document first."""
    await conn.execute(OVERTAKE, {"doc_id": doc_id, "generation": generation})


async def seize(conn: Connection, container_id: str) -> bool:
    """Keep publications and deletions of a container out until the transaction ends; False when it is gone."""
    return await (await conn.execute(SEIZE, {"id": container_id})).fetchone() is not None
