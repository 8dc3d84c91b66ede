"""Rows of chunks: written once by a publication, read through the join on the live generation."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import numpy as np
import orjson
from numpy.typing import NDArray
from psycopg.rows import class_row, tuple_row
from psycopg.sql import SQL

from latent_core.db.conditions import FilterCondition
from latent_core.db.connection import Connection
from latent_core.db.documents.pages import LAST_DRAWING
from latent_core.domain.chunk import Chunk, embedded_parts
from latent_core.domain.filters.model import CHUNK_META
from latent_core.domain.generated import GeneratedKind
from latent_core.domain.ids import ChunkId, PointId, point_id

COPY: Final = """
COPY chunks (doc_id, generation, position, id, container_id, chunk_no, modality, source_type, block_type, text, embed_text,
             embed_head, page, page_end, line_start, line_end, heading_path, key_path, parent_section, table_id, row_group,
             offset_start, offset_end, content_hash, token_count, windows, tsv, length, provenance, meta, generated)
FROM STDIN
"""

COPY_SIGNATURES: Final = "COPY signatures (container_id, chunk_no, bits) FROM STDIN"

# Answered from indexes alone where pages are vacuumed; a filter has to look at the rows.
ChunkKey = tuple[str, int]
"""Container and chunk_no."""

LIVE: Final = """
SELECT c.chunk_no, c.doc_id
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE c.container_id = %(container_id)s AND c.chunk_no = ANY(%(chunk_nos)s::bigint[]) AND d.deleted_at IS NULL
  AND (d.superseded_at IS NULL OR %(superseded)s) AND (d.expires_at IS NULL OR d.expires_at > now())
"""

LIVE_OF_SEVERAL: Final = """
SELECT c.container_id, c.chunk_no, c.doc_id
FROM unnest(%(container_ids)s::text[], %(chunk_nos)s::bigint[]) AS r (container_id, chunk_no)
JOIN chunks c ON c.container_id = r.container_id AND c.chunk_no = r.chunk_no
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE d.deleted_at IS NULL
  AND (d.superseded_at IS NULL OR %(superseded)s) AND (d.expires_at IS NULL OR d.expires_at > now())
"""

LIVE_FILTERED: Final = SQL("""
SELECT c.chunk_no, c.doc_id
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE c.container_id = %(container_id)s AND c.chunk_no = ANY(%(chunk_nos)s::bigint[]) AND d.deleted_at IS NULL
  AND (d.superseded_at IS NULL OR %(superseded)s) AND (d.expires_at IS NULL OR d.expires_at > now())
  AND {condition}
""")

HYDRATE: Final = f"""
SELECT c.container_id, c.chunk_no, c.id, c.doc_id, c.generation, c.position, c.modality, c.source_type, c.block_type, c.text,
       c.page, c.page_end, c.line_start, c.line_end, c.heading_path, c.key_path, c.table_id, c.row_group,
       c.offset_start, c.offset_end, c.provenance, c.meta, c.created_at,
       d.uri, d.title, d.language, d.external_id, d.sha256, d.source_modified_at, d.first_fetched_at, d.fetched_at,
       d.meta AS doc_meta, d.parent_id, d.origin, d.written_by, d.written_at, d.superseded_by, d.superseded_at, l.original,
       (SELECT e.mapped FROM containers k JOIN spaces s ON s.id = k.live_space
        JOIN embedded e ON e.doc_id = d.id AND e.collection_id = coalesce(s.collection_id, s.id) AND e.generation = c.generation
        WHERE k.id = c.container_id) AS mapped,
       spanned.pages,
       (SELECT to_jsonb(drawing) FROM ({LAST_DRAWING}) drawing
        WHERE d.parent_id IS NULL
          AND (spanned.pages IS NULL OR spanned.pages @> '[{{"image_sha256": null}}]')) AS drawing
