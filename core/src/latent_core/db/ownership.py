"""Whether a database server is one process's alone, or shared by gateways and workers.

Who keeps vectors or blobs embedded has them for itself: another process on the same database would refer
to what is not there. A session's advisory lock says so, and goes with the session.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from latent_core.db.connection import Connection, Database
from latent_core.domain.errors import Conflict

KEY: Final = 0x6C6174656E742E6F  # "latent.o"
WAIT_SECONDS: Final = 5.0
"""The session of a process that was just killed may end a little later than it did."""
_POLL_SECONDS: Final = 0.1

ALONE: Final = "SELECT pg_try_advisory_lock(%(key)s) AS taken"
AMONG_OTHERS: Final = "SELECT pg_try_advisory_lock_shared(%(key)s) AS taken"


@asynccontextmanager
async def taking_part(db: Database, *, alone: bool) -> AsyncIterator[None]:
    """Hold a part in the database while the block runs; ``Conflict`` when others rule it out."""
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
