"""Rows of documents with generations that were begun, never published and have no open job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from latent_core.db.connection import Connection

# From the first generation on that is newer than the live one and not abandoned.
FIND: Final = """
SELECT d.id, d.container_id FROM documents d
WHERE d.next_generation > greatest(coalesce(d.live_generation, 0) + 1, d.floor_generation)
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.state IN ('queued', 'running') AND j.kind IN ('ingest', 'corpus')
                  AND j.doc_id IN (d.id, d.parent_id))
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.state IN ('queued', 'running') AND j.kind = 'import'
                  AND j.payload ->> 'target' = d.container_id AND j.id <> %(but)s)
  AND (%(container_id)s::text IS NULL OR d.container_id = %(container_id)s)
ORDER BY d.container_id, d.id
LIMIT %(limit)s
"""

# The caller has locked the documents: a job enqueued before is visible, a later job takes a later generation.
GIVE_UP: Final = """
WITH found AS (
    SELECT d.id, greatest(coalesce(d.live_generation, 0) + 1, d.floor_generation) AS first
    FROM documents d
    WHERE d.id = ANY(%(ids)s)
      AND d.next_generation > greatest(coalesce(d.live_generation, 0) + 1, d.floor_generation)
      AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.state IN ('queued', 'running') AND j.kind IN ('ingest', 'corpus')
                      AND j.doc_id IN (d.id, d.parent_id))
      AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.state IN ('queued', 'running') AND j.kind = 'import'
                      AND j.payload ->> 'target' = d.container_id AND j.id <> %(but)s)
)
UPDATE documents d SET floor_generation = d.next_generation
FROM found WHERE d.id = found.id
RETURNING d.id, found.first, d.next_generation AS below
"""

# Accepted by an import that has ended, and never live since it was made, or since its deletion. What has a dead letter
# that it has not overtaken waits for that one.
NEVER_LIVE: Final = """
SELECT d.id FROM documents d
WHERE d.id = ANY(%(ids)s) AND d.deleted_at IS NULL AND d.live_generation IS NULL AND d.sha256 IS NULL
  AND d.accepted_sha256 IS NULL
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.doc_id IN (d.id, d.parent_id) AND j.kind IN ('ingest', 'corpus')
                  AND j.state IN ('failed', 'cancelled')
                  AND coalesce((j.payload ->> 'request')::bigint, 0) >= d.floor_request)
ORDER BY d.id
"""


@dataclass(frozen=True, slots=True)
class AbandonedGenerations:
    """Generations of a document from ``first`` on and below ``below``."""

    doc_id: UUID
    first: int
    below: int


async def find(
    conn: Connection, limit: int, *, container_id: str | None = None, but: int = 0
) -> dict[str, list[UUID]]:
    """Documents with such generations, by container; only in one if named, and as if the import ``but`` had ended."""
    values = {"limit": limit, "container_id": container_id, "but": but}
    found: dict[str, list[UUID]] = {}
    for row in await (await conn.execute(FIND, values)).fetchall():
        found.setdefault(row["container_id"], []).append(row["id"])
    return found


async def give_up(
    conn: Connection, doc_ids: Sequence[UUID], *, but: int = 0
) -> list[AbandonedGenerations]:
    """Make sure that they never become live; returns the generations to purge. Lock the documents first."""
    values = {"ids": sorted(doc_ids), "but": but}
    rows = await (await conn.execute(GIVE_UP, values)).fetchall()
    return [AbandonedGenerations(r["id"], r["first"], r["below"]) for r in rows]


async def never_live(conn: Connection, doc_ids: Sequence[UUID]) -> list[UUID]:
    """Those of them, abandoned, that would otherwise stay pending for ever."""
    cursor = await conn.execute(NEVER_LIVE, {"ids": sorted(doc_ids)})
    return [r["id"] for r in await cursor.fetchall()]
