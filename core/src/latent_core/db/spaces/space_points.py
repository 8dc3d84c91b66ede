"""The live documents that have their points in a collection, and the number of points per chunk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from latent_core.db.connection import Connection, only_row

FORGET: Final = """
DELETE FROM embedded WHERE ctid = ANY (ARRAY(SELECT ctid FROM embedded WHERE collection_id = %(collection_id)s LIMIT %(limit)s))
"""

FORGET_COUNTS: Final = """
DELETE FROM point_counts WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM point_counts WHERE container_id = %(container_id)s AND collection_id = %(collection_id)s LIMIT %(limit)s))
"""

MISSING: Final = """
SELECT d.id, d.live_generation AS generation, d.live_chunks AS chunks
FROM documents d
WHERE d.container_id = %(container_id)s AND d.deleted_at IS NULL AND d.live_generation IS NOT NULL
  AND d.live_chunks > 0 AND d.id > %(after)s
  AND NOT EXISTS (
      SELECT 1 FROM embedded e
      WHERE e.doc_id = d.id AND e.collection_id = %(collection_id)s AND e.generation = d.live_generation
        AND (%(job_id)s::bigint IS NULL OR e.job_id = %(job_id)s))
ORDER BY d.id
LIMIT %(limit)s
"""

MAPPED: Final = """
SELECT d.id, d.live_generation AS generation, d.live_chunks AS chunks
FROM embedded e JOIN documents d ON d.id = e.doc_id AND d.live_generation = e.generation
WHERE e.collection_id = %(collection_id)s AND e.mapped AND e.doc_id > %(after)s AND d.deleted_at IS NULL AND d.live_chunks > 0
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
WHERE e.collection_id = %(collection_id)s AND d.container_id = %(container_id)s AND d.deleted_at IS NULL
  AND (%(job_id)s::bigint IS NULL OR e.job_id = %(job_id)s)
"""

ALL_LIVE: Final = """
INSERT INTO embedded (doc_id, collection_id, generation)
SELECT d.id, %(collection_id)s, d.live_generation
FROM documents d
WHERE d.container_id = %(container_id)s AND d.deleted_at IS NULL AND d.live_generation IS NOT NULL AND d.live_chunks > 0
  AND NOT EXISTS (SELECT 1 FROM embedded e WHERE e.doc_id = d.id AND e.collection_id = %(collection_id)s
                  AND e.generation = d.live_generation)
ORDER BY d.id
ON CONFLICT (doc_id, collection_id) DO UPDATE SET generation = excluded.generation, job_id = NULL, mapped = false
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
INSERT INTO embedded (doc_id, collection_id, generation, job_id, mapped)
SELECT w.id, %(collection_id)s, w.generation, %(job_id)s, %(mapped)s
FROM unnest(%(ids)s::uuid[], %(generations)s::integer[]) AS w (id, generation)
ORDER BY w.id
ON CONFLICT (doc_id, collection_id) DO UPDATE
SET generation = excluded.generation, job_id = excluded.job_id, mapped = excluded.mapped
WHERE embedded.generation <= excluded.generation
"""

UNRECORD: Final = (
    "DELETE FROM embedded WHERE collection_id = %(collection_id)s AND doc_id = ANY(%(ids)s::uuid[])"
)

COLLECTIONS_OF: Final = """
SELECT collection_id FROM embedded WHERE doc_id = %(doc_id)s AND generation = %(generation)s ORDER BY collection_id
"""

# A refresh that is not over writes the document once more.
REOPEN: Final = """
UPDATE embedded e SET job_id = NULL
WHERE e.doc_id = %(doc_id)s AND e.collection_id = %(collection_id)s
  AND EXISTS (SELECT 1 FROM jobs j WHERE j.id = e.job_id AND j.state IN ('queued', 'running'))