FROM unnest(%(container_ids)s::text[], %(chunk_nos)s::bigint[]) AS r (container_id, chunk_no)
JOIN chunks c ON c.container_id = r.container_id AND c.chunk_no = r.chunk_no
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
LEFT JOIN duplicates l ON l.container_id = c.container_id AND l.chunk_no = c.chunk_no
LEFT JOIN LATERAL (
    SELECT jsonb_agg(jsonb_build_object(
               'page', p.page, 'line_start', p.line_start, 'head', CASE WHEN c.page_end > c.page THEN left(p.text, %(head)s) END,
               'opening', CASE WHEN c.page_end > c.page THEN strpos(
                   p.text, substr(c.text, 1 + coalesce((c.meta->>'repeated_chars')::integer, 0), %(opening)s)) > 0 ELSE false END,
               'visual', p.visual, 'importance', e.visual_importance, 'next_pdf_sha256', g.sha256, 'next_pdf_mime', g.mime,
               'next_pdf_filename', g.filename, 'image_sha256', p.image_sha256, 'mime', i.mime, 'filename', i.filename,
               'pdf_sha256', f.sha256, 'pdf_mime', f.mime, 'pdf_filename', f.filename) ORDER BY p.page) AS pages
    FROM pages p
    LEFT JOIN blob_refs i ON i.doc_id = p.doc_id AND i.generation = p.generation AND i.role = 'page_image' AND i.part = p.page
    LEFT JOIN blob_refs f ON f.doc_id = p.doc_id AND f.generation = p.generation AND f.role = 'page_pdf' AND f.part = p.page
                         AND f.sha256 = p.pdf_sha256
    LEFT JOIN page_extractions e ON e.doc_id = p.doc_id AND e.generation = p.generation AND e.page = p.page AND e.state = 'done'
    LEFT JOIN blob_refs g ON g.doc_id = p.doc_id AND g.generation = p.generation AND g.role = 'page_pdf'
                         AND g.part = e.next_page AND g.sha256 = e.next_page_pdf_sha256
    WHERE p.doc_id = c.doc_id AND p.generation = c.generation AND p.page BETWEEN c.page AND coalesce(c.page_end, c.page)
) spanned ON c.page IS NOT NULL
WHERE d.deleted_at IS NULL
"""

# Of a broad condition this only finds that it is broad; the index on documents' chunks covers the query.
ALLOWED: Final = SQL("""
WITH passed AS MATERIALIZED (
    SELECT c.chunk_no, c.id, c.generation, c.windows
    FROM chunks c
    JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
    WHERE c.container_id = %(container_id)s AND d.container_id = %(container_id)s AND d.deleted_at IS NULL
      AND {condition}
    LIMIT %(limit)s + 1
), counted AS (
    SELECT count(*) AS passed FROM passed
)
SELECT counted.passed, p.chunk_no, p.id, p.generation, coalesce(n.windows, p.windows)
FROM counted LEFT JOIN passed p ON counted.passed <= %(limit)s
LEFT JOIN point_counts n ON n.container_id = %(container_id)s AND n.chunk_no = p.chunk_no AND n.collection_id = %(collection_id)s
""")

PLACES: Final = """
SELECT c.container_id, c.chunk_no, c.id, c.doc_id, c.page, c.page_end, c.line_start, c.line_end, c.heading_path, c.key_path, c.table_id,
       c.row_group, d.title, d.uri
FROM unnest(%(container_ids)s::text[], %(chunk_nos)s::bigint[]) AS r (container_id, chunk_no)
JOIN chunks c ON c.container_id = r.container_id AND c.chunk_no = r.chunk_no
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE d.deleted_at IS NULL
"""

LENGTHS: Final = """
SELECT c.doc_id, c.chunk_no, c.length
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE d.id = ANY(%(ids)s)
ORDER BY c.chunk_no
"""

POINTS: Final = """
SELECT c.chunk_no, c.id, c.doc_id, c.generation, c.position, coalesce(n.windows, c.windows) AS windows
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
LEFT JOIN point_counts n ON n.container_id = c.container_id AND n.chunk_no = c.chunk_no AND n.collection_id = %(collection_id)s
WHERE c.container_id = %(container_id)s AND d.deleted_at IS NULL AND c.chunk_no > %(after)s
ORDER BY c.chunk_no
LIMIT %(limit)s
"""

BY_CHUNK_NO: Final = """
SELECT c.chunk_no, c.id, c.generation, coalesce(n.windows, c.windows) AS windows
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
LEFT JOIN point_counts n ON n.container_id = c.container_id AND n.chunk_no = c.chunk_no AND n.collection_id = %(collection_id)s
WHERE c.container_id = %(container_id)s AND c.chunk_no = ANY(%(chunk_nos)s) AND d.deleted_at IS NULL
"""

POINTS_OF_GENERATION: Final = """
SELECT c.id, c.generation, coalesce(n.windows, c.windows) AS windows
FROM chunks c
LEFT JOIN point_counts n ON n.container_id = c.container_id AND n.chunk_no = c.chunk_no AND n.collection_id = %(collection_id)s
WHERE c.doc_id = %(doc_id)s AND c.generation = %(generation)s
"""

PLACE_ON_PAGES: Final = """
UPDATE chunks c
SET page = (SELECT min(p.page) FROM pages p WHERE p.doc_id = c.doc_id AND p.generation = c.generation
            AND p.line_end >= c.line_start),
    page_end = (SELECT max(p.page) FROM pages p WHERE p.doc_id = c.doc_id AND p.generation = c.generation
                AND p.line_start <= c.line_end)
