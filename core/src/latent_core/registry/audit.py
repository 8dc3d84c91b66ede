"""Who did what to which container: a row a change, in the change's own transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from latent_core.registry.connection import Connection

INSERT: Final = """
INSERT INTO audit (principal, action, container_id, object, request_id)
VALUES (%(principal)s, %(action)s, %(container_id)s, %(object)s, %(request_id)s)
"""

LAST_DELETED: Final = """
SELECT wanted.id
FROM unnest(%(ids)s::text[]) AS wanted (id)
CROSS JOIN LATERAL (
    SELECT action FROM audit
    WHERE container_id = wanted.id AND action IN ('container.create', 'container.delete')
    ORDER BY id DESC
    LIMIT 1) AS last
WHERE last.action = 'container.delete'
"""


async def note(
    conn: Connection,
    *,
    principal: str,
    action: str,
    container_id: str,
    object_: str | None,
    request_id: str | None,
) -> None:
    """Write one line of the audit trail."""
    await conn.execute(
        INSERT,
        {
            "principal": principal,
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
) -> None:
    """One line an object, in one go."""
    common = {
        "principal": principal,
        "action": action,
        "container_id": container_id,
        "request_id": request_id,
    }
    async with conn.cursor() as cursor:
        await cursor.executemany(INSERT, [{**common, "object": object_} for object_ in objects])


async def deleted(conn: Connection, container_ids: Sequence[str]) -> set[str]:
    """Those of the containers that somebody deleted and nobody has created since."""
    cursor = await conn.execute(LAST_DELETED, {"ids": list(container_ids)})
    return {row["id"] for row in await cursor.fetchall()}
