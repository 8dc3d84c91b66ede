"""Rows of containers, their embedding spaces and their chunk_no counters."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import orjson

from latent_core.db import placement
from latent_core.db.connection import Connection
from latent_core.db.documents.documents import STATE
from latent_core.domain.ids import SpaceId, collection_name
from latent_core.domain.manifest.model import Manifest
from latent_core.wire.containers import ContainerSizes, ContainerState
from latent_core.wire.refresh import SpaceState


@dataclass(frozen=True, slots=True)
class Space:
    """An embedding space of a container: the model of its vectors and their collection."""

    id: SpaceId
    container_id: str
    embedder: str
    version: str
    dims: int
    """Of the stored vectors."""
    state: SpaceState = SpaceState.LIVE
    shares: SpaceId | None = None
    """The space whose collection it reads; None when it has its own."""
    adapter: int | None = None
    """Maps vectors of the embedder (``embedder_dims``) into the collection."""
    embedder_dims: int | None = None
    retired_at: datetime | None = None
    shared: str | None = None
    """The shared collection that holds its points; None when they have a collection of their own."""

    @property
    def collection_id(self) -> SpaceId:
        """Id of the collection; the tables of points refer to it."""
        return self.shares or self.id

    @property
    def made_by(self) -> str | None:
        """The model version of the vectors in its collection; None where another space owns the collection."""
        return None if self.shares is not None else self.version

    @property
    def is_adapted(self) -> bool:
        """Whether the adapter maps every vector of its embedder; if not, it mapped only the first points."""
        return self.adapter is not None and self.shares is not None

    @property
    def lineage(self) -> str:
        """The version that is stored with new vectors."""
        return f"{self.version}+drift{self.adapter}" if self.is_adapted else self.version

    def collection(self, modality: str = "text") -> str:
        return collection_name(self.container_id, modality, self.collection_id, self.shared)


@dataclass(frozen=True, slots=True)
class Container:
    """A container with its live space."""

    id: str
    manifest: Manifest
    etag: str
    state: ContainerState
    space: Space
    languages: tuple[str, ...]
    """Languages in which its documents were analysed."""
    created_at: datetime
    updated_at: datetime
    chunks_by_language: Mapping[str, int] = field(default_factory=dict)
    """Number of live documents with a known language."""
    bucket: str = ""
    """Of its blobs; "" for the installation's own."""
    average_length: float = 0.0
    """Terms per live chunk."""
    is_empty: bool = False
    """It holds no live chunk."""
    has_generated: bool = False
    """It holds chunks that a model wrote, of earlier generations perhaps."""
    has_summaries: bool = False
    """It may hold summaries, deleted ones perhaps."""


INSERT: Final = """
INSERT INTO containers (id, manifest, etag, bucket) VALUES (%(id)s, %(manifest)s::jsonb, %(etag)s, %(bucket)s)
ON CONFLICT (id) DO NOTHING
RETURNING id
"""

INSERT_SPACE: Final = """
WITH space AS (
    INSERT INTO spaces (container_id, embedder, version, dims, state, shared)
    VALUES (%(container_id)s, %(embedder)s, %(version)s, %(dims)s, 'live', %(shared)s)
    RETURNING id
), pointed AS (
    UPDATE containers SET live_space = (SELECT id FROM space) WHERE id = %(container_id)s
), counted AS (
    INSERT INTO chunk_no_counters (container_id) VALUES (%(container_id)s)
)
INSERT INTO keyword_stats (container_id) VALUES (%(container_id)s)
"""

# ``named``: only containers whose roles contain one of these principals. Rows of other containers are not even read:
# the time for that would reveal that they exist.
SELECT: Final = """
SELECT c.id, c.manifest, c.etag, c.state, c.bucket, c.created_at, c.updated_at,
       s.id AS space_id, s.embedder, s.version, s.dims, s.state AS space_state, s.collection_id, s.adapter_id,
       s.embedder_dims, s.retired_at, s.shared,
       ARRAY(SELECT l.language FROM container_languages l WHERE l.container_id = c.id ORDER BY l.language) AS languages,
       (SELECT k.languages FROM keyword_stats k WHERE k.container_id = c.id) AS chunks_by_language,
       (SELECT k.live_length::float8 / nullif(k.live_chunks, 0) FROM keyword_stats k WHERE k.container_id = c.id) AS average_length,
       (SELECT k.live_chunks = 0 FROM keyword_stats k WHERE k.container_id = c.id) AS is_empty,
       EXISTS (SELECT FROM chunks g WHERE g.container_id = c.id AND g.generated IS NOT NULL) AS has_generated,
       (EXISTS (SELECT FROM postings p WHERE p.container_id = c.id AND p.term = '~')
        OR EXISTS (SELECT FROM unmerged_postings p WHERE p.container_id = c.id AND p.term = '~')) AS has_summaries
FROM containers c JOIN spaces s ON s.id = c.live_space
WHERE c.deleted_at IS NULL AND c.id = ANY(%(ids)s)
  AND (%(named)s::text[] IS NULL OR c.manifest #> '{acl,roles,owner}' ?| %(named)s::text[]
       OR (c.state <> 'archived' AND c.manifest #> '{acl,roles,writer}' ?| %(named)s::text[])
       OR (c.state <> 'archived' AND c.manifest #> '{acl,roles,reader}' ?| %(named)s::text[])
       OR c.id = ANY(%(granted)s::text[]))
"""