WHERE c.doc_id = %(doc_id)s AND c.generation = %(generation)s AND c.line_start IS NOT NULL
"""

HEAD_CHARS: Final = 400
"""Of the text of a page, read for chunks on several pages: enough to find where the page begins in the chunk."""
OPENING_CHARS: Final = 64
"""Of a chunk, looked for in the texts of its pages: a chunk of a long line may begin on a later page than the line."""

INLINE_POINTS: Final = 1000
"""Above this number, point ids are computed in a thread: each takes some microseconds."""


@dataclass(frozen=True, slots=True)
class NewChunkRow:
    """A chunk with the data that its publication adds."""

    doc_id: UUID
    generation: int
    container_id: str
    chunk: Chunk
    windows: int
    tsv: str
    """The term vector, as a tsvector literal."""
    length: int
    provenance: dict[str, Any]
    signature: str
    """``latent_core.bm25.exact``; deleted with the row."""
    generated: GeneratedKind | None = None
    """None: read from the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The columns that say where a chunk is in its document."""

    page: int | None
    page_end: int | None
    line_start: int | None
    line_end: int | None
    heading_path: list[str]
    key_path: str | None
    table_id: int | None
    row_group: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceRow(Position):
    """A row of ``PLACES``: a chunk and its document, without text."""

    container_id: str
    chunk_no: int
    id: ChunkId
    doc_id: UUID
    title: str | None
    uri: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFiles:
    """One page of ``HYDRATE``: its image and its file, if they exist."""

    page: int
    line_start: int | None = None
    """Of the source, from 1; None where it has no lines."""
    head: str | None = None
    """The beginning of its text; None for the only page of a chunk."""
    opening: bool = False
    """Its text contains the beginning of the chunk, which is on several pages."""
    visual: float | None
    image_sha256: str | None
    mime: str | None
    filename: str | None
    pdf_sha256: str | None
    pdf_mime: str | None
    pdf_filename: str | None
    importance: int | None = None
    """1 to 5, by a language model; None without its extraction."""
    next_pdf_sha256: str | None = None
    """Of the PDF of the page after it, if the extraction consulted it."""
    next_pdf_mime: str | None = None
    next_pdf_filename: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HitRow(PlaceRow):
    """A row of ``HYDRATE``: all data of a hit."""

    generation: int
    position: int
    modality: str
    source_type: str
    block_type: str
    text: str
    offset_start: int
    offset_end: int
    provenance: dict[str, Any]
    meta: dict[str, Any]
    created_at: datetime
    language: str | None
    external_id: str | None
    sha256: str
    source_modified_at: datetime | None
    first_fetched_at: datetime | None
    fetched_at: datetime | None
    doc_meta: dict[str, Any]
    parent_id: UUID | None
    origin: str
    written_by: str | None
    written_at: datetime
    superseded_by: UUID | None
    superseded_at: datetime | None
    original: int | None
    mapped: bool | None
    """The live space holds a mapped vector of it; None without a row in ``embedded``."""
    pages: list[PageFiles]
    """The pages that it spans, in order."""
    drawing: dict[str, Any] | None = None
    """The last job that draws the pages of its document (``pages.missing_image``), where one of ``pages`` has no image.
    Records of a corpus have no pages."""


def _hit_row(row: dict[str, Any]) -> HitRow:
    return HitRow(**{**row, "pages": [PageFiles(**page) for page in row["pages"] or ()]})


@dataclass(frozen=True, slots=True)
class AllowedChunks:
    """Chunks that match a filter, and their points."""

    chunk_nos: NDArray[np.int64]
    point_ids: list[PointId]
    complete: bool
    """False when more chunks than the limit match: the filter is broad, and the lists are empty."""


async def insert(conn: Connection, rows: Sequence[NewChunkRow]) -> None:
    """Write chunks by COPY, in the caller's transaction."""
    async with conn.cursor() as cursor:
        async with cursor.copy(COPY) as copy:
            for row in rows:
                await copy.write_row(_copied(row))
        async with cursor.copy(COPY_SIGNATURES) as copy:
            for row in rows:
                await copy.write_row((row.container_id, row.chunk.chunk_no, row.signature))


