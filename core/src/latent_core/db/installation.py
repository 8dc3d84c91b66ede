"""An installation in its database: its identity, the secrets of its gateways, and the lock that keeps others out."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final

from latent_core.db.connection import Connection, Database
from latent_core.domain.errors import Conflict, Misconfigured
from latent_core.domain.installation import Installation

SIGNING_KEY: Final = "signing_key"

ENSURE: Final = """
INSERT INTO secrets (name, value) VALUES (%(name)s, %(value)s) ON CONFLICT (name) DO NOTHING
"""

SELECT: Final = "SELECT value FROM secrets WHERE name = %(name)s"


async def ensure_secret(conn: Connection, name: str) -> bytes:
    """The secret ``name``: 32 random bytes; the first call creates them. Read first, for a server that accepts reads
    only."""
    found = await _secret(conn, name)
    if found is None:
        await conn.execute(ENSURE, {"name": name, "value": secrets.token_bytes(32)})
        found = await _secret(conn, name)
    if found is None:
        raise RuntimeError(f"secret {name} was deleted while it was read")
    return found


async def _secret(conn: Connection, name: str) -> bytes | None:
    row = await (await conn.execute(SELECT, {"name": name})).fetchone()
    return None if row is None else bytes(row["value"])


ENSURE_INSTALLATION: Final = """
INSERT INTO installation (id, holder) VALUES (%(id)s, %(holder)s) ON CONFLICT DO NOTHING
"""

SELECT_INSTALLATION: Final = "SELECT id, holder FROM installation"

TAKE_OVER: Final = """
UPDATE installation SET holder = %(holder)s, adopted_at = now() WHERE holder <> %(holder)s
"""

HOLDER: Final = """
SELECT c.system_identifier::text || '/' || d.oid::text AS holder
FROM pg_control_system() c, pg_database d
WHERE d.datname = current_database()
"""

SELECT_ADOPTED_AT: Final = "SELECT adopted_at FROM installation"

HAS_CONTENT: Final = "SELECT EXISTS (SELECT FROM containers) OR EXISTS (SELECT FROM blobs) AS found"


async def ensure_installation(conn: Connection) -> Installation:
    """The identity of this installation; the first call creates it.

    The holder is the one that the row names: in a copy of the database it is not the database itself.
    """
    found = await _installation(conn)
    if found is None:
        given = {"id": secrets.token_hex(6), "holder": await _this_database(conn)}
        await conn.execute(ENSURE_INSTALLATION, given)
        found = await _installation(conn)
    if found is None:
        raise RuntimeError("the row of the installation was deleted while it was read")
    return found


async def _installation(conn: Connection) -> Installation | None:
    row = await (await conn.execute(SELECT_INSTALLATION)).fetchone()
    return None if row is None else Installation(row["id"], row["holder"])


async def check_holder(conn: Connection, installation: Installation) -> None:
    """``Misconfigured`` if this database is a copy of the one that holds the installation."""
    found = await _this_database(conn)
    if found != installation.holder:
        raise Misconfigured(
            f"this database ({found}) is a copy of database {installation.holder}, which holds installation "
            f"{installation.id}: both would write to the same collections and bucket. If the other one is no longer "
            "used, run `latent adopt`. To keep both, create a new database and import the containers",
            installation=installation.id,
        )


async def take_over(conn: Connection) -> Installation:
    """Make this database the holder of the installation in its row."""
    installation = await ensure_installation(conn)
    holder = await _this_database(conn)
    await conn.execute(TAKE_OVER, {"holder": holder})
    return Installation(installation.id, holder)


async def adopted_at(conn: Connection) -> datetime | None:
    """When `latent adopt` last changed the holder; None if it never did."""
    row = await (await conn.execute(SELECT_ADOPTED_AT)).fetchone()
    return None if row is None else row["adopted_at"]


async def has_content(conn: Connection) -> bool:
    """Whether the database lists containers or blobs."""
    row = await (await conn.execute(HAS_CONTENT)).fetchone()
    return row is not None and bool(row["found"])


async def _this_database(conn: Connection) -> str:
    row = await (await conn.execute(HOLDER)).fetchone()
    if row is None:
        raise RuntimeError("Postgres does not list the current database")
    return str(row["holder"])


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
