"""Rows of documents with generations that were begun and never published, and that nobody works on any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from latent_core.registry.connection import Connection

# Generations from the first one on that is neither live (or older) nor given up.
FIND: Final = """
SELECT d.id, d.container_id FROM documents d
WHERE d.next_generation > greatest(coalesce(d.live_generation, 0) + 1, d.floor_generation)
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.state IN ('queued', 'running') AND j.kind IN ('ingest', 'corpus')
                  AND j.doc_id IN (d.id, d.parent_id))
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.state IN ('queued', 'running') AND j.kind = 'import'
                  AND j.payload ->> 'target' = d.container_id)
ORDER BY d.container_id, d.id
LIMIT %(limit)s
"""

# The caller holds the documents: a job that was enqueued before is seen, one that follows takes a later generation.
GIVE_UP: Final = """
WITH found AS (
    SELECT d.id, greatest(coalesce(d.live_generation, 0) + 1, d.floor_generation) AS first
    FROM documents d
    WHERE d.id = ANY(%(ids)s)
      AND d.next_generation > greatest(coalesce(d.live_generation, 0) + 1, d.floor_generation)
      AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.state IN ('queued', 'running') AND j.kind IN ('ingest', 'corpus')
                      AND j.doc_id IN (d.id, d.parent_id))
      AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.state IN ('queued', 'running') AND j.kind = 'import'
                      AND j.payload ->> 'target' = d.container_id)
)
UPDATE documents d SET floor_generation = d.next_generation
FROM found WHERE d.id = found.id
RETURNING d.id, found.first, d.next_generation AS below
"""


@dataclass(frozen=True, slots=True)
class Abandoned:
    """Generations of a document from ``first`` on and below ``below``."""

    doc_id: UUID
    first: int
    below: int


async def find(conn: Connection, limit: int) -> dict[str, list[UUID]]:
    """Documents with such generations, by container."""
    found: dict[str, list[UUID]] = {}
    for row in await (await conn.execute(FIND, {"limit": limit})).fetchall():
        found.setdefault(row["container_id"], []).append(row["id"])
    return found


async def give_up(conn: Connection, doc_ids: Sequence[UUID]) -> list[Abandoned]:
    """Make sure that they never become live; what must be purged. Lock the documents first."""
    rows = await (await conn.execute(GIVE_UP, {"ids": sorted(doc_ids)})).fetchall()
    return [Abandoned(r["id"], r["first"], r["below"]) for r in rows]
