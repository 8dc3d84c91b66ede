"""Rows of uploads, whose bytes wait for their ingest, and the bytes uploaded per day."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from latent_core.db.connection import Connection, only_row


@dataclass(frozen=True, slots=True)
class Upload:
    id: UUID
    container_id: str
    sha256: str
    filename: str
    mime: str
    bytes: int
    bucket: str


INSERT: Final = """
INSERT INTO uploads (id, container_id, sha256, filename, mime, bytes, principal, bucket)
VALUES (coalesce(%(id)s::uuid, gen_random_uuid()), %(container_id)s, %(sha256)s, %(filename)s, %(mime)s, %(bytes)s,
        %(principal)s, %(bucket)s)
RETURNING id, container_id, sha256, filename, mime, bytes, bucket
"""

SELECT: Final = """
SELECT id, container_id, sha256, filename, mime, bytes, bucket FROM uploads
WHERE id = %(id)s AND container_id = %(container_id)s FOR SHARE
"""

OWN: Final = """
SELECT id, container_id, sha256, filename, mime, bytes, bucket FROM uploads
WHERE id = %(id)s AND container_id = %(container_id)s AND principal = %(principal)s
"""

AMONG: Final = """
SELECT id, container_id, sha256, filename, mime, bytes, bucket FROM uploads
WHERE id = %(id)s AND container_id = ANY(%(container_ids)s::text[])
"""


async def insert(
    conn: Connection,
    *,
    container_id: str,
    sha256: str,
    filename: str,
    mime: str,
    size: int,
    principal: str,
    bucket: str = "",
    upload_id: UUID | None = None,
) -> Upload:
    """Record an upload whose bytes are stored, under ``upload_id`` if it has one already."""
    cursor = await conn.execute(
        INSERT,
        {
            "id": upload_id,
            "container_id": container_id,
            "sha256": sha256,
            "filename": filename,
            "mime": mime,
            "bytes": size,
            "principal": principal,
            "bucket": bucket,
        },
    )
    row = await cursor.fetchone()
    if row is None:
        raise RuntimeError("INSERT … RETURNING returned no row")
    return Upload(**row)


async def get(conn: Connection, container_id: str, upload_id: UUID) -> Upload | None:
    """An upload of this container, locked until the transaction ends; uploads of other containers are not returned."""
    row = await (
        await conn.execute(SELECT, {"id": upload_id, "container_id": container_id})
    ).fetchone()
    return Upload(**row) if row else None


async def own(
    conn: Connection, container_id: str, upload_id: UUID, principal: str
) -> Upload | None:
    """An upload that this principal sent to this container."""
    values = {"id": upload_id, "container_id": container_id, "principal": principal}
    row = await (await conn.execute(OWN, values)).fetchone()
    return Upload(**row) if row else None


async def among(conn: Connection, container_ids: Sequence[str], upload_id: UUID) -> Upload | None:
    """An upload to one of these containers."""
    values = {"id": upload_id, "container_ids": list(container_ids)}
    row = await (await conn.execute(AMONG, values)).fetchone()
    return Upload(**row) if row else None


KEPT_DAYS: Final = 31

TODAY: Final = """
SELECT bytes FROM uploaded_bytes WHERE who = %(who)s AND day = (now() AT TIME ZONE 'UTC')::date
"""

COUNT: Final = """
INSERT INTO uploaded_bytes (who, day, bytes, notes)
VALUES (%(who)s, (now() AT TIME ZONE 'UTC')::date, %(bytes)s, %(notes)s)
ON CONFLICT (who, day)
DO UPDATE SET bytes = uploaded_bytes.bytes + EXCLUDED.bytes, notes = uploaded_bytes.notes + EXCLUDED.notes
RETURNING notes
"""

FORGET: Final = """
DELETE FROM uploaded_bytes WHERE day < (now() AT TIME ZONE 'UTC')::date - %(kept)s::integer
"""


async def uploaded_today(conn: Connection, who: str) -> int:
    """Bytes since midnight UTC."""
    row = await (await conn.execute(TODAY, {"who": who})).fetchone()
    return int(row["bytes"]) if row else 0


async def count_upload(conn: Connection, who: str, size: int) -> None:
    await conn.execute(COUNT, {"who": who, "bytes": size, "notes": 0})


async def count_note(conn: Connection, who: str, size: int) -> int:
    """Count a note; returns their number since midnight UTC."""
    row = await only_row(await conn.execute(COUNT, {"who": who, "bytes": size, "notes": 1}))
    return int(row["notes"])


async def forget_usage(conn: Connection) -> int:
    """Delete the days that no quota needs any more; returns the number of rows."""
    return (await conn.execute(FORGET, {"kept": KEPT_DAYS})).rowcount