def _copied(row: NewChunkRow) -> tuple[Any, ...]:
    draft, place = row.chunk.draft, row.chunk.draft.place
    if not draft.meta.keys() <= CHUNK_META:
        raise ValueError(f"filters do not read {sorted(draft.meta)} in chunks: see CHUNK_META")
    return (
        row.doc_id,
        row.generation,
        row.chunk.position,
        row.chunk.id,
        row.container_id,
        row.chunk.chunk_no,
        draft.modality.value,
        draft.source_type.value,
        draft.block_type.value,
        draft.text,
        *embedded_parts(draft.text, draft.embed_text),
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
        row.generated,
    )


async def live(
    conn: Connection,
    container_id: str,
    chunk_nos: NDArray[np.int64],
    condition: FilterCondition,
    *,
    superseded: bool = False,
) -> dict[int, UUID]:
    """Those of ``chunk_nos`` that are visible and pass ``condition``, each with its document; with ``superseded``, also
    those of documents that a newer one replaces.

    Every candidate of every channel must pass this join (DESIGN §7.2).
    """
    values = {"container_id": container_id, "chunk_nos": chunk_nos, "superseded": superseded}
    async with conn.cursor(row_factory=tuple_row, binary=True) as cursor:
        if condition.where is None:
            await cursor.execute(LIVE, values)
        else:
            statement = LIVE_FILTERED.format(condition=condition.where)
            # Not prepared: the statement differs for every filter, and a plan with its values is better.
            await cursor.execute(statement, {**values, **condition.values}, prepare=False)
        return dict(await cursor.fetchall())


async def hydrate(conn: Connection, keys: Sequence[ChunkKey]) -> dict[ChunkKey, HitRow]:
    """All data of hits, with the ``pages`` they span; chunks that are not visible are absent."""
    values = {**_columns(keys), "head": HEAD_CHARS, "opening": OPENING_CHARS}
    cursor = await conn.execute(HYDRATE, values, binary=True)
    rows = [_hit_row(row) for row in await cursor.fetchall()]
    return {(row.container_id, row.chunk_no): row for row in rows}


async def places(conn: Connection, keys: Sequence[ChunkKey]) -> dict[ChunkKey, PlaceRow]:
    """Ids and positions of the visible ones among these chunks."""
    async with conn.cursor(row_factory=class_row(PlaceRow), binary=True) as cursor:
        await cursor.execute(PLACES, _columns(keys))
        return {(row.container_id, row.chunk_no): row for row in await cursor.fetchall()}


def _columns(keys: Sequence[ChunkKey]) -> dict[str, list[Any]]:
    return {
        "container_ids": [container_id for container_id, _ in keys],
        "chunk_nos": [chunk_no for _, chunk_no in keys],
    }


async def live_of_several(
    conn: Connection, keys: Sequence[ChunkKey], *, superseded: bool = False
) -> dict[ChunkKey, UUID]:
    """``live`` without a condition, for chunks of several containers."""
    async with conn.cursor(row_factory=tuple_row, binary=True) as cursor:
        await cursor.execute(LIVE_OF_SEVERAL, {**_columns(keys), "superseded": superseded})
        rows = await cursor.fetchall()
        return {(container_id, chunk_no): doc_id for container_id, chunk_no, doc_id in rows}