"""

# Only generated chunks come and go while their generation is live.
WITH_OTHERS: Final = """
SELECT DISTINCT w.id
FROM unnest(%(ids)s::uuid[], %(generations)s::integer[]) AS w (id, generation)
JOIN chunks c ON c.doc_id = w.id AND c.generation = w.generation
WHERE c.chunk_no <> ALL(%(chunk_nos)s::bigint[])
"""

COUNT_POINTS: Final = """
INSERT INTO point_counts (container_id, chunk_no, collection_id, windows)
SELECT c.container_id, c.chunk_no, %(collection_id)s, w.windows
FROM unnest(%(chunk_nos)s::bigint[], %(windows)s::integer[]) AS w (chunk_no, windows)
JOIN chunks c ON c.container_id = %(container_id)s AND c.chunk_no = w.chunk_no
LEFT JOIN point_counts p ON p.container_id = c.container_id AND p.chunk_no = c.chunk_no AND p.collection_id = %(collection_id)s
WHERE w.windows <> coalesce(p.windows, c.windows)
ORDER BY c.chunk_no
ON CONFLICT (container_id, chunk_no, collection_id) DO UPDATE SET windows = excluded.windows
"""

# Page chunks without a point in a collection: their images could not be embedded.
WITHOUT_POINTS: Final = """
SELECT count(*) FILTER (WHERE coalesce(p.windows, c.windows) = 0) AS without_points, count(*) AS pictures
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
LEFT JOIN point_counts p ON p.container_id = c.container_id AND p.chunk_no = c.chunk_no AND p.collection_id = %(collection_id)s
WHERE c.container_id = %(container_id)s AND d.deleted_at IS NULL AND c.modality = 'image'
"""

SHOWS: Final = """
SELECT 1
FROM embedded e
JOIN documents d ON d.id = e.doc_id AND d.live_generation = e.generation
JOIN chunks c ON c.doc_id = d.id AND c.generation = d.live_generation AND c.modality = 'image'
JOIN pages g ON g.doc_id = c.doc_id AND g.generation = c.generation AND g.page = c.page AND g.image_sha256 IS NOT NULL
LEFT JOIN point_counts p ON p.container_id = c.container_id AND p.chunk_no = c.chunk_no AND p.collection_id = %(collection_id)s
WHERE e.collection_id = %(collection_id)s AND c.container_id = %(container_id)s AND d.deleted_at IS NULL
  AND (%(job_id)s::bigint IS NULL OR e.job_id = %(job_id)s) AND coalesce(p.windows, c.windows) > 0
LIMIT 1
"""

PAGE_OF: Final = """
SELECT c.page, d.uri FROM chunks c JOIN documents d ON d.id = c.doc_id
WHERE c.container_id = %(container_id)s AND c.chunk_no = %(chunk_no)s
"""

FIRST: Final = UUID(int=0)


@dataclass(frozen=True, slots=True)
class LiveDocument:
    """The visible generation of a document."""

    id: UUID
    generation: int
    chunks: int


async def forget_some(conn: Connection, container_id: str, collection_id: int, limit: int) -> int:
    """Delete the rows about a collection's points, ``limit`` of each kind; returns the number deleted."""
    values = {"container_id": container_id, "collection_id": collection_id, "limit": limit}
    gone = (await conn.execute(FORGET, values)).rowcount
    return gone + (await conn.execute(FORGET_COUNTS, values)).rowcount


async def missing(
    conn: Connection,
    container_id: str,
    collection_id: int,
    *,
    after: UUID = FIRST,
    limit: int,
    job_id: int | None = None,
) -> list[LiveDocument]:
    """Live documents without points in a collection; with ``job_id``, without points that this job wrote."""
    values = {
        "container_id": container_id,
        "collection_id": collection_id,
        "after": after,
        "limit": limit,
        "job_id": job_id,
    }
    return _documents(await (await conn.execute(MISSING, values)).fetchall())


async def mapped(
    conn: Connection, collection_id: int, *, after: UUID = FIRST, limit: int
) -> list[LiveDocument]:
    """Live documents whose vectors in a collection are mapped from another model."""
    values = {"collection_id": collection_id, "after": after, "limit": limit}
    return _documents(await (await conn.execute(MAPPED, values)).fetchall())


async def totals(conn: Connection, container_id: str) -> tuple[int, int]:
    """Live documents with chunks, and their chunks."""
    row = await only_row(await conn.execute(TOTALS, {"container_id": container_id}))
    return int(row["documents"]), int(row["chunks"])


async def done(conn: Connection, container_id: str, collection_id: int, job_id: int | None) -> int:
    """Live chunks in a collection; with ``job_id``, those that this job wrote."""
    values = {"container_id": container_id, "collection_id": collection_id, "job_id": job_id}
    return int((await only_row(await conn.execute(DONE, values)))["chunks"])


