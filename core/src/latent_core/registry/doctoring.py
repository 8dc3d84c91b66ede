"""One comparison of the stores at a time, among all gateways of a database: it reads everything, and may repair."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from latent_core.domain.errors import Conflict
from latent_core.registry.connection import Database

# A session's lock on a connection of its own: it goes with the connection, however the run ends.
TRY_LOCK: Final = "SELECT pg_try_advisory_lock(7806) AS mine"


@asynccontextmanager
async def alone(db: Database) -> AsyncIterator[None]:
    """Nobody else does while the block lasts; ``Conflict`` when somebody does already."""
    async with db.dedicated(name="doctor") as conn:
        row = await (await conn.execute(TRY_LOCK)).fetchone()
        if row is None or not row["mine"]:
            raise Conflict("the stores are being compared already: ask again when that has ended")
        yield
