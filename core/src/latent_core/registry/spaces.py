"""Rows of embedding spaces beside the live one: what is embedded in them, what is missing, what they share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import orjson

from latent_core.domain.ids import SpaceId
from latent_core.domain.refresh import SpaceState
from latent_core.registry.connection import Connection

# Publications hold the container's row in share mode: while this lock is held none is under way.
LOCK: Final = "SELECT 1 FROM containers WHERE id = %(id)s AND deleted_at IS NULL FOR NO KEY UPDATE"

LIVE_COLLECTION: Final = """
SELECT coalesce(s.stored_in, s.id) AS stored_in
FROM containers c JOIN spaces s ON s.id = c.live_space WHERE c.id = %(id)s
"""

LIVE: Final = """
SELECT o.id AS stored_in, o.version
FROM containers c JOIN spaces s ON s.id = c.live_space JOIN spaces o ON o.id = coalesce(s.stored_in, s.id)
WHERE c.id = %(id)s
"""

LIVE_VERSION: Final = """
SELECT o.version
FROM containers c JOIN spaces s ON s.id = c.live_space JOIN spaces o ON o.id = coalesce(s.stored_in, s.id)
WHERE c.id = %(id)s
"""

INSERT: Final = """
INSERT INTO spaces (container_id, embedder, version, dims, state, stored_in, adapter_id, embedder_dims)
VALUES (%(container_id)s, %(embedder)s, %(version)s, %(dims)s, 'building', %(shares)s, %(adapter)s, %(embedder_dims)s)
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

SET_ADAPTER: Final = "UPDATE spaces SET adapter_id = %(adapter)s WHERE id = %(id)s"

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
WHERE container_id = %(container_id)s AND id <> %(id)s AND coalesce(stored_in, id) = %(stored_in)s
"""

REMOVE: Final = """
WITH gone AS (DELETE FROM spaces WHERE id = %(id)s AND state = 'dropping' RETURNING id, container_id)
INSERT INTO former_spaces (id, container_id) SELECT id, container_id FROM gone ON CONFLICT DO NOTHING
"""

FORGET: Final = """
DELETE FROM embedded WHERE ctid = ANY (ARRAY(SELECT ctid FROM embedded WHERE stored_in = %(stored_in)s LIMIT %(limit)s))
"""

FORGET_COUNTS: Final = """
DELETE FROM point_counts WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM point_counts WHERE container_id = %(container_id)s AND stored_in = %(stored_in)s LIMIT %(limit)s))
"""

MISSING: Final = """
SELECT d.id, d.live_generation AS generation, d.live_chunks AS chunks
FROM documents d
WHERE d.container_id = %(container_id)s AND d.deleted_at IS NULL AND d.live_generation IS NOT NULL
  AND d.live_chunks > 0 AND d.id > %(after)s
  AND NOT EXISTS (
      SELECT 1 FROM embedded e
      WHERE e.doc_id = d.id AND e.stored_in = %(stored_in)s AND e.generation = d.live_generation
        AND (%(job_id)s::bigint IS NULL OR e.job_id = %(job_id)s))
ORDER BY d.id
LIMIT %(limit)s
"""

MAPPED: Final = """
SELECT d.id, d.live_generation AS generation, d.live_chunks AS chunks
FROM embedded e JOIN documents d ON d.id = e.doc_id AND d.live_generation = e.generation
WHERE e.stored_in = %(stored_in)s AND e.mapped AND e.doc_id > %(after)s AND d.deleted_at IS NULL AND d.live_chunks > 0
ORDER BY d.id
LIMIT %(limit)s
"""

TOTALS: Final = """
SELECT count(*) AS documents, coalesce(sum(d.live_chunks), 0)::bigint AS chunks
FROM documents d
WHERE d.container_id = %(container_id)s AND d.deleted_at IS NULL AND d.live_generation IS NOT NULL AND d.live_chunks > 0
"""

DONE: Final = """
SELECT coalesce(sum(d.live_chunks), 0)::bigint AS chunks
FROM embedded e JOIN documents d ON d.id = e.doc_id AND d.live_generation = e.generation
WHERE e.stored_in = %(stored_in)s AND d.container_id = %(container_id)s AND d.deleted_at IS NULL
  AND (%(job_id)s::bigint IS NULL OR e.job_id = %(job_id)s)
