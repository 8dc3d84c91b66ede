"""Rows of embedding spaces: live, in build, retired or dropped."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from latent_core.db import placement
from latent_core.db.connection import Connection, only_row
from latent_core.domain.ids import SpaceId
from latent_core.wire.refresh import SpaceState

# Publications lock the container's row in share mode: none runs while this lock is held.
LOCK: Final = "SELECT 1 FROM containers WHERE id = %(id)s AND deleted_at IS NULL FOR NO KEY UPDATE"

LIVE: Final = """
SELECT o.id AS collection_id, o.version
FROM containers c JOIN spaces s ON s.id = c.live_space JOIN spaces o ON o.id = coalesce(s.collection_id, s.id)
WHERE c.id = %(id)s
"""

INSERT: Final = """
INSERT INTO spaces (container_id, embedder, version, dims, state, collection_id, adapter_id, embedder_dims, shared)
VALUES (%(container_id)s, %(embedder)s, %(version)s, %(dims)s, 'building', %(shares)s, %(adapter)s, %(embedder_dims)s,
        coalesce((SELECT o.shared FROM spaces o WHERE o.id = %(shares)s), %(shared)s))
RETURNING id
"""

SET_STATE: Final = """
UPDATE spaces
SET state = %(state)s,
    retired_at = CASE WHEN %(state)s = 'retired' THEN now() END,
    keep_until = CASE WHEN %(state)s = 'retired' THEN now() + %(keep)s END
