"""Rows of image_texts: what OCR read in pictures that were uploaded to search by."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from latent_core.db.connection import Connection

KEPT: Final = timedelta(days=7)
ROWS_PER_LOOK: Final = 10_000

LATEST: Final = """
SELECT text FROM image_texts WHERE sha256 = %(sha256)s ORDER BY created_at DESC, engine LIMIT 1
"""

KNOWN: Final = "SELECT 1 FROM image_texts WHERE sha256 = %(sha256)s AND engine = %(engine)s"

WRITE: Final = """
INSERT INTO image_texts (sha256, engine, text) VALUES (%(sha256)s, %(engine)s, %(text)s)
ON CONFLICT (sha256, engine) DO UPDATE SET text = excluded.text, created_at = excluded.created_at
"""

FORGET: Final = """
DELETE FROM image_texts WHERE (sha256, engine) IN (
    SELECT sha256, engine FROM image_texts WHERE created_at < now() - %(kept)s::interval
    ORDER BY created_at LIMIT %(limit)s
)
"""


async def latest(conn: Connection, sha256: str) -> str | None:
    """The text of the picture by the engine that read it last; None when it was not read, "" when it has no text."""
    row = await (await conn.execute(LATEST, {"sha256": sha256})).fetchone()
    return None if row is None else str(row["text"])


async def known(conn: Connection, sha256: str, engine: str) -> bool:
    """Whether this engine has read the picture."""
    values = {"sha256": sha256, "engine": engine}
    return await (await conn.execute(KNOWN, values)).fetchone() is not None


async def write(conn: Connection, sha256: str, engine: str, text: str) -> None:
    """Store the text that an engine read, for a limited time."""
    await conn.execute(WRITE, {"sha256": sha256, "engine": engine, "text": text})


async def forget(conn: Connection, kept: timedelta = KEPT) -> int:
    """Delete a batch of the texts that are older than ``kept``; returns their number."""
    cursor = await conn.execute(FORGET, {"kept": kept, "limit": ROWS_PER_LOOK})
    return cursor.rowcount