"""

ALL_LIVE: Final = """
INSERT INTO embedded (doc_id, stored_in, generation)
SELECT d.id, %(stored_in)s, d.live_generation
FROM documents d
WHERE d.container_id = %(container_id)s AND d.deleted_at IS NULL AND d.live_generation IS NOT NULL AND d.live_chunks > 0
  AND NOT EXISTS (SELECT 1 FROM embedded e WHERE e.doc_id = d.id AND e.stored_in = %(stored_in)s
                  AND e.generation = d.live_generation)
ORDER BY d.id
ON CONFLICT (doc_id, stored_in) DO UPDATE SET generation = excluded.generation, job_id = NULL, mapped = false
"""

STILL_LIVE: Final = """
SELECT d.id FROM documents d
JOIN unnest(%(ids)s::uuid[], %(generations)s::integer[]) AS w (id, generation)
  ON w.id = d.id AND w.generation = d.live_generation
WHERE d.deleted_at IS NULL
ORDER BY d.id
FOR SHARE OF d
"""

RECORD: Final = """
INSERT INTO embedded (doc_id, stored_in, generation, job_id, mapped)
SELECT w.id, %(stored_in)s, w.generation, %(job_id)s, %(mapped)s
FROM unnest(%(ids)s::uuid[], %(generations)s::integer[]) AS w (id, generation)
ORDER BY w.id
ON CONFLICT (doc_id, stored_in) DO UPDATE
SET generation = excluded.generation, job_id = excluded.job_id, mapped = excluded.mapped
WHERE embedded.generation <= excluded.generation
"""

UNRECORD: Final = (
    "DELETE FROM embedded WHERE stored_in = %(stored_in)s AND doc_id = ANY(%(ids)s::uuid[])"
)

COUNT_POINTS: Final = """
INSERT INTO point_counts (container_id, ord, stored_in, windows)
SELECT c.container_id, c.ord, %(stored_in)s, w.windows
FROM unnest(%(ords)s::bigint[], %(windows)s::integer[]) AS w (ord, windows)
JOIN chunks c ON c.container_id = %(container_id)s AND c.ord = w.ord
LEFT JOIN point_counts p ON p.container_id = c.container_id AND p.ord = c.ord AND p.stored_in = %(stored_in)s
WHERE w.windows <> coalesce(p.windows, c.windows)
ORDER BY c.ord
ON CONFLICT (container_id, ord, stored_in) DO UPDATE SET windows = excluded.windows
"""

TEXTS: Final = """
SELECT c.doc_id, c.generation, c.id, c.ord, c.embed_text, g.image_sha256 AS picture, c.windows,
       p.windows AS stored_windows
FROM unnest(%(ids)s::uuid[], %(generations)s::integer[]) AS w (doc_id, generation)
JOIN chunks c ON c.doc_id = w.doc_id AND c.generation = w.generation
LEFT JOIN point_counts p ON p.container_id = c.container_id AND p.ord = c.ord AND p.stored_in = %(stored_in)s
LEFT JOIN pages g ON c.modality = 'image' AND g.doc_id = c.doc_id AND g.generation = c.generation AND g.page = c.page
WHERE c.ord > %(after)s
ORDER BY c.ord
LIMIT %(limit)s
"""

# Of each document so large a share as of all: its chunks stand evenly between 0 and 1, moved by a part of a
# step that its id decides, so that many short documents are met as often as few long ones.
SAMPLE: Final = """
SELECT doc_id, generation, id, ord, embed_text, picture
FROM (
    SELECT c.doc_id, c.generation, c.id, c.ord, c.embed_text, g.image_sha256 AS picture,
           (row_number() OVER (PARTITION BY c.doc_id ORDER BY md5(c.ord::text))
            - ('x' || left(md5(c.doc_id::text), 8))::bit(32)::bigint / 4294967296.0)
           / count(*) OVER (PARTITION BY c.doc_id) AS place
    FROM chunks c JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
    LEFT JOIN point_counts p ON p.container_id = c.container_id AND p.ord = c.ord AND p.stored_in = %(stored_in)s
    LEFT JOIN pages g ON c.modality = 'image' AND g.doc_id = c.doc_id AND g.generation = c.generation AND g.page = c.page
    WHERE c.container_id = %(container_id)s AND d.deleted_at IS NULL AND coalesce(p.windows, c.windows) = 1
) placed
ORDER BY place, md5(doc_id::text), ord
LIMIT %(limit)s
"""

COSTS: Final = """
SELECT count(*) AS chunks, coalesce(sum(c.windows), 0)::bigint AS texts, coalesce(sum(c.token_count), 0)::bigint AS tokens,
       count(*) FILTER (WHERE k.content_hash IS NOT NULL) AS cached,
       coalesce(sum(c.windows) FILTER (WHERE k.content_hash IS NOT NULL), 0)::bigint AS cached_texts,
       coalesce(sum(c.token_count) FILTER (WHERE k.content_hash IS NOT NULL), 0)::bigint AS cached_tokens
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
LEFT JOIN pages g ON %(reads_images)s AND c.modality = 'image' AND g.doc_id = c.doc_id
                  AND g.generation = c.generation AND g.page = c.page
