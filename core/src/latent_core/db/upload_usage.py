"""Bytes uploaded per principal and day, for the quotas."""

from __future__ import annotations

from typing import Final

from latent_core.db.connection import Connection

KEPT_DAYS: Final = 31

TODAY: Final = """
SELECT bytes FROM uploaded_bytes WHERE who = %(who)s AND day = (now() AT TIME ZONE 'UTC')::date
"""

COUNT: Final = """
INSERT INTO uploaded_bytes (who, day, bytes) VALUES (%(who)s, (now() AT TIME ZONE 'UTC')::date, %(bytes)s)
ON CONFLICT (who, day) DO UPDATE SET bytes = uploaded_bytes.bytes + EXCLUDED.bytes
"""

FORGET: Final = """
DELETE FROM uploaded_bytes WHERE day < (now() AT TIME ZONE 'UTC')::date - %(kept)s::integer
"""


async def uploaded_today(conn: Connection, who: str) -> int:
    """Bytes since midnight UTC."""
    row = await (await conn.execute(TODAY, {"who": who})).fetchone()
    return int(row["bytes"]) if row else 0


async def count_upload(conn: Connection, who: str, size: int) -> None:
    await conn.execute(COUNT, {"who": who, "bytes": size})


async def forget(conn: Connection) -> int:
    """Delete the days that no quota needs any more; returns the number of rows."""
    return (await conn.execute(FORGET, {"kept": KEPT_DAYS})).rowcount
