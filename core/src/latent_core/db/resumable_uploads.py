"""Rows of resumable uploads: how much was received, and the stored parts. Compare-and-set lets one writer win."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from latent_core.db.connection import Connection, only_row

KEPT_SECONDS: Final = 86_400
"""Since the last bytes; then the upload is gone."""


@dataclass(frozen=True, slots=True)
class ResumableUpload:
    """An upload whose bytes are not complete yet. Sizes in bytes."""

    id: UUID
    container_id: str
    bucket: str
    principal: str
    filename: str
    mime: str
    length: int
    received: int
    declared_sha256: str | None
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class UploadPart:
    """A stored part of an upload: ``bytes`` from ``start`` on."""

    start: int
    bytes: int
    sha256: str


INSERT: Final = """
INSERT INTO resumable_uploads (container_id, bucket, principal, filename, mime, length, declared_sha256, expires_at)
VALUES (%(container_id)s, %(bucket)s, %(principal)s, %(filename)s, %(mime)s, %(length)s, %(declared_sha256)s,
        now() + make_interval(secs => %(kept)s))
RETURNING id, container_id, bucket, principal, filename, mime, length, received, declared_sha256, expires_at
"""

SELECT: Final = """
SELECT id, container_id, bucket, principal, filename, mime, length, received, declared_sha256, expires_at
FROM resumable_uploads
WHERE id = %(id)s AND container_id = %(container_id)s AND principal = %(principal)s AND expires_at > now()
"""

UNFINISHED: Final = """
SELECT count(*) AS uploads
FROM (SELECT 1 FROM resumable_uploads WHERE principal = %(principal)s AND expires_at > now() LIMIT %(limit)s) AS open
"""

# Of two writers at the same offset, the second finds another number of received bytes.
ADVANCE: Final = """
WITH advanced AS (
    UPDATE resumable_uploads
    SET received = received + %(bytes)s, expires_at = now() + make_interval(secs => %(kept)s)
    WHERE id = %(id)s AND received = %(start)s
    RETURNING id, bucket
)
INSERT INTO upload_parts (upload_id, start, bytes, bucket, sha256)
SELECT id, %(start)s, %(bytes)s, bucket, %(sha256)s FROM advanced
"""

PARTS: Final = (
    "SELECT start, bytes, sha256 FROM upload_parts WHERE upload_id = %(id)s ORDER BY start"
)

COMPLETE: Final = (
    "DELETE FROM resumable_uploads WHERE id = %(id)s AND received = %(start)s RETURNING id"
)

DELETE: Final = "DELETE FROM resumable_uploads WHERE id = %(id)s AND principal = %(principal)s"

EXPIRE: Final = """
DELETE FROM resumable_uploads WHERE id IN (
    SELECT id FROM resumable_uploads WHERE expires_at <= now() ORDER BY expires_at LIMIT %(limit)s
)
"""
MAX_EXPIRED: Final = 10_000
"""Rows per run of the maintenance."""


async def insert(
    conn: Connection,
    *,
    container_id: str,
    bucket: str,
    principal: str,
    filename: str,
    mime: str,
    length: int,
    declared_sha256: str | None,
) -> ResumableUpload:
    """Begin an upload of ``length`` bytes."""
    values = {
        "container_id": container_id,
        "bucket": bucket,
        "principal": principal,
        "filename": filename,
        "mime": mime,
        "length": length,
        "declared_sha256": declared_sha256,
        "kept": KEPT_SECONDS,
    }
    return ResumableUpload(**await only_row(await conn.execute(INSERT, values)))


async def get(
    conn: Connection, container_id: str, upload_id: UUID, principal: str
) -> ResumableUpload | None:
    """An unfinished upload of this principal to this container."""
    values = {"id": upload_id, "container_id": container_id, "principal": principal}
    row = await (await conn.execute(SELECT, values)).fetchone()
    return ResumableUpload(**row) if row else None


async def unfinished(conn: Connection, principal: str, limit: int) -> int:
    """How many uploads of this principal are not complete, counted up to ``limit``."""
    values = {"principal": principal, "limit": limit}
    return int((await only_row(await conn.execute(UNFINISHED, values)))["uploads"])


async def advance(conn: Connection, upload_id: UUID, part: UploadPart) -> bool:
    """Record a stored part; False if the upload is not at the part's start (any more)."""
    values = {
        "id": upload_id,
        "start": part.start,
        "bytes": part.bytes,
        "sha256": part.sha256,
        "kept": KEPT_SECONDS,
    }
    return (await conn.execute(ADVANCE, values)).rowcount == 1


async def parts(conn: Connection, upload_id: UUID) -> list[UploadPart]:
    """The stored parts in order."""
    cursor = await conn.execute(PARTS, {"id": upload_id})
    return [UploadPart(**row) for row in await cursor.fetchall()]


async def complete(conn: Connection, upload_id: UUID, start: int) -> bool:
    """Remove the upload, whose file is stored as a whole; False if it is not at ``start`` (any more)."""
    values = {"id": upload_id, "start": start}
    return await (await conn.execute(COMPLETE, values)).fetchone() is not None


async def delete(conn: Connection, upload_id: UUID, principal: str) -> bool:
    """Remove an unfinished upload of this principal; its parts become garbage."""
    values = {"id": upload_id, "principal": principal}
    return (await conn.execute(DELETE, values)).rowcount == 1


async def expire(conn: Connection) -> int:
    """Remove uploads that were not continued for a day; returns their number."""
    return (await conn.execute(EXPIRE, {"limit": MAX_EXPIRED})).rowcount