async def allowed(
    conn: Connection,
    container_id: str,
    condition: FilterCondition,
    limit: int,
    *,
    collection_id: int | None = None,
) -> AllowedChunks:
    """The visible chunks that match ``condition`` (not empty), if they are at most ``limit``.

    Points are those in the collection ``collection_id`` (``Space.collection_id``); their number may differ between
    spaces, and from the chunk's row.
    """
    if condition.where is None:
        raise ValueError("an empty condition matches every chunk")
    statement = ALLOWED.format(condition=condition.where)
    values = {
        "container_id": container_id,
        "limit": limit,
        "collection_id": collection_id,
        **condition.values,
    }
    async with conn.cursor(row_factory=tuple_row, binary=True) as cursor:
        await cursor.execute(statement, values, prepare=False)
        rows = await cursor.fetchall()
    known_rows = [row for row in rows if row[1] is not None]
    return AllowedChunks(
        chunk_nos=np.array([chunk_no for _, chunk_no, *_ in known_rows], dtype=np.int64),
        point_ids=await asyncio.to_thread(_points_of, known_rows)
        if len(known_rows) > INLINE_POINTS
        else _points_of(known_rows),
        complete=rows[0][0] <= limit,
    )


def _points_of(known_rows: Sequence[tuple[Any, ...]]) -> list[PointId]:
    return [
        point_id(chunk, generation, window)
        for *_, chunk, generation, windows in known_rows
        for window in range(windows)
    ]


async def points_of(
    conn: Connection,
    container_id: str,
    chunk_nos: NDArray[np.int64],
    *,
    collection_id: int | None = None,
) -> AllowedChunks:
    """Those of ``chunk_nos`` that are visible, with their points in the collection ``collection_id``."""
    rows = await by_chunk_no(conn, container_id, chunk_nos.tolist(), collection_id=collection_id)
    return AllowedChunks(
        chunk_nos=np.array([row["chunk_no"] for row in rows], dtype=np.int64),
        point_ids=[
            point_id(row["id"], row["generation"], window)
            for row in rows
            for window in range(row["windows"])
        ],
        complete=True,
    )


async def live_lengths(conn: Connection, doc_ids: Sequence[UUID]) -> list[tuple[UUID, int, int]]:
    """(document, chunk_no, BM25 length) of the visible chunks of documents: those that a replacement removes."""
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(LENGTHS, {"ids": list(doc_ids)})
        return list(await cursor.fetchall())


async def points(
    conn: Connection, container_id: str, *, after: int, limit: int, collection_id: int | None = None
) -> list[dict[str, Any]]:
    """The points that the collection ``collection_id`` must contain, in chunk_no order."""
    values = {
        "container_id": container_id,
        "after": after,
        "limit": limit,
        "collection_id": collection_id,
    }
    cursor = await conn.execute(POINTS, values)
    return await cursor.fetchall()


async def by_chunk_no(
    conn: Connection,
    container_id: str,
    chunk_nos: Sequence[int],
    *,
    collection_id: int | None = None,
) -> list[dict[str, Any]]:
    """The data from which point ids derive, in the collection ``collection_id``, for the visible ones of ``chunk_nos``."""
    values = {
        "container_id": container_id,
        "chunk_nos": list(chunk_nos),
        "collection_id": collection_id,
    }
    cursor = await conn.execute(BY_CHUNK_NO, values)
    return await cursor.fetchall()


async def expects(
    conn: Connection, doc_id: UUID, generation: int, point: PointId, collection_id: int
) -> bool:
    """Whether a chunk of this generation has the point in the collection. Reads all its chunks: for repairs."""
    values = {"doc_id": doc_id, "generation": generation, "collection_id": collection_id}
    rows = await (await conn.execute(POINTS_OF_GENERATION, values)).fetchall()
    return any(
        point == point_id(row["id"], row["generation"], window)
        for row in rows
        for window in range(row["windows"])
    )


async def place_on_pages(conn: Connection, doc_id: UUID, generation: int) -> None:
    """Set on each chunk the rendered pages that contain its lines."""
    await conn.execute(PLACE_ON_PAGES, {"doc_id": doc_id, "generation": generation})
