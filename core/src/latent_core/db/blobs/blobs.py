"""Rows of blobs: the intent before the bytes, the presence after them."""

from __future__ import annotations

from typing import Final

from latent_core.db.connection import Connection

# The lock on the row makes a writer wait for a running removal of the same blob; a present blob is only touched.
INTEND: Final = """
INSERT INTO blobs (sha256, bytes, state) VALUES (%(sha256)s, %(bytes)s, 'intent')
ON CONFLICT (sha256) DO UPDATE
SET touched_at = now(), state = CASE WHEN blobs.state = 'condemned' THEN 'intent' ELSE blobs.state END
RETURNING state
"""

# A blob that was condemned in between may have lost its bytes already.
CONFIRM: Final = """
UPDATE blobs SET state = 'present', touched_at = now()
WHERE sha256 = %(sha256)s AND state IN ('intent', 'present')
"""

ADOPT: Final = """
INSERT INTO blobs (sha256, bytes, state) VALUES (%(sha256)s, %(bytes)s, 'condemned')
ON CONFLICT (sha256) DO NOTHING
"""


async def intend(conn: Connection, sha256: str, size: int) -> bool:
    """Note that bytes are about to be stored; True when they are there already."""
    cursor = await conn.execute(INTEND, {"sha256": sha256, "bytes": size})
    row = await cursor.fetchone()
    return row is not None and row["state"] == "present"


async def confirm(conn: Connection, sha256: str) -> bool:
    """Note that the bytes are stored; False when the row is gone or condemned."""
    return (await conn.execute(CONFIRM, {"sha256": sha256})).rowcount == 1


async def adopt(conn: Connection, sha256: str, size: int) -> None:
    """Add rows for bytes that have none, so that the garbage collection removes them if they stay unused."""
    await conn.execute(ADOPT, {"sha256": sha256, "bytes": size})
