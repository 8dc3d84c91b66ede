"""Rows of tokens. The database's clock decides which tokens are live."""

from __future__ import annotations

import hmac
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self

from psycopg.errors import DiskFull, ReadOnlySqlTransaction

from latent_core.db.connection import Connection
from latent_core.db.containers import Container
from latent_core.domain.errors import Conflict
from latent_core.domain.token import EVERYBODY, MAX_LIVE, Scope, TokenState, TokenView

FIND: Final = """
SELECT id, sha256, principal, name, scopes, containers, needs_role, created_at,
       CASE WHEN revoked_at IS NOT NULL THEN 'revoked' WHEN expires_at <= now() THEN 'expired' ELSE 'live' END AS state,
       last_used_at IS NULL OR last_used_at < now() - interval '1 minute' AS unnoted
FROM tokens WHERE sha256 = %(sha256)s
"""

BY_ID: Final = """
SELECT id, principal, scopes, containers, needs_role, created_by, created_at, expires_at, last_used_at, revoked_at, name,
       CASE WHEN revoked_at IS NOT NULL THEN 'revoked' WHEN expires_at <= now() THEN 'expired' ELSE 'live' END AS state
FROM tokens WHERE id = %(id)s
"""

# If several gateways see it used at the same time, only one writes.
NOTE_USE: Final = """
UPDATE tokens SET last_used_at = now()
WHERE id = %(id)s AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute')
"""

# Two concurrent requests must not both pass the limit of live tokens per name.
ALONE: Final = """
SELECT pg_advisory_xact_lock(hashtextextended(%(principal)s || chr(10) || %(name)s, 7802))
"""

LIVE: Final = """
SELECT id FROM tokens
WHERE principal = %(principal)s AND name = %(name)s
  AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
ORDER BY id
"""

INSERT: Final = """
INSERT INTO tokens (sha256, principal, name, scopes, containers, created_by, expires_at)
VALUES (%(sha256)s, %(principal)s, %(name)s, %(scopes)s, %(containers)s, %(created_by)s, %(expires_at)s)
RETURNING id
"""

REVOKE: Final = (
    "UPDATE tokens SET revoked_at = now() WHERE id = %(id)s AND revoked_at IS NULL RETURNING id"
)

PAGE: Final = """
SELECT id, principal, scopes, containers, needs_role, created_by, created_at, expires_at, last_used_at, revoked_at, name,
       CASE WHEN revoked_at IS NOT NULL THEN 'revoked' WHEN expires_at <= now() THEN 'expired' ELSE 'live' END AS state
FROM tokens
WHERE id < %(before)s AND (%(principal)s::text IS NULL OR principal = %(principal)s)
  AND (%(all)s OR (revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())))
  AND (%(container_id)s::text IS NULL OR %(container_id)s = ANY(containers)
       OR (containers IS NULL AND (%(everybody)s OR principal = ANY(%(named)s))))
ORDER BY id DESC
LIMIT %(limit)s
"""


@dataclass(frozen=True, slots=True)
class Reach:
    """Tokens that reach a container: those that name it, and those of the principals that its roles name."""

    container_id: str
    named: frozenset[str]

    @classmethod
    def of(cls, container: Container) -> Self:
        roles = container.manifest.acl.roles
        return cls(container.id, frozenset((*roles.owner, *roles.writer, *roles.reader)))


@dataclass(frozen=True, slots=True)
class NewToken:
    """The fields of a new token."""

    principal: str
    name: str
    scopes: frozenset[Scope]
    containers: tuple[str, ...] | None
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class FoundToken:
    """A presented token in any state, with the fields that a request needs."""

    id: int
    principal: str
    name: str
    scopes: frozenset[Scope]
    containers: frozenset[str] | None
    needs_role: bool
    created_at: datetime
    state: TokenState
    unnoted: bool
    """Whether its last recorded use is over a minute old."""


async def find(conn: Connection, sha256: bytes) -> FoundToken | None:
    """The token with this digest. Compared again in constant time, since an index lookup is not."""
    row = await (await conn.execute(FIND, {"sha256": sha256})).fetchone()
    if row is None or not hmac.compare_digest(bytes(row["sha256"]), sha256):
        return None
    named = row["containers"]
    return FoundToken(
        id=row["id"],
        principal=row["principal"],
        name=row["name"],
        scopes=frozenset(map(Scope, row["scopes"])),
        containers=None if named is None else frozenset(named),
        needs_role=row["needs_role"],
        created_at=row["created_at"],
        state=TokenState(row["state"]),
        unnoted=row["unnoted"],
    )


async def get(conn: Connection, token_id: int) -> TokenView | None:
    row = await (await conn.execute(BY_ID, {"id": token_id})).fetchone()
    return _view(row) if row else None


async def note_use(conn: Connection, token_id: int) -> None:
    """Record the time, if the server accepts writes: the token is valid in any case."""
    with suppress(ReadOnlySqlTransaction, DiskFull):
        await conn.execute(NOTE_USE, {"id": token_id})


async def create(conn: Connection, token: NewToken, sha256: bytes, *, created_by: str) -> TokenView:
    """Raises ``Conflict`` when two tokens of this name are live. Call it in a transaction."""
    named = {"principal": token.principal, "name": token.name}
    await conn.execute(ALONE, named)
    live = [row["id"] for row in await (await conn.execute(LIVE, named)).fetchall()]
    if len(live) >= MAX_LIVE:
        raise Conflict(
            f"{token.principal} has {len(live)} live tokens named '{token.name}' ({', '.join(map(str, live))}): "
            "revoke the older one first, or give this one another name",
            token_ids=live,
        )
    cursor = await conn.execute(
        INSERT,
        {
            **named,
            "sha256": sha256,
            "scopes": sorted(scope.value for scope in token.scopes),
            "containers": None if token.containers is None else list(token.containers),
            "created_by": created_by,
            "expires_at": token.expires_at,
        },
    )
    row = await cursor.fetchone()
    created = await get(conn, row["id"]) if row else None
    if created is None:
        raise RuntimeError("INSERT … RETURNING returned no row")
    return created


async def revoke(conn: Connection, token_id: int) -> bool:
    """False when the token does not exist or was already revoked."""
    return await (await conn.execute(REVOKE, {"id": token_id})).fetchone() is not None


async def page(
    conn: Connection,
    *,
    before: int,
    limit: int,
    principal: str | None,
    all_: bool,
    reach: Reach | None = None,
) -> list[TokenView]:
    """Newest first; only the live ones unless ``all_``, only those that reach a container if ``reach`` names one."""
    named = reach.named if reach is not None else frozenset()
    values = {
        "before": before,
        "limit": limit,
        "principal": principal,
        "all": all_,
        "container_id": reach.container_id if reach is not None else None,
        "everybody": EVERYBODY in named,
        "named": list(named),
    }
    return [_view(row) for row in await (await conn.execute(PAGE, values)).fetchall()]


def _view(row: dict[str, Any]) -> TokenView:
    return TokenView.model_validate(row)
