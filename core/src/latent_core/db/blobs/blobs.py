"""Rows of blobs: the intent before the bytes, the presence after them, and the garbage."""

from __future__ import annotations

from typing import Final

from latent_core.db.connection import Connection

# The lock on the row makes a writer wait for a running removal of the same blob; a present blob is only touched.
INTEND: Final = """
INSERT INTO blobs (bucket, sha256, bytes, state) VALUES (%(bucket)s, %(sha256)s, %(bytes)s, 'intent')
ON CONFLICT (bucket, sha256) DO UPDATE
SET touched_at = now(), state = CASE WHEN blobs.state = 'condemned' THEN 'intent' ELSE blobs.state END
RETURNING state
"""

# A blob that was condemned in between may have lost its bytes already.
CONFIRM: Final = """
UPDATE blobs SET state = 'present', touched_at = now()
WHERE bucket = %(bucket)s AND sha256 = %(sha256)s AND state IN ('intent', 'present')
"""

ADOPT: Final = """
INSERT INTO blobs (bucket, sha256, bytes, state) VALUES (%(bucket)s, %(sha256)s, %(bytes)s, 'condemned')
ON CONFLICT (bucket, sha256) DO NOTHING
"""


async def intend(conn: Connection, bucket: str, sha256: str, size: int) -> bool:
    """Note that bytes are about to be stored; True when they are there already."""
    cursor = await conn.execute(INTEND, {"bucket": bucket, "sha256": sha256, "bytes": size})
    row = await cursor.fetchone()
    return row is not None and row["state"] == "present"


async def confirm(conn: Connection, bucket: str, sha256: str) -> bool:
    """Note that the bytes are stored; False when the row is gone or condemned."""
    return (await conn.execute(CONFIRM, {"bucket": bucket, "sha256": sha256})).rowcount == 1


async def adopt(conn: Connection, bucket: str, sha256: str, size: int) -> None:
    """Add rows for bytes that have none, so that the garbage collection removes them if they stay unused."""
    await conn.execute(ADOPT, {"bucket": bucket, "sha256": sha256, "bytes": size})


# An upload is spent when it is old and no job that could still run (failed and cancelled ones may be
# requeued as long as they are kept) names its bytes.
DROP_SPENT_UPLOADS: Final = """
DELETE FROM uploads u
WHERE u.created_at < now() - make_interval(secs => %(older)s)
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.container_id = u.container_id
                  AND j.state IN ('queued', 'running', 'failed', 'cancelled') AND j.kind IN ('ingest', 'corpus')
                  AND j.payload ->> 'sha256' = u.sha256)
  AND (EXISTS (SELECT 1 FROM jobs j WHERE j.container_id = u.container_id
               AND u.sha256 IN (j.payload ->> 'sha256', j.payload ->> 'source_sha256'))
       OR u.created_at < now() - interval '1 day')
"""

# Blobs of an import get their references at the commit of a step, pages of an ingest at publication:
# until then, blobs touched since the job began stay.
UNREFERENCED: Final = """
SELECT b.sha256 FROM blobs b
WHERE b.bucket = %(bucket)s AND b.touched_at < now() - make_interval(secs => %(older)s)
  AND NOT EXISTS (SELECT 1 FROM blob_refs r WHERE r.bucket = b.bucket AND r.sha256 = b.sha256)
  AND NOT EXISTS (SELECT 1 FROM uploads u WHERE u.bucket = b.bucket AND u.sha256 = b.sha256)
  AND NOT EXISTS (SELECT 1 FROM upload_parts p WHERE p.bucket = b.bucket AND p.sha256 = b.sha256)
  AND NOT EXISTS (SELECT 1 FROM archives a WHERE a.bucket = b.bucket AND a.sha256 = b.sha256)
  AND NOT EXISTS (SELECT 1 FROM documents d JOIN containers c ON c.id = d.container_id
                  WHERE d.accepted_sha256 = b.sha256 AND c.bucket = b.bucket
                    AND (d.deleted_at IS NULL OR d.restorable_until > now()))
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.state IN ('queued', 'running', 'failed', 'cancelled')
                  AND j.kind IN ('ingest', 'corpus') AND j.payload ->> 'sha256' = b.sha256)
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.state = 'running' AND j.kind IN ('import', 'ingest')
                  AND j.started_at <= b.touched_at)
ORDER BY b.sha256
LIMIT %(limit)s
"""

