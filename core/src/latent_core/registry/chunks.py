"""Rows of chunks: written once by a publication, read through the join on the live generation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import numpy as np
import orjson
from numpy.typing import NDArray
from psycopg.rows import tuple_row

from latent_core.domain.chunk import Chunk
from latent_core.domain.ids import PointId, point_id
from latent_core.registry.connection import Connection

COPY: Final = """
COPY chunks (doc_id, generation, ordinal, id, container_id, ord, modality, source_type, block_type, text, embed_text,
             page, page_end, line_start, line_end, heading_path, key_path, parent_section, table_id, row_group,
             offset_start, offset_end, content_hash, token_count, windows, tsv, length, provenance, meta)
FROM STDIN
"""

# Answered from indexes alone where pages are vacuumed; a filter has to look at the rows.
LIVE: Final = """
SELECT c.ord, c.doc_id
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE c.container_id = %(container_id)s AND c.ord = ANY(%(ords)s::bigint[]) AND d.deleted_at IS NULL
"""

LIVE_FILTERED: Final = """
SELECT c.ord, c.doc_id
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE c.container_id = %(container_id)s AND c.ord = ANY(%(ords)s::bigint[]) AND d.deleted_at IS NULL
  AND (%(source_types)s::text[] IS NULL OR c.source_type = ANY(%(source_types)s))
  AND (%(modalities)s::text[] IS NULL OR c.modality = ANY(%(modalities)s))
  AND (%(doc_ids)s::uuid[] IS NULL OR c.doc_id = ANY(%(doc_ids)s))
"""

HYDRATE: Final = """
SELECT c.ord, c.id, c.doc_id, c.generation, c.ordinal, c.modality, c.source_type, c.block_type, c.text,
       c.page, c.page_end, c.line_start, c.line_end, c.heading_path, c.key_path, c.table_id, c.row_group,
       c.offset_start, c.offset_end, c.provenance, c.meta, c.created_at,
       d.uri, d.title, d.language, d.external_id, d.sha256, d.source_modified_at, d.first_fetched_at, d.fetched_at,
       d.meta AS doc_meta, d.parent_id
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE c.container_id = %(container_id)s AND c.ord = ANY(%(ords)s) AND d.deleted_at IS NULL
"""

ALLOWED: Final = """
SELECT c.ord, c.id, c.generation, c.windows
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE c.container_id = %(container_id)s AND d.deleted_at IS NULL
  AND (%(source_types)s::text[] IS NULL OR c.source_type = ANY(%(source_types)s))
  AND (%(modalities)s::text[] IS NULL OR c.modality = ANY(%(modalities)s))
  AND (%(doc_ids)s::uuid[] IS NULL OR c.doc_id = ANY(%(doc_ids)s))
LIMIT %(limit)s
"""

PLACES: Final = """
SELECT c.ord, c.id, c.page, c.page_end, c.line_start, c.line_end, c.heading_path, c.key_path, c.table_id, c.row_group
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE c.container_id = %(container_id)s AND c.ord = ANY(%(ords)s::bigint[]) AND d.deleted_at IS NULL
"""

LENGTHS: Final = """
SELECT c.doc_id, c.ord, c.length
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE d.id = ANY(%(ids)s)
ORDER BY c.ord
"""

DELETE_DEAD: Final = """
DELETE FROM chunks c
WHERE c.doc_id = %(doc_id)s AND c.generation < %(below)s
  AND c.generation IS DISTINCT FROM (SELECT live_generation FROM documents WHERE id = %(doc_id)s)
"""

PAGE: Final = """
SELECT c.id, c.doc_id, c.generation, c.ordinal, c.ord, c.modality, c.source_type, c.block_type, c.text, c.embed_text,
       c.page, c.page_end, c.line_start, c.line_end, c.heading_path, c.key_path, c.parent_section, c.table_id,
       c.row_group, c.offset_start, c.offset_end, c.content_hash, c.token_count, c.windows, c.provenance, c.meta,
       c.created_at, d.uri
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE c.container_id = %(container_id)s AND d.deleted_at IS NULL
  AND (%(doc_id)s::uuid IS NULL OR c.doc_id = %(doc_id)s)
  AND c.ord > %(after)s
ORDER BY c.ord
LIMIT %(limit)s
"""

POINTS: Final = """
SELECT c.ord, c.id, c.doc_id, c.generation, c.windows
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE c.container_id = %(container_id)s AND d.deleted_at IS NULL AND c.ord > %(after)s
ORDER BY c.ord
LIMIT %(limit)s
"""

BY_ORD: Final = """
SELECT c.ord, c.id, c.generation, c.windows
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE c.container_id = %(container_id)s AND c.ord = ANY(%(ords)s) AND d.deleted_at IS NULL
"""

PLACE_ON_PAGES: Final = """
UPDATE chunks c
SET page = (SELECT min(p.page) FROM pages p WHERE p.doc_id = c.doc_id AND p.generation = c.generation
            AND p.line_end >= c.line_start),
    page_end = (SELECT max(p.page) FROM pages p WHERE p.doc_id = c.doc_id AND p.generation = c.generation
                AND p.line_start <= c.line_end)
