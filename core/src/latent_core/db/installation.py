"""An installation in its database: the secrets that all its gateways share, and the lock that keeps others out."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from latent_core.db.connection import Connection, Database
from latent_core.domain.errors import Conflict

SIGNING_KEY: Final = "signing_key"

ENSURE: Final = """
INSERT INTO secrets (name, value) VALUES (%(name)s, %(value)s) ON CONFLICT (name) DO NOTHING
"""

SELECT: Final = "SELECT value FROM secrets WHERE name = %(name)s"


async def ensure_secret(conn: Connection, name: str) -> bytes:
    """The secret ``name``: 32 random bytes; the first call creates them."""
    await conn.execute(ENSURE, {"name": name, "value": secrets.token_bytes(32)})
    row = await (await conn.execute(SELECT, {"name": name})).fetchone()
    if row is None:
        raise RuntimeError(f"secret {name} was deleted while it was read")
    return bytes(row["value"])


KEY: Final = 0x6C6174656E742E6F  # "latent.o"
WAIT_SECONDS: Final = 5.0
"""The session of a killed process may end a little later than the process."""
_POLL_SECONDS: Final = 0.1

ALONE: Final = "SELECT pg_try_advisory_lock(%(key)s) AS taken"
AMONG_OTHERS: Final = "SELECT pg_try_advisory_lock_shared(%(key)s) AS taken"


@asynccontextmanager
async def taking_part(db: Database, *, alone: bool) -> AsyncIterator[None]:
    """Hold the lock while the block runs; ``Conflict`` when other processes exclude it."""
    async with db.dedicated(name="part") as conn:
        until = time.monotonic() + WAIT_SECONDS
        while not await _taken(conn, ALONE if alone else AMONG_OTHERS):
            if time.monotonic() > until:
                raise Conflict(_ALONE_REFUSED if alone else _AMONG_OTHERS_REFUSED)
            await asyncio.sleep(_POLL_SECONDS)
        yield


async def _taken(conn: Connection, statement: str) -> bool:
    row = await (await conn.execute(statement, {"key": KEY})).fetchone()
    return row is not None and bool(row["taken"])


_ALONE_REFUSED: Final = (
    "other processes use this database (LLC_POSTGRES_DSN) and cannot read the vectors or blobs that this process "
    "stores locally. Set LLC_QDRANT_URL and LLC_S3_ENDPOINT too, stop the other processes, or use another database"
)
_AMONG_OTHERS_REFUSED: Final = (
    "a process that stores vectors or blobs locally uses this database (LLC_POSTGRES_DSN). Stop that process, "
    "or set LLC_QDRANT_URL and LLC_S3_ENDPOINT for it too"
)