LOCK_UNREFERENCED: Final = """
SELECT b.sha256 FROM blobs b
WHERE b.bucket = %(bucket)s AND b.sha256 = %(sha256)s AND b.touched_at < now() - make_interval(secs => %(older)s)
FOR UPDATE
"""

STILL_UNREFERENCED: Final = """
SELECT NOT EXISTS (SELECT 1 FROM blob_refs r WHERE r.bucket = %(bucket)s AND r.sha256 = %(sha256)s)
   AND NOT EXISTS (SELECT 1 FROM uploads u WHERE u.bucket = %(bucket)s AND u.sha256 = %(sha256)s)
   AND NOT EXISTS (SELECT 1 FROM upload_parts p WHERE p.bucket = %(bucket)s AND p.sha256 = %(sha256)s)
   AND NOT EXISTS (SELECT 1 FROM archives a WHERE a.bucket = %(bucket)s AND a.sha256 = %(sha256)s)
   AND NOT EXISTS (SELECT 1 FROM documents d JOIN containers c ON c.id = d.container_id
                   WHERE d.accepted_sha256 = %(sha256)s AND c.bucket = %(bucket)s
                     AND (d.deleted_at IS NULL OR d.restorable_until > now()))
   AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.state IN ('queued', 'running', 'failed', 'cancelled')
                   AND j.kind IN ('ingest', 'corpus') AND j.payload ->> 'sha256' = %(sha256)s)
   AND NOT EXISTS (SELECT 1 FROM jobs j JOIN blobs b ON b.bucket = %(bucket)s AND b.sha256 = %(sha256)s
                   WHERE j.state = 'running' AND j.kind IN ('import', 'ingest') AND j.started_at <= b.touched_at) AS free
"""

KEPT_FOR_NOW: Final = """
SELECT 1 FROM blobs b WHERE NOT EXISTS (SELECT 1 FROM blob_refs r WHERE r.bucket = b.bucket AND r.sha256 = b.sha256) LIMIT 1
"""

REMOVE: Final = "DELETE FROM blobs WHERE bucket = %(bucket)s AND sha256 = %(sha256)s"

# By index: a bucket may hold millions of rows.
BUCKETS: Final = """
WITH RECURSIVE held (bucket) AS (
    SELECT min(bucket) FROM blobs
    UNION ALL
    SELECT (SELECT min(b.bucket) FROM blobs b WHERE b.bucket > h.bucket) FROM held h WHERE h.bucket IS NOT NULL
)
SELECT bucket FROM held WHERE bucket <> ''
UNION
SELECT bucket FROM containers WHERE bucket <> ''
ORDER BY bucket
"""


async def drop_spent_uploads(conn: Connection, older_than_seconds: float) -> int:
    """Delete uploads that were not used for a day, or whose document is ingested (its own references keep the bytes)."""
    return (await conn.execute(DROP_SPENT_UPLOADS, {"older": older_than_seconds})).rowcount


async def buckets(conn: Connection) -> list[str]:
    """The buckets that manifests name or named: those of containers, and those that still have blobs."""
    return [r["bucket"] for r in await (await conn.execute(BUCKETS)).fetchall()]


async def unreferenced(
    conn: Connection, bucket: str, older_than_seconds: float, limit: int
) -> list[str]:
    """Hashes in a bucket without a reference that were not touched for this time."""
    values = {"bucket": bucket, "older": older_than_seconds, "limit": limit}
    cursor = await conn.execute(UNREFERENCED, values)
    return [r["sha256"] for r in await cursor.fetchall()]


async def lock_unreferenced(
    conn: Connection, bucket: str, sha256: str, older_than_seconds: float
) -> bool:
    """Lock a blob's row and check again; False when the blob is in use after all."""
    values = {"bucket": bucket, "sha256": sha256, "older": older_than_seconds}
    if await (await conn.execute(LOCK_UNREFERENCED, values)).fetchone() is None:
        return False
    row = await (await conn.execute(STILL_UNREFERENCED, values)).fetchone()
    return bool(row and row["free"])


async def kept_for_now(conn: Connection) -> bool:
    """Whether some blobs belong to jobs or uploads only; those are deleted after a while."""
    return await (await conn.execute(KEPT_FOR_NOW)).fetchone() is not None


async def remove(conn: Connection, bucket: str, sha256: str) -> None:
    """Drop the row of a blob whose bytes are gone."""
    await conn.execute(REMOVE, {"bucket": bucket, "sha256": sha256})
