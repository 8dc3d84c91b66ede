"""Rows that repairs read and mend."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from latent_core.db.connection import Connection

# What a document is made of, its own or that of the corpus it is a record of. When nothing of it is live and nothing
# deleted it, what was live last: no other generation's, which would bring back what somebody has replaced.
ORIGINAL: Final = """
SELECT d.id, d.uri, d.mime, d.meta, d.given_meta, d.validators, d.source_modified_at, d.source_mtime_ns, d.fetched_at,
       r.sha256, r.mime AS blob_mime, r.filename, r.generation,
       EXISTS (SELECT 1 FROM documents c WHERE c.parent_id = d.id) AS corpus
FROM documents target
JOIN documents d ON d.id = coalesce(target.parent_id, target.id)
JOIN blob_refs r ON r.doc_id = d.id AND r.role = 'original'
     AND (r.generation = d.live_generation OR d.live_generation IS NULL AND r.sha256 = d.sha256)
WHERE target.id = %(doc_id)s AND d.deleted_at IS NULL
ORDER BY r.generation DESC
LIMIT 1
"""

PRESENT: Final = "UPDATE blobs SET state = 'present', bytes = %(bytes)s WHERE sha256 = %(sha256)s"

DISTRUST: Final = "UPDATE blobs SET state = 'condemned' WHERE sha256 = %(sha256)s"

FORGET_RECORD_FINGERPRINT: Final = """
UPDATE documents SET fingerprint = NULL WHERE id = %(doc_id)s AND parent_id IS NOT NULL
"""

# Beyond the request that is accepted next, so that the one after it may hold them again.
KEEP_RECORDS_DELETED: Final = """
UPDATE documents d SET floor_request = c.request + 2
FROM documents c
WHERE c.id = %(corpus)s AND d.id IN (
    SELECT id FROM documents WHERE parent_id = %(corpus)s AND deleted_at IS NOT NULL ORDER BY id FOR UPDATE)
  AND d.floor_request < c.request + 2
"""

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


async def mark_present(conn: Connection, sha256: str, size: int) -> None:
    """The bytes were read and are what their hash says."""
    await conn.execute(PRESENT, {"sha256": sha256, "bytes": size})


async def distrust(conn: Connection, sha256: str) -> None:
    """The bytes are gone: whoever stores them again writes them."""
    await conn.execute(DISTRUST, {"sha256": sha256})


async def forget_record_fingerprint(conn: Connection, doc_id: UUID) -> None:
    """The next run of its corpus makes a record again, whether it has changed or not. Lock it first."""
    await conn.execute(FORGET_RECORD_FINGERPRINT, {"doc_id": doc_id})


async def keep_records_deleted(conn: Connection, corpus: UUID) -> None:
    """The next request for the corpus makes no deleted record of it visible. Lock the corpus first."""
    await conn.execute(KEEP_RECORDS_DELETED, {"corpus": corpus})


async def mark_live(conn: Connection, container_id: str) -> None:
    """Mark the space that is searched as the live one, and no other."""
    await conn.execute(MARK_LIVE, {"id": container_id})


async def overtake(conn: Connection, doc_id: UUID, generation: int) -> None:
    """A generation that is not live never becomes so. Lock the document first."""
    await conn.execute(OVERTAKE, {"doc_id": doc_id, "generation": generation})


async def seize(conn: Connection, container_id: str) -> bool:
    """Keep publications and deletions of a container out until the transaction ends; False when it is gone."""
    return await (await conn.execute(SEIZE, {"id": container_id})).fetchone() is not None