WHERE id = %(id)s
"""

SET_VERSION: Final = "UPDATE spaces SET version = %(version)s WHERE id = %(id)s"

POINT: Final = """
UPDATE containers
SET live_space = %(space_id)s, manifest = %(manifest)s::jsonb, etag = %(etag)s, updated_at = now()
WHERE id = %(id)s
"""

OVERDUE: Final = (
    "SELECT keep_until IS NULL OR keep_until <= now() AS overdue FROM spaces WHERE id = %(id)s"
)

SHARED: Final = """
SELECT count(*) AS others FROM spaces
WHERE container_id = %(container_id)s AND id <> %(id)s AND coalesce(collection_id, id) = %(collection_id)s
"""

USES: Final = """
SELECT s.container_id, s.embedder, s.version, s.state FROM spaces s JOIN containers c ON c.id = s.container_id
WHERE s.state <> 'dropping' AND c.deleted_at IS NULL
ORDER BY s.container_id, s.id
"""

MODELS: Final = """
SELECT s.embedder, s.version, coalesce(s.embedder_dims, s.dims) AS dims FROM spaces s
JOIN containers c ON c.id = s.container_id
WHERE s.state IN ('live', 'building') AND c.deleted_at IS NULL
GROUP BY 1, 2, 3 ORDER BY bool_or(s.state = 'live') DESC, 1, 2, 3
"""

EMBEDDERS: Final = "SELECT DISTINCT embedder FROM spaces ORDER BY embedder"

REMOVE: Final = """
WITH gone AS (DELETE FROM spaces WHERE id = %(id)s AND state = 'dropping' RETURNING id, container_id, shared)
INSERT INTO former_spaces (id, container_id, shared) SELECT id, container_id, shared FROM gone ON CONFLICT DO NOTHING
"""


async def embedders(conn: Connection) -> list[str]:
    """The embedders of all spaces."""
    return [row["embedder"] for row in await (await conn.execute(EMBEDDERS)).fetchall()]


class SpaceUse(NamedTuple):
    """A space and what makes its vectors."""

    container_id: str
    embedder: str
    version: str
    state: SpaceState


async def uses(conn: Connection) -> list[SpaceUse]:
    """All spaces of all containers, those in build and those kept after a refresh included."""
    rows = await (await conn.execute(USES)).fetchall()
    return [SpaceUse(**{**row, "state": SpaceState(row["state"])}) for row in rows]


class SpaceModel(NamedTuple):
    """What makes the vectors of spaces."""

    embedder: str
    version: str
    dims: int


async def models(conn: Connection) -> list[SpaceModel]:
    """Of all live and unfinished spaces, those of live ones first."""
    return [SpaceModel(**row) for row in await (await conn.execute(MODELS)).fetchall()]


OF_CONTAINER: Final = """
SELECT id, embedder, version, dims, state, keep_until FROM spaces
WHERE container_id = %(container_id)s AND state <> 'dropping'
ORDER BY id DESC
LIMIT 20
"""


class SpaceRow(NamedTuple):
    """A space of one container."""

    id: SpaceId
    embedder: str
    version: str
    dims: int
    state: SpaceState
    keep_until: datetime | None
    """Of a retired one: until then, a rollback restores it."""


async def of_container(conn: Connection, container_id: str) -> list[SpaceRow]:
    """Live, in build and retired ones, newest first."""
    rows = await (await conn.execute(OF_CONTAINER, {"container_id": container_id})).fetchall()
    return [SpaceRow(**{**row, "state": SpaceState(row["state"])}) for row in rows]


async def lock(conn: Connection, container_id: str) -> bool:
    """Block publications, deletions and other switches of a container until the transaction ends."""
    return await (await conn.execute(LOCK, {"id": container_id})).fetchone() is not None


class LiveSpace(NamedTuple):
    collection_id: SpaceId
    """The collection of the live space."""
    version: str
    """Version of the embedder that made the vectors in the collection."""


async def live(conn: Connection, container_id: str) -> LiveSpace | None:
    """Hold the container first, so that the answer stays true."""
    row = await (await conn.execute(LIVE, {"id": container_id})).fetchone()
    return LiveSpace(SpaceId(row["collection_id"]), row["version"]) if row else None


async def insert(
    conn: Connection,
    container_id: str,
    *,
    embedder: str,
    version: str,
    dims: int,
    shares: int | None = None,
    adapter: int | None = None,
    embedder_dims: int | None = None,
    own_collection: bool = False,
) -> SpaceId:
    """A space in build; at most one per container."""
    shared = None
    if shares is None and not own_collection:
        shared = await placement.place(conn, container_id, embedder, version, dims)
    values = {
        "shared": shared,
        "container_id": container_id,
        "embedder": embedder,
        "version": version,
        "dims": dims,
        "shares": shares,
        "adapter": adapter,
        "embedder_dims": embedder_dims,
    }
    return SpaceId((await only_row(await conn.execute(INSERT, values)))["id"])


async def set_state(
    conn: Connection, space_id: int, state: SpaceState, *, keep_days: float = 0.0
) -> None:
    """``keep_days`` applies to the retired space."""
    values = {"id": space_id, "state": state.value, "keep": timedelta(days=keep_days)}
    await conn.execute(SET_STATE, values)


async def set_version(conn: Connection, space_id: int, version: str) -> None:
    await conn.execute(SET_VERSION, {"id": space_id, "version": version})


async def point(
    conn: Connection, container_id: str, space_id: int, manifest: str, etag: str
) -> None:
    """Search the container in ``space_id`` from the commit on, with the matching manifest."""
    values = {"id": container_id, "space_id": space_id, "manifest": manifest, "etag": etag}
    await conn.execute(POINT, values)


async def overdue(conn: Connection, space_id: int) -> bool:
    """Whether a retired space has been kept long enough."""
    row = await (await conn.execute(OVERDUE, {"id": space_id})).fetchone()
    return bool(row and row["overdue"])


async def is_shared(conn: Connection, container_id: str, space_id: int, collection_id: int) -> bool:
    """Whether another space reads the collection of this one."""
    values = {"container_id": container_id, "id": space_id, "collection_id": collection_id}
    return bool((await only_row(await conn.execute(SHARED, values)))["others"])


async def remove(conn: Connection, space_id: int) -> None:
    """Delete the row of a space whose collection is gone."""
    await conn.execute(REMOVE, {"id": space_id})