SELECT_ALL: Final = """
SELECT c.id, c.manifest, c.etag, c.state, c.bucket, c.created_at, c.updated_at,
       s.id AS space_id, s.embedder, s.version, s.dims, s.state AS space_state, s.collection_id, s.adapter_id,
       s.embedder_dims, s.retired_at, s.shared,
       ARRAY(SELECT l.language FROM container_languages l WHERE l.container_id = c.id ORDER BY l.language) AS languages,
       (SELECT k.languages FROM keyword_stats k WHERE k.container_id = c.id) AS chunks_by_language,
       (SELECT k.live_length::float8 / nullif(k.live_chunks, 0) FROM keyword_stats k WHERE k.container_id = c.id) AS average_length,
       (SELECT k.live_chunks = 0 FROM keyword_stats k WHERE k.container_id = c.id) AS is_empty,
       EXISTS (SELECT FROM chunks g WHERE g.container_id = c.id AND g.generated IS NOT NULL) AS has_generated,
       (EXISTS (SELECT FROM postings p WHERE p.container_id = c.id AND p.term = '~')
        OR EXISTS (SELECT FROM unmerged_postings p WHERE p.container_id = c.id AND p.term = '~')) AS has_summaries
FROM containers c JOIN spaces s ON s.id = c.live_space
WHERE c.deleted_at IS NULL
  AND (%(named)s::text[] IS NULL OR c.manifest #> '{acl,roles,owner}' ?| %(named)s::text[]
       OR (c.state <> 'archived' AND c.manifest #> '{acl,roles,writer}' ?| %(named)s::text[])
       OR (c.state <> 'archived' AND c.manifest #> '{acl,roles,reader}' ?| %(named)s::text[])
       OR c.id = ANY(%(granted)s::text[]))
  AND (%(key)s::text[] IS NULL OR c.manifest #>> %(key)s::text[] IS NOT NULL)
ORDER BY c.id
"""

ETAGS: Final = "SELECT id, etag FROM containers WHERE deleted_at IS NULL"

UPDATE_MANIFEST: Final = """
UPDATE containers SET manifest = %(manifest)s::jsonb, etag = %(etag)s, updated_at = now()
WHERE id = %(id)s AND etag = %(if_match)s AND deleted_at IS NULL
RETURNING id
"""

SET_STATE: Final = """
UPDATE containers SET state = %(state)s, updated_at = now() WHERE id = %(id)s AND deleted_at IS NULL
"""

TOMBSTONE: Final = """
UPDATE containers SET deleted_at = now(), updated_at = now()
WHERE id = %(id)s AND deleted_at IS NULL
RETURNING id
"""

TOMBSTONED: Final = "SELECT deleted_at IS NOT NULL AS deleted FROM containers WHERE id = %(id)s"

BUCKET: Final = "SELECT bucket FROM containers WHERE id = %(id)s"

HOLD: Final = "SELECT state FROM containers WHERE id = %(id)s AND deleted_at IS NULL FOR SHARE"

# Its spaces are deleted with it; ``FORMER`` keeps their ids.
REMOVE: Final = """
WITH former AS (
    INSERT INTO former_spaces (id, container_id, shared)
    SELECT s.id, s.container_id, s.shared FROM spaces s JOIN containers c ON c.id = s.container_id
    WHERE c.id = %(id)s AND c.deleted_at IS NOT NULL
    ON CONFLICT DO NOTHING
)
DELETE FROM containers WHERE id = %(id)s AND deleted_at IS NOT NULL
"""

FORMER: Final = "SELECT id, container_id, shared FROM former_spaces"

SPACES: Final = """
SELECT s.id AS space_id, s.container_id AS id, s.embedder, s.version, s.dims, s.state AS space_state, s.collection_id,
       s.adapter_id, s.embedder_dims, s.retired_at, s.shared
FROM spaces s WHERE s.container_id = %(id)s ORDER BY s.id
"""

