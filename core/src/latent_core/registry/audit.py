"""Who did what to which container: a row a change, in the change's own transaction."""

from __future__ import annotations

from typing import Final

from latent_core.registry.connection import Connection

INSERT: Final = """
INSERT INTO audit (principal, action, container_id, object, request_id)
VALUES (%(principal)s, %(action)s, %(container_id)s, %(object)s, %(request_id)s)
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
