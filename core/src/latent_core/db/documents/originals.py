"""The original of a document: the bytes that it was made from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from latent_core.db.connection import Connection

ORIGINAL: Final = """
SELECT r.bucket, r.sha256, r.mime, r.filename
FROM documents d
JOIN blob_refs r ON r.doc_id = d.id AND r.generation = d.live_generation AND r.role = 'original' AND r.part = 0
WHERE d.id = %(doc_id)s AND d.deleted_at IS NULL
"""


@dataclass(frozen=True, slots=True)
class OriginalFile:
    """Where the original of a visible document is stored, and its name."""

    bucket: str
    sha256: str
    mime: str
    filename: str


async def of_document(conn: Connection, doc_id: UUID) -> OriginalFile | None:
    """None for a record of a corpus, and for a document without a visible generation."""
    row = await (await conn.execute(ORIGINAL, {"doc_id": doc_id})).fetchone()
    return OriginalFile(**row) if row else None
