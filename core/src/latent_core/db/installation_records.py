"""Records of the installation that a backup of all containers takes along: read whole, added where they are missing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import orjson

from latent_core.db.connection import Connection

NOW: Final = "SELECT now() AS at"

CONTAINERS: Final = """
SELECT id, state, created_at FROM containers WHERE deleted_at IS NULL ORDER BY id
"""

TOKENS: Final = """
SELECT encode(sha256, 'hex') AS sha256, principal, name, scopes, containers, needs_role, created_by, created_at,
       expires_at, last_used_at, revoked_at
FROM tokens ORDER BY id
"""

# The time of creation decides which tokens reach a container by its name.
ADD_CONTAINERS: Final = """
UPDATE containers c SET state = r.state, created_at = r.created_at
FROM jsonb_to_recordset(%(records)s::jsonb) AS r (id text, state text, created_at timestamptz)
WHERE c.id = r.id AND c.deleted_at IS NULL AND (c.state, c.created_at) IS DISTINCT FROM (r.state, r.created_at)
RETURNING c.id
"""

ADD_TOKENS: Final = """
INSERT INTO tokens (sha256, principal, name, scopes, containers, needs_role, created_by, created_at, expires_at,
                    last_used_at, revoked_at)
SELECT decode(r.sha256, 'hex'), r.principal, r.name, r.scopes, r.containers, r.needs_role, r.created_by, r.created_at,
       r.expires_at, r.last_used_at, r.revoked_at
FROM jsonb_to_recordset(%(records)s::jsonb) AS r (
    sha256 text, principal text, name text, scopes text[], containers text[], needs_role boolean, created_by text,
    created_at timestamptz, expires_at timestamptz, last_used_at timestamptz, revoked_at timestamptz)
ON CONFLICT (sha256) DO NOTHING
RETURNING id
"""

SAVED_SEARCHES: Final = """
SELECT principal, name, request, saved_at FROM saved_searches ORDER BY principal, name
"""

# Without the limit per principal, so that a restore loses no saved search.
ADD_SAVED_SEARCHES: Final = """
INSERT INTO saved_searches (principal, name, request, saved_at)
SELECT r.principal, r.name, r.request, r.saved_at
FROM jsonb_to_recordset(%(records)s::jsonb) AS r (principal text, name text, request jsonb, saved_at timestamptz)
ON CONFLICT (principal, name) DO NOTHING
RETURNING id
"""

# Sent twice, a line is added once.
ADD_AUDIT: Final = """
INSERT INTO audit (at, principal, action, container_id, object, request_id)
SELECT r.at, r.principal, r.action, r.container_id, r.object, r.request_id
FROM ROWS FROM (jsonb_to_recordset(%(records)s::jsonb) AS (
    at timestamptz, principal text, action text, container_id text, object text, request_id text
)) WITH ORDINALITY AS r (at, principal, action, container_id, object, request_id, place)
WHERE NOT EXISTS (
    SELECT 1 FROM audit a
    WHERE a.at = r.at AND a.principal = r.principal AND a.action = r.action
      AND (a.container_id, a.object, a.request_id) IS NOT DISTINCT FROM (r.container_id, r.object, r.request_id))
ORDER BY r.place
RETURNING id
"""


async def now(conn: Connection) -> datetime:
    row = await (await conn.execute(NOW)).fetchone()
    if row is None:
        raise RuntimeError("SELECT now() returned no row")
    at: datetime = row["at"]
    return at


async def containers(conn: Connection) -> list[dict[str, Any]]:
    """Id, state and time of creation of every container."""
    return await (await conn.execute(CONTAINERS)).fetchall()


async def tokens(conn: Connection) -> list[dict[str, Any]]:
    """Every token in any state, with the SHA-256 of its secret in hexadecimal digits."""
    return await (await conn.execute(TOKENS)).fetchall()


async def saved_searches(conn: Connection) -> list[dict[str, Any]]:
    """The saved searches of every principal."""
    return await (await conn.execute(SAVED_SEARCHES)).fetchall()


async def set_containers(conn: Connection, records: Sequence[dict[str, Any]]) -> int:
    """Give existing containers the state and time of creation of their records; how many changed."""
    return await _added(conn, ADD_CONTAINERS, records)


async def add_tokens(conn: Connection, records: Sequence[dict[str, Any]]) -> int:
    """Add tokens whose hash is not known; how many."""
    return await _added(conn, ADD_TOKENS, records)


async def add_saved_searches(conn: Connection, records: Sequence[dict[str, Any]]) -> int:
    """Add saved searches whose name is new to their principal; how many."""
    return await _added(conn, ADD_SAVED_SEARCHES, records)


async def add_audit(conn: Connection, records: Sequence[dict[str, Any]]) -> int:
    """Add lines that the trail does not have, in their order; how many."""
    return await _added(conn, ADD_AUDIT, records)


async def _added(conn: Connection, statement: str, records: Sequence[dict[str, Any]]) -> int:
    if not records:
        return 0
    cursor = await conn.execute(statement, {"records": orjson.dumps(list(records)).decode()})
    return len(await cursor.fetchall())