WHERE c.doc_id = %(doc_id)s AND c.generation = %(generation)s AND c.line_start IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class Condition:
    """What a filter asks of a chunk; None lets everything through."""

    source_types: tuple[str, ...] | None = None
    modalities: tuple[str, ...] | None = None
    doc_ids: tuple[UUID, ...] | None = None

    def __bool__(self) -> bool:
        return (self.source_types, self.modalities, self.doc_ids) != (None, None, None)

    def values(self) -> dict[str, list[Any] | None]:
        """As parameters of a query."""
        return {
            "source_types": None if self.source_types is None else list(self.source_types),
            "modalities": None if self.modalities is None else list(self.modalities),
            "doc_ids": None if self.doc_ids is None else list(self.doc_ids),
        }


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """A chunk with what only its publication knows."""

    doc_id: UUID
    generation: int
    container_id: str
    chunk: Chunk
    windows: int
    tsv: str
    """The term vector, as a tsvector literal."""
    length: int
    provenance: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Allowed:
    """Chunks a filter lets through, and their points."""

    ords: NDArray[np.int64]
    point_ids: list[PointId]
    complete: bool
    """False when there are more than the limit: the filter is broad."""


async def insert(conn: Connection, rows: Iterable[ChunkRow]) -> None:
    """Write chunks by COPY, in the caller's transaction."""
    async with conn.cursor() as cursor, cursor.copy(COPY) as copy:
        for row in rows:
            await copy.write_row(_copied(row))


def _copied(row: ChunkRow) -> tuple[Any, ...]:
    draft, place = row.chunk.draft, row.chunk.draft.place
    return (
        row.doc_id,
        row.generation,
        row.chunk.ordinal,
        row.chunk.id,
        row.container_id,
        row.chunk.ord,
        draft.modality.value,
        draft.source_type.value,
        draft.block_type.value,
        draft.text,
        draft.embed_text,
        place.page,
        place.page_end,
        place.line_start,
        place.line_end,
        list(place.heading_path),
        place.key_path,
        place.parent_section,
        place.table_id,
        place.row_group,
        place.offset_start,
        place.offset_end,
        draft.content_hash,
        draft.token_count,
        row.windows,
        row.tsv,
        row.length,
        orjson.dumps(row.provenance).decode(),
        orjson.dumps(draft.meta).decode(),
    )


async def live(
    conn: Connection, container_id: str, ords: NDArray[np.int64], condition: Condition
) -> dict[int, UUID]:
    """Those of ``ords`` that are visible and pass ``condition``, each with its document.

    Every candidate of every channel must pass this join (DESIGN §7.2).
    """
    values = {"container_id": container_id, "ords": ords.tolist(), **condition.values()}
    async with conn.cursor(row_factory=tuple_row, binary=True) as cursor:
        await cursor.execute(LIVE_FILTERED if condition else LIVE, values)
        return dict(await cursor.fetchall())


async def hydrate(
    conn: Connection, container_id: str, ords: Sequence[int]
) -> dict[int, dict[str, Any]]:
    """Everything a hit shows, by ord; ords that are not visible (any more) are absent."""
    cursor = await conn.execute(
        HYDRATE, {"container_id": container_id, "ords": list(ords)}, binary=True
    )
    return {row["ord"]: row for row in await cursor.fetchall()}


async def places(
    conn: Connection, container_id: str, ords: Sequence[int]
) -> dict[int, dict[str, Any]]:
    """Ids and places of those of ``ords`` that are visible."""
    cursor = await conn.execute(
        PLACES, {"container_id": container_id, "ords": list(ords)}, binary=True
    )
    return {row["ord"]: row for row in await cursor.fetchall()}


async def allowed(conn: Connection, container_id: str, condition: Condition, limit: int) -> Allowed:
    """The visible chunks that pass ``condition``, at most ``limit`` of them."""
    async with conn.cursor(row_factory=tuple_row, binary=True) as cursor:
        await cursor.execute(
            ALLOWED, {"container_id": container_id, "limit": limit + 1, **condition.values()}
        )
        rows = await cursor.fetchall()
    kept = rows[:limit]
    return Allowed(
        ords=np.array([r[0] for r in kept], dtype=np.int64),
        point_ids=[point_id(r[1], r[2], window) for r in kept for window in range(r[3])],
        complete=len(rows) <= limit,
    )


async def live_lengths(conn: Connection, doc_ids: Sequence[UUID]) -> list[tuple[UUID, int, int]]:
    """(document, ord, BM25 length) of the visible chunks of documents: what dies when they are replaced."""
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(LENGTHS, {"ids": list(doc_ids)})
        return list(await cursor.fetchall())


async def delete_dead(conn: Connection, doc_id: UUID, below: int) -> int:
    """Remove rows of generations < ``below`` that are not live."""
    return (await conn.execute(DELETE_DEAD, {"doc_id": doc_id, "below": below})).rowcount


async def page(
    conn: Connection, container_id: str, *, doc_id: UUID | None, after: int, limit: int
) -> list[dict[str, Any]]:
    """Visible chunks in ord order after ``after`` (-1 for the first)."""
    cursor = await conn.execute(
        PAGE, {"container_id": container_id, "doc_id": doc_id, "after": after, "limit": limit}
    )
    return await cursor.fetchall()


async def points(
    conn: Connection, container_id: str, *, after: int, limit: int
) -> list[dict[str, Any]]:
    """What the vector collection must hold, in ord order."""
    cursor = await conn.execute(
        POINTS, {"container_id": container_id, "after": after, "limit": limit}
    )
    return await cursor.fetchall()


async def by_ord(conn: Connection, container_id: str, ords: Sequence[int]) -> list[dict[str, Any]]:
    """What decides the point ids of those of ``ords`` that are visible."""
    cursor = await conn.execute(BY_ORD, {"container_id": container_id, "ords": list(ords)})
    return await cursor.fetchall()


async def place_on_pages(conn: Connection, doc_id: UUID, generation: int) -> None:
    """Tell each chunk the rendered pages its lines fall on."""
    await conn.execute(PLACE_ON_PAGES, {"doc_id": doc_id, "generation": generation})
