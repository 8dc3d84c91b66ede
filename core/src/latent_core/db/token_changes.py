"""What a token wrote, superseded and deleted: lines of the audit trail, with what became of their documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from latent_core.db.connection import Connection
from latent_core.db.documents.documents import STATE
from latent_core.domain.ids import document_id
from latent_core.domain.token import ChangedState, ChangeKind, TokenChange

ACTIONS: Final[Mapping[ChangeKind, str]] = {
    ChangeKind.WRITTEN: "document.add",
    ChangeKind.SUPERSEDED: "document.supersede",
    ChangeKind.DELETED: "document.delete",
}
MAX_COUNTED: Final = 1000
"""More changes of a kind are not counted."""

# Not of an earlier container with the same id.
LINES: Final = """
SELECT a.id, a.at, a.container_id, a.object AS source_uri
FROM audit a
JOIN containers c ON c.id = a.container_id AND c.deleted_at IS NULL AND a.at >= c.created_at
WHERE a.token_id = %(token_id)s AND a.action = %(action)s AND a.id < %(before)s
  AND a.container_id = ANY(%(container_ids)s) AND a.object IS NOT NULL
ORDER BY a.id DESC
LIMIT %(limit)s
"""

DOCUMENTS: Final = f"""
SELECT d.id, d.title, d.superseded_by,
       CASE WHEN d.deleted_at IS NOT NULL THEN 'deleted' WHEN d.superseded_at IS NOT NULL THEN 'superseded'
            ELSE {STATE} END AS state,
       CASE WHEN d.deleted_at IS NOT NULL AND d.restorable_until > now() AND d.accepted_sha256 IS NOT NULL
            THEN d.restorable_until END AS restorable_until
FROM documents d WHERE d.id = ANY(%(ids)s)
"""

COUNTS: Final = """
SELECT w.action, (SELECT count(*) FROM (
    SELECT 1 FROM audit a
    WHERE a.token_id = %(token_id)s AND a.action = w.action AND a.container_id = ANY(%(container_ids)s)
    LIMIT %(limit)s) AS found) AS changes
FROM unnest(%(actions)s::text[]) AS w (action)
"""


async def listed(
    conn: Connection,
    token_id: int,
    kind: ChangeKind,
    *,
    container_ids: Sequence[str],
    before: int,
    limit: int,
) -> list[TokenChange]:
    """Changes in these containers, newest first, before the line with the id ``before``."""
    values = {
        "token_id": token_id,
        "action": ACTIONS[kind],
        "container_ids": list(container_ids),
        "before": before,
        "limit": limit,
    }
    lines = await (await conn.execute(LINES, values)).fetchall()
    ids = {line["id"]: document_id(line["container_id"], line["source_uri"]) for line in lines}
    cursor = await conn.execute(DOCUMENTS, {"ids": list(set(ids.values()))})
    documents = {row["id"]: row for row in await cursor.fetchall()}
    return [_change(line, documents.get(ids[line["id"]])) for line in lines]


def _change(line: dict[str, Any], document: dict[str, Any] | None) -> TokenChange:
    row = document or {"id": None, "title": None, "superseded_by": None, "restorable_until": None}
    doc_id: UUID | None = row["id"]
    return TokenChange(
        id=line["id"],
        at=line["at"],
        container_id=line["container_id"],
        source_uri=line["source_uri"],
        doc_id=doc_id,
        title=row["title"],
        state=ChangedState(row.get("state", ChangedState.REMOVED)),
        superseded_by=row["superseded_by"],
        restorable_until=row["restorable_until"],
    )


async def counts(
    conn: Connection, token_id: int, container_ids: Sequence[str]
) -> dict[ChangeKind, int]:
    """How many changes of each kind there are; ``MAX_COUNTED`` means that many or more."""
    values = {
        "token_id": token_id,
        "container_ids": list(container_ids),
        "actions": list(ACTIONS.values()),
        "limit": MAX_COUNTED,
    }
    found = await (await conn.execute(COUNTS, values)).fetchall()
    by_action = {row["action"]: int(row["changes"]) for row in found}
    return {kind: by_action[action] for kind, action in ACTIONS.items()}