ALL_SPACES: Final = """
SELECT s.id AS space_id, s.container_id AS id, s.embedder, s.version, s.dims, s.state AS space_state, s.collection_id,
       s.adapter_id, s.embedder_dims, s.retired_at, s.shared
FROM spaces s ORDER BY s.id
"""

TAKE_ORDS: Final = """
UPDATE chunk_no_counters SET next_chunk_no = next_chunk_no + %(n)s
WHERE container_id = %(id)s
RETURNING next_chunk_no - %(n)s AS first
"""

ADD_LANGUAGES: Final = """
INSERT INTO container_languages (container_id, language)
SELECT %(id)s, unnest(%(languages)s::text[])
ON CONFLICT DO NOTHING
"""

SIZES: Final = f"""
SELECT count(*) FILTER (WHERE d.live_generation IS NOT NULL)                      AS documents,
       count(*) FILTER (WHERE {STATE} = 'pending')                                AS pending_documents,
       count(*) FILTER (WHERE {STATE} = 'failed')                                 AS failed_documents,
       coalesce(sum(d.live_chunks) FILTER (WHERE d.live_generation IS NOT NULL), 0)::bigint AS chunks,
       coalesce(sum(d.bytes) FILTER (WHERE d.live_generation IS NOT NULL AND d.parent_id IS NULL), 0)::bigint AS bytes,
       max(d.fetched_at)                                                          AS last_ingest_at,
       (SELECT count(*) FROM pages p JOIN documents o ON o.id = p.doc_id AND o.live_generation = p.generation
        WHERE o.container_id = %(id)s AND o.deleted_at IS NULL)                   AS pages
FROM documents d
WHERE d.container_id = %(id)s AND d.deleted_at IS NULL
"""


async def insert(conn: Connection, manifest: Manifest, etag: str, bucket: str = "") -> bool:
    """Add a container whose blobs are in ``bucket``; False when the id is taken (also by a container whose deletion still runs)."""
    cursor = await conn.execute(
        INSERT,
        {
            "id": manifest.id,
            "manifest": manifest.model_dump_json(),
            "etag": etag,
            "bucket": bucket,
        },
    )
    return await cursor.fetchone() is not None


async def insert_space(
    conn: Connection, container_id: str, embedder: str, version: str, dims: int
) -> None:
    """Give a new container its first, live space, its chunk_no counter and its keyword stats."""
    shared = await placement.place(conn, container_id, embedder, version, dims)
    await conn.execute(
        INSERT_SPACE,
        {
            "container_id": container_id,
            "embedder": embedder,
            "version": version,
            "dims": dims,
            "shared": shared,
        },
    )


async def find(
    conn: Connection,
    ids: Sequence[str],
    *,
    named: Sequence[str] | None = None,
    granted: Collection[str] = (),
) -> dict[str, Container]:
    """Those of ``ids`` that exist and are not deleted; with ``named``, only those whose roles contain one of these
    principals, and those that are ``granted`` without a role."""
    values = {"ids": list(ids), "named": named, "granted": sorted(granted)}
    cursor = await conn.execute(SELECT, values)
    return {row["id"]: _container(row) for row in await cursor.fetchall()}


async def get(conn: Connection, container_id: str) -> Container | None:
    return (await find(conn, [container_id])).get(container_id)


async def all_(
    conn: Connection,
    *,
    named: Sequence[str] | None = None,
    granted: Collection[str] = (),
    key: list[str] | None = None,
) -> list[Container]:
    """``named`` and ``granted`` as in ``find``. With ``key``, only those whose manifest has a value for it: of many
    containers, few keep a schedule."""
    values = {"named": named, "granted": sorted(granted), "key": key}
    cursor = await conn.execute(SELECT_ALL, values)
    return [_container(row) for row in await cursor.fetchall()]


async def etags(conn: Connection) -> dict[str, str]:
    """The etags of all containers by id: without their manifests, which take long to validate."""
    rows = await (await conn.execute(ETAGS)).fetchall()
    return {row["id"]: row["etag"] for row in rows}


async def update_manifest(conn: Connection, manifest: Manifest, etag: str, if_match: str) -> bool:
    """Replace the manifest if its etag is still ``if_match``."""
    cursor = await conn.execute(
        UPDATE_MANIFEST,
        {
            "id": manifest.id,
            "manifest": manifest.model_dump_json(),
            "etag": etag,
            "if_match": if_match,
        },
    )
    return await cursor.fetchone() is not None


async def set_state(conn: Connection, container_id: str, state: ContainerState) -> None:
    """Waits for transactions that hold the container: their writes are accepted before it closes."""
    await conn.execute(SET_STATE, {"id": container_id, "state": state.value})


async def tombstone(conn: Connection, container_id: str) -> bool:
    """Make a container invisible; False when it is not there."""
    return await (await conn.execute(TOMBSTONE, {"id": container_id})).fetchone() is not None