LEFT JOIN embedding_cache k
  ON k.space = %(key)s
     AND k.content_hash = coalesce(g.image_sha256, encode(sha256(convert_to(c.embed_text, 'UTF8')), 'hex'))
WHERE c.container_id = %(container_id)s AND d.deleted_at IS NULL
"""

# Chunks that are pages, of which nothing stands in a collection: their pictures could not be embedded.
UNSEEN: Final = """
SELECT count(*) AS pages
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
LEFT JOIN point_counts p ON p.container_id = c.container_id AND p.ord = c.ord AND p.stored_in = %(stored_in)s
WHERE c.container_id = %(container_id)s AND d.deleted_at IS NULL AND c.modality = 'image'
  AND coalesce(p.windows, c.windows) = 0
"""

SHOWS: Final = """
SELECT 1
FROM embedded e
JOIN documents d ON d.id = e.doc_id AND d.live_generation = e.generation
JOIN chunks c ON c.doc_id = d.id AND c.generation = d.live_generation AND c.modality = 'image'
JOIN pages g ON g.doc_id = c.doc_id AND g.generation = c.generation AND g.page = c.page AND g.image_sha256 IS NOT NULL
LEFT JOIN point_counts p ON p.container_id = c.container_id AND p.ord = c.ord AND p.stored_in = %(stored_in)s
WHERE e.stored_in = %(stored_in)s AND c.container_id = %(container_id)s AND d.deleted_at IS NULL
  AND (%(job_id)s::bigint IS NULL OR e.job_id = %(job_id)s) AND coalesce(p.windows, c.windows) > 0
LIMIT 1
"""

PAGE_OF: Final = """
SELECT c.page, d.uri FROM chunks c JOIN documents d ON d.id = c.doc_id
WHERE c.container_id = %(container_id)s AND c.ord = %(ord)s
"""

INSERT_ADAPTER: Final = """
INSERT INTO drift_adapters (container_id, way, old_embedder, old_version, old_dims, new_embedder, new_version, new_dims,
                            pairs, adapter, measured)
VALUES (%(container_id)s, %(way)s, %(old_embedder)s, %(old_version)s, %(old_dims)s, %(new_embedder)s, %(new_version)s,
        %(new_dims)s, %(pairs)s, %(adapter)s, %(measured)s::jsonb)
RETURNING id
"""

ADAPTER: Final = "SELECT adapter FROM drift_adapters WHERE id = %(id)s"

ORIGINALS: Final = """
SELECT d.id, d.uri, d.mime, d.meta, d.given_meta, d.validators, d.source_modified_at, d.source_mtime_ns, d.fetched_at,
       d.source_type, r.sha256, r.mime AS blob_mime, r.filename
