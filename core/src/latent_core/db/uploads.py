"""Rows of uploads: bytes that wait for their ingest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from latent_core.db.connection import Connection


@dataclass(frozen=True, slots=True)
class Upload:
    id: UUID
    container_id: str
    sha256: str
    filename: str
    mime: str
    bytes: int


INSERT: Final = """
INSERT INTO uploads (container_id, sha256, filename, mime, bytes, principal)
VALUES (%(container_id)s, %(sha256)s, %(filename)s, %(mime)s, %(bytes)s, %(principal)s)
RETURNING id, container_id, sha256, filename, mime, bytes
"""

SELECT: Final = """
SELECT id, container_id, sha256, filename, mime, bytes FROM uploads
WHERE id = %(id)s AND container_id = %(container_id)s FOR SHARE
"""

AMONG: Final = """
SELECT id, container_id, sha256, filename, mime, bytes FROM uploads
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
) -> Upload:
    """Record an upload whose bytes are stored."""
    cursor = await conn.execute(
        INSERT,
        {
            "container_id": container_id,
            "sha256": sha256,
            "filename": filename,
            "mime": mime,
            "bytes": size,
            "principal": principal,
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


async def among(conn: Connection, container_ids: Sequence[str], upload_id: UUID) -> Upload | None:
    """An upload to one of these containers."""
    values = {"id": upload_id, "container_ids": list(container_ids)}
    row = await (await conn.execute(AMONG, values)).fetchone()
    return Upload(**row) if row else None