async def is_tombstoned(conn: Connection, container_id: str) -> bool:
    row = await (await conn.execute(TOMBSTONED, {"id": container_id})).fetchone()
    return bool(row and row["deleted"])


async def is_there(conn: Connection, container_id: str) -> bool:
    """Whether it exists and is not deleted."""
    row = await (await conn.execute(TOMBSTONED, {"id": container_id})).fetchone()
    return bool(row and not row["deleted"])


async def bucket(conn: Connection, container_id: str) -> str | None:
    """The bucket of a container's blobs, deleted containers included; None if there is no such container."""
    row = await (await conn.execute(BUCKET, {"id": container_id})).fetchone()
    return str(row["bucket"]) if row else None


async def hold(conn: Connection, container_id: str) -> ContainerState | None:
    """Block the deletion of a container until the transaction ends; None when it is deleted."""
    row = await (await conn.execute(HOLD, {"id": container_id})).fetchone()
    return ContainerState(row["state"]) if row else None


async def remove(conn: Connection, container_id: str) -> None:
    """Drop the row of a deleted container, after all its other data is gone."""
    await conn.execute(REMOVE, {"id": container_id})


async def spaces(conn: Connection, container_id: str) -> list[Space]:
    """All spaces of a container, deleted containers included."""
    cursor = await conn.execute(SPACES, {"id": container_id})
    return [_space(row) for row in await cursor.fetchall()]


async def all_spaces(conn: Connection) -> list[Space]:
    """The spaces of all containers, deleted ones included."""
    cursor = await conn.execute(ALL_SPACES)
    return [_space(row) for row in await cursor.fetchall()]


async def collections_made(conn: Connection) -> set[str]:
    """Collections of the existing and of former spaces of this database."""
    made = {space.collection() for space in await all_spaces(conn)}
    rows = await (await conn.execute(FORMER)).fetchall()
    return made | {
        collection_name(row["container_id"], "text", row["id"], row["shared"]) for row in rows
    }


async def take_chunk_nos(conn: Connection, container_id: str, n: int) -> int | None:
    """The first of ``n`` fresh chunk_nos; None when the container is gone.

    Commit before the first write outside Postgres: a rollback would give the same chunk_nos out again.
    """
    row = await (await conn.execute(TAKE_ORDS, {"id": container_id, "n": n})).fetchone()
    return int(row["first"]) if row else None


async def add_languages(conn: Connection, container_id: str, languages: Iterable[str]) -> None:
    """Add languages of documents that are about to be published."""
    await conn.execute(ADD_LANGUAGES, {"id": container_id, "languages": sorted(set(languages))})


async def sizes(conn: Connection, container_id: str) -> tuple[ContainerSizes, datetime | None]:
    """Sizes of a container, and the time of its last ingest."""
    row = await (await conn.execute(SIZES, {"id": container_id})).fetchone()
    if row is None:
        raise RuntimeError("an aggregate returned no row")
    counts = {name: int(row[name]) for name in ContainerSizes.model_fields}
    return ContainerSizes(**counts), row["last_ingest_at"]


@dataclass(frozen=True, slots=True)
class _StoredManifest:
    """A manifest as it is stored: the same etag is the same manifest."""

    container_id: str
    etag: str
    content: Any = field(compare=False)


@lru_cache(maxsize=4096)
def _manifest(stored: _StoredManifest) -> Manifest:
    """Cached, since every request reads its containers."""
    content = stored.content
    return Manifest.model_validate(orjson.loads(content) if isinstance(content, str) else content)


def _container(row: dict[str, Any]) -> Container:
    return Container(
        id=row["id"],
        manifest=_manifest(_StoredManifest(row["id"], row["etag"], row["manifest"])),
        etag=row["etag"],
        state=ContainerState(row["state"]),
        space=_space(row),
        languages=tuple(row["languages"]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        chunks_by_language=row["chunks_by_language"] or {},
        average_length=row["average_length"] or 0.0,
        is_empty=bool(row["is_empty"]),
        has_generated=row["has_generated"],
        has_summaries=row["has_summaries"],
        bucket=row["bucket"],
    )


def _space(row: dict[str, Any]) -> Space:
    return Space(
        id=SpaceId(row["space_id"]),
        container_id=row["id"],
        embedder=row["embedder"],
        version=row["version"],
        dims=row["dims"],
        state=SpaceState(row["space_state"]),
        shares=None if row["collection_id"] is None else SpaceId(row["collection_id"]),
        adapter=row["adapter_id"],
        embedder_dims=row["embedder_dims"],
        retired_at=row["retired_at"],
        shared=row["shared"],
    )