FROM documents d
JOIN blob_refs r ON r.doc_id = d.id AND r.generation = d.live_generation AND r.role = 'original' AND r.part = 0
WHERE d.container_id = %(container_id)s AND d.deleted_at IS NULL AND d.parent_id IS NULL AND d.id > %(after)s
ORDER BY d.id
LIMIT %(limit)s
"""

FIRST: Final = UUID(int=0)


@dataclass(frozen=True, slots=True)
class LiveDocument:
    """A document as it is visible now."""

    id: UUID
    generation: int
    chunks: int


@dataclass(frozen=True, slots=True)
class StoredText:
    """What a chunk's vectors are made of."""

    doc_id: UUID
    generation: int
    id: UUID
    ord: int
    embed_text: str
    picture: str | None
    """The hash of the page that the chunk is, for embedders that read pictures; None of a text, or not drawn."""
    points: int | None
    """That stand in the collection under its ids; None where nothing is known of it."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Live chunks, the texts and tokens they are for an embedder, and those whose vectors are kept."""

    documents: int
    chunks: int
    texts: int
    tokens: int
    cached: int
    cached_texts: int
    cached_tokens: int


async def lock(conn: Connection, container_id: str) -> bool:
    """Keep publications, deletions and other switches of a container out until the transaction ends."""
    return await (await conn.execute(LOCK, {"id": container_id})).fetchone() is not None


async def live_collection(conn: Connection, container_id: str) -> SpaceId | None:
    """Where the live space's points are. Hold the container first: then it stays so."""
    row = await (await conn.execute(LIVE_COLLECTION, {"id": container_id})).fetchone()
    return SpaceId(row["stored_in"]) if row else None


async def live(conn: Connection, container_id: str) -> tuple[SpaceId, str] | None:
    """Both of these at once. Hold the container first."""
    row = await (await conn.execute(LIVE, {"id": container_id})).fetchone()
    return (SpaceId(row["stored_in"]), str(row["version"])) if row else None


async def live_version(conn: Connection, container_id: str) -> str | None:
    """Of the embedder that what is in the live collection was made by. Hold the container first."""
    row = await (await conn.execute(LIVE_VERSION, {"id": container_id})).fetchone()
    return row["version"] if row else None


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
) -> SpaceId:
    """A space that is being built; one a container at a time."""
    values = {
        "container_id": container_id,
        "embedder": embedder,
        "version": version,
        "dims": dims,
        "shares": shares,
        "adapter": adapter,
        "embedder_dims": embedder_dims,
    }
    return SpaceId(_one(await (await conn.execute(INSERT, values)).fetchone())["id"])


async def set_state(
    conn: Connection, space_id: int, state: SpaceState, *, keep_days: float = 0.0
) -> None:
    """``keep_days`` is for what retires."""
    values = {"id": space_id, "state": state.value, "keep": timedelta(days=keep_days)}
    await conn.execute(SET_STATE, values)


async def set_version(conn: Connection, space_id: int, version: str) -> None:
    await conn.execute(SET_VERSION, {"id": space_id, "version": version})


async def set_adapter(conn: Connection, space_id: int, adapter: int) -> None:
    """By which its first points were mapped: lineage."""
    await conn.execute(SET_ADAPTER, {"id": space_id, "adapter": adapter})


async def point(
    conn: Connection, container_id: str, space_id: int, manifest: str, etag: str
) -> None:
    """Have a container searched in ``space_id`` from the commit on, with the manifest that says so."""
    values = {"id": container_id, "space_id": space_id, "manifest": manifest, "etag": etag}
    await conn.execute(POINT, values)


async def overdue(conn: Connection, space_id: int) -> bool:
    """Whether a retired space has been kept long enough."""
    row = await (await conn.execute(OVERDUE, {"id": space_id})).fetchone()
    return bool(row and row["overdue"])


async def is_shared(conn: Connection, container_id: str, space_id: int, stored_in: int) -> bool:
    """Whether another space reads the collection of this one."""
    values = {"container_id": container_id, "id": space_id, "stored_in": stored_in}
    return bool(_one(await (await conn.execute(SHARED, values)).fetchone())["others"])


async def remove(conn: Connection, space_id: int) -> None:
    """The row of a space whose collection is gone."""
    await conn.execute(REMOVE, {"id": space_id})