async def note_all_live(conn: Connection, container_id: str, collection_id: int) -> None:
    """Record that all live documents have their points in this collection, when it stops being the live one."""
    await conn.execute(ALL_LIVE, {"container_id": container_id, "collection_id": collection_id})


async def still_live(conn: Connection, documents: Sequence[LiveDocument]) -> set[UUID]:
    """Those documents whose given generation is visible; the answer holds until the transaction ends."""
    values = {"ids": [d.id for d in documents], "generations": [d.generation for d in documents]}
    return {row["id"] for row in await (await conn.execute(STILL_LIVE, values)).fetchall()}


async def record(
    conn: Connection,
    collection_id: int,
    embedded: Iterable[tuple[UUID, int]],
    *,
    job_id: int | None = None,
    mapped: bool = False,
) -> None:
    """Record that these generations have all their points in a collection."""
    pairs = sorted(embedded)
    if pairs:
        values = {
            "collection_id": collection_id,
            "ids": [doc_id for doc_id, _ in pairs],
            "generations": [generation for _, generation in pairs],
            "job_id": job_id,
            "mapped": mapped,
        }
        await conn.execute(RECORD, values)


async def collections_of(conn: Connection, doc_id: UUID, generation: int) -> list[int]:
    """The collections that are recorded to hold this generation."""
    cursor = await conn.execute(COLLECTIONS_OF, {"doc_id": doc_id, "generation": generation})
    return [row["collection_id"] for row in await cursor.fetchall()]


async def reopen(conn: Connection, doc_id: UUID, collection_id: int) -> None:
    """A refresh that writes this collection must write the document again."""
    await conn.execute(REOPEN, {"doc_id": doc_id, "collection_id": collection_id})


async def with_other_chunks(
    conn: Connection, documents: Sequence[LiveDocument], chunk_nos: Iterable[int]
) -> set[UUID]:
    """Those of the documents that have other chunks than these."""
    values = {
        "ids": [d.id for d in documents],
        "generations": [d.generation for d in documents],
        "chunk_nos": list(chunk_nos),
    }
    return {row["id"] for row in await (await conn.execute(WITH_OTHERS, values)).fetchall()}


async def unrecord(conn: Connection, collection_id: int, doc_ids: Iterable[UUID]) -> None:
    """Record that points of these documents are missing."""
    await conn.execute(UNRECORD, {"collection_id": collection_id, "ids": sorted(doc_ids)})


async def count_points(
    conn: Connection, container_id: str, collection_id: int, windows: Mapping[int, int]
) -> None:
    """Maps chunk_no to its number of points in a collection; stored where it differs from the chunk's row."""
    chunk_nos = sorted(windows)
    if chunk_nos:
        values = {
            "container_id": container_id,
            "collection_id": collection_id,
            "chunk_nos": chunk_nos,
            "windows": [windows[chunk_no] for chunk_no in chunk_nos],
        }
        await conn.execute(COUNT_POINTS, values)


class Pictures(NamedTuple):
    """Live image chunks: pages and pictures."""

    without_points: int
    """Without a point in a collection."""
    all: int


async def pictures(conn: Connection, container_id: str, collection_id: int) -> Pictures:
    values = {"container_id": container_id, "collection_id": collection_id}
    row = await only_row(await conn.execute(WITHOUT_POINTS, values))
    return Pictures(row["without_points"], row["pictures"])


async def without_points(conn: Connection, container_id: str, collection_id: int) -> int:
    """Live page chunks without a point in a collection."""
    return (await pictures(conn, container_id, collection_id)).without_points


async def shows(
    conn: Connection, container_id: str, collection_id: int, job_id: int | None
) -> bool:
    """Whether an image has a point in the collection; with ``job_id``, one that this job wrote."""
    values = {"container_id": container_id, "collection_id": collection_id, "job_id": job_id}
    return await (await conn.execute(SHOWS, values)).fetchone() is not None


async def page_of(
    conn: Connection, container_id: str, chunk_no: int
) -> tuple[int | None, str] | None:
    """The page of a page chunk, and the uri of its document."""
    row = await (
        await conn.execute(PAGE_OF, {"container_id": container_id, "chunk_no": chunk_no})
    ).fetchone()
    return (row["page"], row["uri"]) if row else None


def _documents(rows: Iterable[Mapping[str, Any]]) -> list[LiveDocument]:
    return [LiveDocument(row["id"], row["generation"], row["chunks"]) for row in rows]
