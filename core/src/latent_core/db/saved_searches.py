"""Rows of saved searches: one principal's requests by name."""

from __future__ import annotations

from typing import Any, Final

from psycopg.types.json import Jsonb

from latent_core.db.connection import Connection
from latent_core.domain.errors import Conflict
from latent_core.wire.saved_searches import MAX_SAVED, SavedSearch

# Two concurrent requests must not both pass the limit of one principal.
ALONE: Final = "SELECT pg_advisory_xact_lock(hashtextextended(%(principal)s, 7804))"

IS_FULL: Final = """
SELECT count(*) >= %(limit)s AND NOT bool_or(name = %(name)s) AS full
FROM saved_searches WHERE principal = %(principal)s
"""

SAVE: Final = """
INSERT INTO saved_searches (principal, name, request)
VALUES (%(principal)s, %(name)s, %(request)s)
ON CONFLICT (principal, name) DO UPDATE SET request = excluded.request, saved_at = now()
RETURNING id, name, request, saved_at
"""

ALL: Final = """
SELECT id, name, request, saved_at FROM saved_searches
WHERE principal = %(principal)s
ORDER BY lower(name), id
"""

ONE: Final = """
SELECT id, name, request, saved_at FROM saved_searches
WHERE principal = %(principal)s AND id = %(id)s
"""

NAMED: Final = """
SELECT id, name, request, saved_at FROM saved_searches
WHERE principal = %(principal)s AND name = %(name)s
"""

DELETE: Final = "DELETE FROM saved_searches WHERE principal = %(principal)s AND id = %(id)s"


async def save(conn: Connection, principal: str, name: str, request: dict[str, Any]) -> SavedSearch:
    """Save under a name, in place of the search that has it; ``Conflict`` if there are ``MAX_SAVED`` others. Call it in a
    transaction."""
    given = {"principal": principal, "name": name, "limit": MAX_SAVED}
    await conn.execute(ALONE, given)
    counted = await (await conn.execute(IS_FULL, given)).fetchone()
    if counted is not None and counted["full"]:
        raise Conflict(f"{MAX_SAVED} searches are saved, which is the limit: delete one first")
    row = await (await conn.execute(SAVE, {**given, "request": Jsonb(request)})).fetchone()
    if row is None:
        raise RuntimeError("INSERT … RETURNING returned no row")
    return SavedSearch.model_validate(row)


async def all_(conn: Connection, principal: str) -> list[SavedSearch]:
    """By name."""
    rows = await (await conn.execute(ALL, {"principal": principal})).fetchall()
    return [SavedSearch.model_validate(row) for row in rows]


async def get(conn: Connection, principal: str, saved_id: int) -> SavedSearch | None:
    row = await (await conn.execute(ONE, {"principal": principal, "id": saved_id})).fetchone()
    return SavedSearch.model_validate(row) if row else None


async def named(conn: Connection, principal: str, name: str) -> SavedSearch | None:
    row = await (await conn.execute(NAMED, {"principal": principal, "name": name})).fetchone()
    return SavedSearch.model_validate(row) if row else None


async def delete(conn: Connection, principal: str, saved_id: int) -> None:
    await conn.execute(DELETE, {"principal": principal, "id": saved_id})