async def forget_some(conn: Connection, container_id: str, stored_in: int, limit: int) -> int:
    """Drop what is known of a collection's points, ``limit`` rows of each kind; how many went."""
    values = {"container_id": container_id, "stored_in": stored_in, "limit": limit}
    gone = (await conn.execute(FORGET, values)).rowcount
    return gone + (await conn.execute(FORGET_COUNTS, values)).rowcount


async def missing(
    conn: Connection,
    container_id: str,
    stored_in: int,
    *,
    after: UUID = FIRST,
    limit: int,
    job_id: int | None = None,
) -> list[LiveDocument]:
    """Live documents with no points in a collection; with ``job_id``, with none that this job wrote."""
    values = {
        "container_id": container_id,
        "stored_in": stored_in,
        "after": after,
        "limit": limit,
        "job_id": job_id,
    }
    return _documents(await (await conn.execute(MISSING, values)).fetchall())


async def mapped(
    conn: Connection, stored_in: int, *, after: UUID = FIRST, limit: int
) -> list[LiveDocument]:
    """Live documents whose vectors in a collection are another model's, mapped."""
    values = {"stored_in": stored_in, "after": after, "limit": limit}
    return _documents(await (await conn.execute(MAPPED, values)).fetchall())


async def totals(conn: Connection, container_id: str) -> tuple[int, int]:
    """Live documents with chunks, and their chunks."""
    row = _one(await (await conn.execute(TOTALS, {"container_id": container_id})).fetchone())
    return int(row["documents"]), int(row["chunks"])


async def done(conn: Connection, container_id: str, stored_in: int, job_id: int | None) -> int:
    """Live chunks that a collection holds; with ``job_id``, those that this job wrote."""
    values = {"container_id": container_id, "stored_in": stored_in, "job_id": job_id}
    return int(_one(await (await conn.execute(DONE, values)).fetchone())["chunks"])


async def note_all_live(conn: Connection, container_id: str, stored_in: int) -> None:
    """What is live has its points in this collection: said when it ceases to be the live one."""
    await conn.execute(ALL_LIVE, {"container_id": container_id, "stored_in": stored_in})


async def still_live(conn: Connection, wanted: Sequence[LiveDocument]) -> set[UUID]:
    """Those documents of which that generation is visible; it stays so until the transaction ends."""
    values = {"ids": [d.id for d in wanted], "generations": [d.generation for d in wanted]}
    return {row["id"] for row in await (await conn.execute(STILL_LIVE, values)).fetchall()}


async def record(
    conn: Connection,
    stored_in: int,
    embedded: Iterable[tuple[UUID, int]],
    *,
    job_id: int | None = None,
    mapped: bool = False,
) -> None:
    """These generations have all their points in a collection."""
    pairs = sorted(embedded)
    if pairs:
        values = {
            "stored_in": stored_in,
            "ids": [doc_id for doc_id, _ in pairs],
            "generations": [generation for _, generation in pairs],
            "job_id": job_id,
            "mapped": mapped,
        }
        await conn.execute(RECORD, values)


async def unrecord(conn: Connection, stored_in: int, doc_ids: Iterable[UUID]) -> None:
    """Points of these documents turned out to lack."""
    await conn.execute(UNRECORD, {"stored_in": stored_in, "ids": sorted(doc_ids)})


async def count_points(
    conn: Connection, container_id: str, stored_in: int, windows: Mapping[int, int]
) -> None:
    """Ord to its number of points in a collection; kept where it is not what the chunk's row says."""
    ords = sorted(windows)
    if ords:
        values = {
            "container_id": container_id,
            "stored_in": stored_in,
            "ords": ords,
            "windows": [windows[ord_] for ord_ in ords],
        }
        await conn.execute(COUNT_POINTS, values)


async def texts(
    conn: Connection,
    wanted: Sequence[LiveDocument],
    stored_in: int,
    *,
    like_the_chunks: bool,
    after: int,
    limit: int,
) -> list[StoredText]:
    """What the chunks of these generations are embedded from, in ord order.

    ``like_the_chunks``: the collection was written with the chunks, so that their rows tell how many points
    there are wherever nothing else does.
    """
    values = {
        "ids": [d.id for d in wanted],
        "generations": [d.generation for d in wanted],
        "stored_in": stored_in,
        "after": after,
        "limit": limit,
    }
    return [
        StoredText(
            row["doc_id"],
            row["generation"],
            row["id"],
            row["ord"],
            row["embed_text"],
            row["picture"],
            _points(row, like_the_chunks=like_the_chunks),
        )
        for row in await (await conn.execute(TEXTS, values)).fetchall()
    ]


