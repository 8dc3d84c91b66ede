"""Where the points of a space are: in a collection of its own, or in one that small containers share.

A server holds a limited number of collections (each costs 66 memory maps on Qdrant). Up to the bound every space has
its own. Beyond it, new spaces of small containers share one collection per embedding space and modality.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from latent_core.db.connection import Connection, only_row
from latent_core.domain.ids import shared_collection

MAX_SHARED_POINTS: Final = 20_000
"""A container with more points gets a collection of its own."""
LOCK_KEY: Final = 0x6C6174656E742E70  # "latent.p"

LOCK: Final = "SELECT pg_advisory_xact_lock(%(key)s)"

SELECT_BOUND: Final = "SELECT max_collections FROM installation"
SET_BOUND: Final = "UPDATE installation SET max_collections = %(max)s"

# A layout of its own (shards, replicas, quantization) needs a collection of its own.
_NEEDS_ITS_OWN: Final = """(
    coalesce(c.manifest #>> '{vectors,own_collection}', 'false') <> 'false'
    OR c.manifest #>> '{vectors,quantization}' IS NOT NULL
    OR coalesce(c.manifest #>> '{vectors,shards}', '1') <> '1'
    OR coalesce(c.manifest #>> '{vectors,replicas}', '1') <> '1'
)"""

# Two spaces of one container have points with the same ids, so they never share a collection.
MAY_SHARE: Final = f"""
SELECT i.max_collections IS NOT NULL
   AND (SELECT count(*) FROM spaces s WHERE s.shared IS NULL AND s.collection_id IS NULL) >= i.max_collections
   AND NOT {_NEEDS_ITS_OWN}
   AND coalesce((SELECT k.live_chunks FROM keyword_stats k WHERE k.container_id = c.id), 0) < %(max_points)s
   AND NOT EXISTS (SELECT 1 FROM spaces s WHERE s.container_id = c.id AND s.shared = %(name)s) AS may_share
FROM installation i, containers c
WHERE c.id = %(container_id)s
"""

USAGE: Final = """
SELECT (SELECT count(*) FROM spaces s WHERE s.shared IS NULL AND s.collection_id IS NULL) AS own,
       (SELECT count(DISTINCT s.shared) FROM spaces s) AS shared,
       (SELECT count(*) FROM spaces s WHERE s.shared IS NOT NULL) AS in_shared,
       (SELECT i.max_collections FROM installation i) AS bound
"""

# By its manifest, which may have changed since the space was made, or by its size. The windows of chunks are the points;
# containers far below the limit are not counted.
OUTGROWN: Final = f"""
SELECT c.id FROM containers c
JOIN spaces s ON s.id = c.live_space
LEFT JOIN keyword_stats k ON k.container_id = c.id
WHERE s.shared IS NOT NULL AND s.collection_id IS NULL AND s.adapter_id IS NULL AND c.deleted_at IS NULL
  AND c.state = 'active'
  AND ({_NEEDS_ITS_OWN}
       OR (k.live_chunks > %(max_points)s / 8
           AND (SELECT sum(h.windows) FROM documents d
                JOIN chunks h ON h.doc_id = d.id AND h.generation = d.live_generation
                WHERE d.container_id = c.id AND d.deleted_at IS NULL) > %(max_points)s))
ORDER BY c.id
"""


@dataclass(frozen=True, slots=True)
class CollectionUsage:
    own: int
    """Collections with one space."""
    shared: int
    """Collections that spaces share."""
    in_shared: int
    """Spaces in them."""
    bound: int | None
    """``LLC_QDRANT_COLLECTIONS``; None for the embedded engine."""


async def set_bound(conn: Connection, max_collections: int | None) -> None:
    """The bound for all processes of the installation. Read first, for a server that accepts reads only."""
    stored = await only_row(await conn.execute(SELECT_BOUND))
    if stored["max_collections"] != max_collections:
        await conn.execute(SET_BOUND, {"max": max_collections})


async def place(
    conn: Connection, container_id: str, embedder: str, version: str, dims: int
) -> str | None:
    """The shared collection for a new space of a container; None for one of its own."""
    name = shared_collection(embedder, version, dims)
    await conn.execute(LOCK, {"key": LOCK_KEY})  # concurrent creations count each other
    values = {"container_id": container_id, "name": name, "max_points": MAX_SHARED_POINTS}
    row = await (await conn.execute(MAY_SHARE, values)).fetchone()
    return name if row is not None and row["may_share"] else None


async def usage(conn: Connection) -> CollectionUsage:
    return CollectionUsage(**await only_row(await conn.execute(USAGE)))


async def outgrown(conn: Connection) -> list[str]:
    """Active containers in shared collections with more than ``MAX_SHARED_POINTS`` points, or with a manifest that names
    a collection or layout of its own."""
    cursor = await conn.execute(OUTGROWN, {"max_points": MAX_SHARED_POINTS})
    return [row["id"] for row in await cursor.fetchall()]
