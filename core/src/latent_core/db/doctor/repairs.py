"""Rows that the repairs of doctor read and write."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from latent_core.db.connection import Connection

# The original of a document, or of the corpus that it is a record of. If it is not live and was not deleted: the
# original of the last live generation; any other would restore replaced contents.
# The newest text of a note comes first: it may be newer than the live one.
ORIGINAL: Final = """
SELECT d.id, d.uri, d.mime, d.meta, d.given_meta, d.validators, d.source_modified_at, d.source_mtime_ns, d.fetched_at,
       d.accepted_sha256 AS source_sha256, d.accepted_sha256 AS sha256, d.mime AS blob_mime, coalesce(d.title, 'note') AS filename, 0 AS generation,
       false AS corpus, true AS accepted
FROM documents d
WHERE d.id = %(doc_id)s AND d.deleted_at IS NULL AND d.accepted_sha256 IS NOT NULL
UNION ALL
SELECT d.id, d.uri, d.mime, d.meta, d.given_meta, d.validators, d.source_modified_at, d.source_mtime_ns, d.fetched_at,
       d.sha256 AS source_sha256, r.sha256, r.mime AS blob_mime, r.filename, r.generation,
       EXISTS (SELECT 1 FROM documents c WHERE c.parent_id = d.id) AS corpus, false AS accepted
FROM documents target
JOIN documents d ON d.id = coalesce(target.parent_id, target.id)
JOIN blob_refs r ON r.doc_id = d.id AND r.role = 'original'
     AND (r.generation = d.live_generation OR d.live_generation IS NULL AND r.sha256 = d.sha256)
WHERE target.id = %(doc_id)s AND d.deleted_at IS NULL
ORDER BY accepted DESC, generation DESC
LIMIT 1
"""

PRESENT: Final = """
UPDATE blobs SET state = 'present', bytes = %(bytes)s WHERE bucket = %(bucket)s AND sha256 = %(sha256)s
"""

DISTRUST: Final = """
UPDATE blobs SET state = 'condemned' WHERE bucket = %(bucket)s AND sha256 = %(sha256)s
"""

FORGET_RECORD_FINGERPRINT: Final = """
UPDATE documents SET fingerprint = NULL WHERE id = %(doc_id)s AND parent_id IS NOT NULL
"""

# Above the next accepted request, so that the request after it may contain them again.
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

# Only up to the last generation given out, so that the next attempt may become live.
OVERTAKE: Final = """
UPDATE documents SET floor_generation = greatest(floor_generation, least(%(generation)s + 1, next_generation))
WHERE id = %(doc_id)s
"""

SEIZE: Final = "SELECT 1 FROM containers WHERE id = %(id)s AND deleted_at IS NULL FOR NO KEY UPDATE"


async def original(conn: Connection, doc_id: UUID) -> dict[str, Any] | None:
    """The original of the live generation, or of the last live one; None if it is not known."""
    return await (await conn.execute(ORIGINAL, {"doc_id": doc_id})).fetchone()


async def mark_present(conn: Connection, bucket: str, sha256: str, size: int) -> None:
    """Note that the bytes were read and match their hash."""
    await conn.execute(PRESENT, {"bucket": bucket, "sha256": sha256, "bytes": size})


async def distrust(conn: Connection, bucket: str, sha256: str) -> None:
    """Note that the bytes are missing, so that the next writer stores them again."""
    await conn.execute(DISTRUST, {"bucket": bucket, "sha256": sha256})


async def forget_record_fingerprint(conn: Connection, doc_id: UUID) -> None:
    """The next run of the corpus ingests a record again even if it has not changed. Lock it first."""
    await conn.execute(FORGET_RECORD_FINGERPRINT, {"doc_id": doc_id})


async def keep_records_deleted(conn: Connection, corpus: UUID) -> None:
    """The next request for the corpus does not make its deleted records visible. Lock the corpus first."""
    await conn.execute(KEEP_RECORDS_DELETED, {"corpus": corpus})


async def mark_live(conn: Connection, container_id: str) -> None:
    """Mark only the searched space as live."""
    await conn.execute(MARK_LIVE, {"id": container_id})


async def overtake(conn: Connection, doc_id: UUID, generation: int) -> None:
    """Prevent a generation that is not live from ever becoming live. Lock the document first."""
    await conn.execute(OVERTAKE, {"doc_id": doc_id, "generation": generation})


async def seize(conn: Connection, container_id: str) -> bool:
    """Block publications and deletions of a container until the transaction ends; False when it is deleted."""
    return await (await conn.execute(SEIZE, {"id": container_id})).fetchone() is not None
