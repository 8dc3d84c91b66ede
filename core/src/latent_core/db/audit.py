"""The audit trail: one row per change, written in the transaction of the change, and the queries that read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Final

from latent_core.db.connection import Connection
from latent_core.wire.access import AuditLine

INSERT: Final = """
INSERT INTO audit (principal, token_id, action, container_id, object, request_id)
VALUES (%(principal)s, %(token_id)s, %(action)s, %(container_id)s, %(object)s, %(request_id)s)
"""

LAST_DELETED: Final = """
SELECT entry.id
FROM unnest(%(ids)s::text[]) AS entry (id)
CROSS JOIN LATERAL (
    SELECT action FROM audit
    WHERE container_id = entry.id AND action IN ('container.create', 'container.delete')
    ORDER BY id DESC
    LIMIT 1) AS last
WHERE last.action = 'container.delete'
"""

LAST_SWITCHED: Final = """
SELECT container_id, max(at) AS at FROM audit
WHERE container_id = ANY(%(ids)s::text[]) AND action IN ('container.switch', 'container.rollback')
GROUP BY container_id
"""

# Each container's lines come from its own index. The lines of an earlier container with the same id are not shown.
OWNED: Final = """
SELECT found.id, found.at, found.principal, found.action, found.container_id, found.object, found.request_id
FROM unnest(%(container_ids)s::text[]) AS w (container_id)
JOIN containers c ON c.id = w.container_id AND c.deleted_at IS NULL
CROSS JOIN LATERAL (
    SELECT * FROM audit a
    WHERE a.container_id = w.container_id AND a.at >= c.created_at AND a.id < %(before)s
      AND (%(principal)s::text IS NULL OR a.principal = %(principal)s)
      AND (%(action)s::text IS NULL OR a.action ^@ %(action)s)
      AND (%(since)s::timestamptz IS NULL OR a.at >= %(since)s)
      AND (%(until)s::timestamptz IS NULL OR a.at < %(until)s)
    ORDER BY a.id DESC
    LIMIT %(limit)s) AS found
ORDER BY found.id DESC
LIMIT %(limit)s
"""

# Also lines without a container, or of a container that no longer exists; containers of other owners stay hidden.
WHOLE: Final = """
SELECT a.id, a.at, a.principal, a.action, a.container_id, a.object, a.request_id
FROM audit a
WHERE a.id < %(before)s
  AND (%(container_id)s::text IS NULL OR a.container_id = %(container_id)s)
  AND (%(principal)s::text IS NULL OR a.principal = %(principal)s)
  AND (%(action)s::text IS NULL OR a.action ^@ %(action)s)
  AND (%(since)s::timestamptz IS NULL OR a.at >= %(since)s)
  AND (%(until)s::timestamptz IS NULL OR a.at < %(until)s)
  AND (a.container_id IS NULL OR a.container_id = ANY(%(container_ids)s::text[])
       OR NOT EXISTS (SELECT 1 FROM containers c WHERE c.id = a.container_id AND c.deleted_at IS NULL))
ORDER BY a.id DESC
LIMIT %(limit)s
"""


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """Which lines: before the one with the id ``before``, at most ``limit``, newest first."""

    before: int
    limit: int
    principal: str | None = None
    action: str | None = None
    """A prefix: ``token.`` matches all actions on tokens."""
    since: datetime | None = None
    until: datetime | None = None
    """Exclusive."""


async def last_switched(conn: Connection, container_ids: Sequence[str]) -> dict[str, datetime]:
    """When the embedder of containers last changed; absent where it never did."""
    cursor = await conn.execute(LAST_SWITCHED, {"ids": list(container_ids)})
    return {row["container_id"]: row["at"] for row in await cursor.fetchall()}


async def note(
    conn: Connection,
    *,
    principal: str,
    action: str,
    container_id: str | None,
    object_: str | None,
    request_id: str | None,
    token_id: int | None = None,
) -> None:
    """Write one line of the audit trail; ``container_id`` is None for what concerns the installation, ``token_id`` for
    the owner's own token and for jobs."""
    await conn.execute(
        INSERT,
        {
            "principal": principal,
            "token_id": token_id,
            "action": action,
            "container_id": container_id,
            "object": object_,
            "request_id": request_id,
        },
    )


async def note_each(
    conn: Connection,
    *,
    principal: str,
    action: str,
    container_id: str,
    objects: Sequence[str],
    request_id: str | None,
    token_id: int | None = None,
) -> None:
    """One line per object, in one statement."""
    if not objects:
        return
    common = {
        "principal": principal,
        "token_id": token_id,
        "action": action,
        "container_id": container_id,
        "request_id": request_id,
    }
    async with conn.cursor() as cursor:
        await cursor.executemany(INSERT, [{**common, "object": object_} for object_ in objects])


async def deleted(conn: Connection, container_ids: Sequence[str]) -> set[str]:
    """Those ids whose container was deleted and not created again since."""
    cursor = await conn.execute(LAST_DELETED, {"ids": list(container_ids)})
    return {row["id"] for row in await cursor.fetchall()}


async def of_containers(
    conn: Connection, container_ids: Sequence[str], query: AuditQuery
) -> list[AuditLine]:
    """Lines of these containers since their creation."""
    values = {**asdict(query), "container_ids": list(container_ids)}
    rows = await (await conn.execute(OWNED, values)).fetchall()
    return [AuditLine.model_validate(row) for row in rows]


async def whole(
    conn: Connection, owned: Sequence[str], container_id: str | None, query: AuditQuery
) -> list[AuditLine]:
    """Lines of ``owned`` and of deleted containers and of the installation; only of one container if it is named."""
    values = {**asdict(query), "container_ids": list(owned), "container_id": container_id}
    rows = await (await conn.execute(WHOLE, values)).fetchall()
    return [AuditLine.model_validate(row) for row in rows]