def _points(row: Mapping[str, Any], *, like_the_chunks: bool) -> int | None:
    stored: int | None = row["stored_windows"]
    return row["windows"] if stored is None and like_the_chunks else stored


async def unseen(conn: Connection, container_id: str, stored_in: int) -> int:
    """Live pages that are chunks, and have no point in a collection."""
    values = {"container_id": container_id, "stored_in": stored_in}
    return int(_one(await (await conn.execute(UNSEEN, values)).fetchone())["pages"])


async def shows(conn: Connection, container_id: str, stored_in: int, job_id: int | None) -> bool:
    """Whether a picture has a point there already; with ``job_id``, one that this job wrote."""
    values = {"container_id": container_id, "stored_in": stored_in, "job_id": job_id}
    return await (await conn.execute(SHOWS, values)).fetchone() is not None


async def page_of(conn: Connection, container_id: str, ord_: int) -> tuple[int | None, str] | None:
    """The page that a chunk is, and the uri of its document."""
    row = await (
        await conn.execute(PAGE_OF, {"container_id": container_id, "ord": ord_})
    ).fetchone()
    return (row["page"], row["uri"]) if row else None


async def sample(
    conn: Connection, container_id: str, stored_in: int, limit: int
) -> list[StoredText]:
    """Live chunks of one point each, of every document about the same share; always the same ones."""
    values = {"container_id": container_id, "stored_in": stored_in, "limit": limit}
    return [
        StoredText(
            row["doc_id"],
            row["generation"],
            row["id"],
            row["ord"],
            row["embed_text"],
            row["picture"],
            1,
        )
        for row in await (await conn.execute(SAMPLE, values)).fetchall()
    ]


async def costs(
    conn: Connection, container_id: str, key: str, *, reads_images: bool = False
) -> Costs:
    """What a full re-embed by the model ``key`` would read."""
    documents, _ = await totals(conn, container_id)
    values = {"container_id": container_id, "key": key, "reads_images": reads_images}
    row = _one(await (await conn.execute(COSTS, values)).fetchone())
    return Costs(documents=documents, **{name: int(value) for name, value in row.items()})


async def insert_adapter(
    conn: Connection,
    container_id: str,
    *,
    way: str,
    old: Any,
    new: Any,
    pairs: int,
    adapter: bytes,
    measured: dict[str, Any],
) -> int:
    """Keep a trained adapter with its lineage; ``old`` and ``new`` are the models on either side."""
    values = {
        "container_id": container_id,
        "way": way,
        "old_embedder": old.embedder,
        "old_version": old.version,
        "old_dims": old.dims,
        "new_embedder": new.embedder,
        "new_version": new.version,
        "new_dims": new.dims,
        "pairs": pairs,
        "adapter": adapter,
        "measured": orjson.dumps(measured).decode(),
    }
    return int(_one(await (await conn.execute(INSERT_ADAPTER, values)).fetchone())["id"])


async def adapter(conn: Connection, adapter_id: int) -> bytes | None:
    row = await (await conn.execute(ADAPTER, {"id": adapter_id}, binary=True)).fetchone()
    return bytes(row["adapter"]) if row else None


async def originals(
    conn: Connection, container_id: str, *, after: UUID, limit: int
) -> list[dict[str, Any]]:
    """Live documents with a stored original, in id order; records come with their corpus."""
    values = {"container_id": container_id, "after": after, "limit": limit}
    return await (await conn.execute(ORIGINALS, values)).fetchall()


def _documents(rows: Iterable[Mapping[str, Any]]) -> list[LiveDocument]:
    return [LiveDocument(row["id"], row["generation"], row["chunks"]) for row in rows]


def _one(row: dict[str, Any] | None) -> dict[str, Any]:
    if row is None:
        raise RuntimeError("a statement that answers one row answered none")
    return row
