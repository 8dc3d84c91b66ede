"""Secrets that all gateways share, stored in Postgres."""

from __future__ import annotations

import secrets
from typing import Final

from latent_core.db.connection import Connection

SIGNING_KEY: Final = "signing_key"

ENSURE: Final = """
INSERT INTO secrets (name, value) VALUES (%(name)s, %(value)s) ON CONFLICT (name) DO NOTHING
"""

SELECT: Final = "SELECT value FROM secrets WHERE name = %(name)s"


async def ensure(conn: Connection, name: str) -> bytes:
    """The secret ``name``: 32 random bytes; the first call creates them."""
    await conn.execute(ENSURE, {"name": name, "value": secrets.token_bytes(32)})
    row = await (await conn.execute(SELECT, {"name": name})).fetchone()
    if row is None:
        raise RuntimeError(f"secret {name} was deleted while it was read")
    return bytes(row["value"])
