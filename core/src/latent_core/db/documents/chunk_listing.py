"""The chunks of a container: filtered lists, one whole chunk, distributions of sizes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from latent_core.db.connection import Connection

CHUNKS_PER_LOOK: Final = 1000
"""Chunks read between two checks of the time limit."""
TOKEN_STEPS: Final = (16, 32, 64, 128, 256, 512, 1024)
CHARACTER_STEPS: Final = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
"""Lower bounds of the histogram classes; the first is 0."""

REACH: Final = """
SELECT max(w.chunk_no) AS last, count(*) AS chunks
FROM (SELECT chunk_no FROM chunks WHERE container_id = %(container_id)s AND chunk_no > %(after)s ORDER BY chunk_no LIMIT %(n)s) w
"""

SPAN: Final = """
SELECT min(c.chunk_no) AS first, max(c.chunk_no) AS last
FROM chunks c JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE d.id = %(doc_id)s AND d.deleted_at IS NULL
"""

FIND: Final = """
SELECT c.id, c.doc_id, c.generation, c.position, c.chunk_no, c.modality, c.source_type, c.block_type, c.text,
       coalesce(c.embed_text, c.embed_head || c.text) AS embed_text,
       c.page, c.page_end, c.line_start, c.line_end, c.heading_path, c.key_path,
       coalesce(c.parent_section, c.heading_path[cardinality(c.heading_path) - 1]) AS parent_section, c.table_id,
       c.row_group, c.offset_start, c.offset_end, c.content_hash, c.token_count, c.windows, c.provenance, c.meta,
       c.generated, c.created_at, d.uri, d.sha256, o.id AS duplicate_of
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
LEFT JOIN duplicates l ON l.container_id = c.container_id AND l.chunk_no = c.chunk_no
LEFT JOIN (chunks o JOIN documents od ON od.id = o.doc_id AND od.live_generation = o.generation AND od.deleted_at IS NULL)
       ON o.container_id = l.container_id AND o.chunk_no = l.original
WHERE c.container_id = %(container_id)s AND c.chunk_no > %(after)s AND c.chunk_no <= %(upto)s AND d.deleted_at IS NULL
  AND (%(chunk_id)s::uuid IS NULL OR c.id = %(chunk_id)s)
  AND (%(doc_id)s::uuid IS NULL OR c.doc_id = %(doc_id)s)
  AND (%(uri_prefix)s::text IS NULL OR starts_with(d.uri, %(uri_prefix)s))
  AND (%(source_type)s::text IS NULL OR c.source_type = %(source_type)s)
  AND (%(block_type)s::text IS NULL OR c.block_type = %(block_type)s)
  AND (%(heading_path)s::text IS NULL OR array_to_string(c.heading_path, ' > ') = %(heading_path)s)
  AND (%(parent_section)s::text IS NULL
       OR coalesce(c.parent_section, c.heading_path[cardinality(c.heading_path) - 1]) = %(parent_section)s)
  AND (%(table_id)s::text IS NULL OR c.table_id = %(table_id)s)
  AND (%(page)s::integer IS NULL OR %(page)s BETWEEN c.page AND coalesce(c.page_end, c.page))
  AND (%(generated)s::boolean IS NULL OR %(generated)s = (c.generated IS NOT NULL))
  AND (%(duplicates)s::boolean IS NULL OR %(duplicates)s = (o.id IS NOT NULL))
  AND (%(meta)s::jsonb IS NULL OR (d.meta || c.meta) @> %(meta)s)
  AND (%(contains)s::text IS NULL OR position(lower(%(contains)s) IN lower(c.text)) > 0)
  AND NOT EXISTS (
      SELECT 1 FROM unnest(%(fields)s::text[], %(values)s::text[]) AS f (field, value)
      WHERE NOT coalesce(
          coalesce((d.meta || c.meta) ->> f.field, (d.meta || c.meta) #>> string_to_array(f.field, '.')) = f.value
          OR (d.meta || c.meta) -> f.field @> to_jsonb(f.value), false))
ORDER BY c.chunk_no
LIMIT %(limit)s
"""

CHUNK_NO_OF: Final = """
SELECT c.chunk_no FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE c.id = %(chunk_id)s AND c.container_id = %(container_id)s AND d.deleted_at IS NULL
"""

# Once for each source type, and once for all of them (NULL).
SIZES: Final = """
SELECT s.source_type, count(*) AS chunks, count(*) FILTER (WHERE s.repeats) AS duplicates,
       min(s.tokens) AS tokens_min, max(s.tokens) AS tokens_max,
       percentile_disc(0.5) WITHIN GROUP (ORDER BY s.tokens) AS tokens_p50,
       percentile_disc(0.95) WITHIN GROUP (ORDER BY s.tokens) AS tokens_p95,
       min(s.characters) AS characters_min, max(s.characters) AS characters_max,
       percentile_disc(0.5) WITHIN GROUP (ORDER BY s.characters) AS characters_p50,
       percentile_disc(0.95) WITHIN GROUP (ORDER BY s.characters) AS characters_p95
FROM (
    SELECT c.source_type, c.token_count AS tokens, char_length(c.text) AS characters, l.original IS NOT NULL AS repeats
    FROM chunks c
    JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
    LEFT JOIN duplicates l ON l.container_id = c.container_id AND l.chunk_no = c.chunk_no
    WHERE c.container_id = %(container_id)s AND d.deleted_at IS NULL
      AND (%(doc_id)s::uuid IS NULL OR c.doc_id = %(doc_id)s)
) s
GROUP BY GROUPING SETS ((s.source_type), ())
ORDER BY s.source_type NULLS FIRST
"""

CLASSES: Final = """
SELECT c.source_type, width_bucket(c.token_count, %(token_steps)s::integer[]) AS tokens,
       width_bucket(char_length(c.text), %(character_steps)s::integer[]) AS characters, count(*) AS chunks
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE c.container_id = %(container_id)s AND d.deleted_at IS NULL
  AND (%(doc_id)s::uuid IS NULL OR c.doc_id = %(doc_id)s)
GROUP BY 1, 2, 3
"""


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """A visible chunk; columns of ``FIND``."""

    id: UUID
    doc_id: UUID
    generation: int
    position: int
    chunk_no: int
    modality: str
    source_type: str
    block_type: str
    text: str
    embed_text: str
    page: int | None
    page_end: int | None
    line_start: int | None
    line_end: int | None
    heading_path: list[str]
    key_path: str | None
    parent_section: str | None
    table_id: str | None
    row_group: int | None
    offset_start: int
    offset_end: int
    content_hash: str
    token_count: int
    windows: int
    provenance: dict[str, Any]
    meta: dict[str, Any]
    generated: str | None
    created_at: datetime
    uri: str
    sha256: str | None
    duplicate_of: UUID | None


@dataclass(frozen=True, slots=True)
class ChunkSelection:
    """Conditions on a chunk; None means no condition."""

    chunk_id: UUID | None = None
    doc_id: UUID | None = None
    uri_prefix: str | None = None
    source_type: str | None = None
    block_type: str | None = None
    heading_path: str | None = None
    """``H1 > H2 > H3``"""
    parent_section: str | None = None
    table_id: str | None = None
    page: int | None = None
    duplicates: bool | None = None
    generated: bool | None = None
    """Whether a model wrote it."""
    contains: str | None = None
    """In its text; case is ignored."""
    meta: Mapping[str, Any] | None = None
    """Contained in its own and its document's meta."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Maps a meta field or dotted path to its value as text; for a list, to one of its entries."""

    def values(self) -> dict[str, Any]:
        """As parameters of a query."""
        return {
            "chunk_id": self.chunk_id,
            "doc_id": self.doc_id,
            "uri_prefix": self.uri_prefix,
            "source_type": self.source_type,
            "block_type": self.block_type,
            "heading_path": self.heading_path,
            "parent_section": self.parent_section,
            "table_id": self.table_id,
            "page": self.page,
            "duplicates": self.duplicates,
            "generated": self.generated,
            "contains": self.contains,
            "meta": None if self.meta is None else Jsonb(dict(self.meta)),
            "fields": list(self.fields),
            "values": list(self.fields.values()),
        }


@dataclass(frozen=True, slots=True)
class ChunkListing:
    """Chunks in chunk_no order."""

    rows: list[ChunkRow]
    more_after: int | None
    """Continue after this chunk_no; None when nothing follows."""
    in_time: bool
    """False when the time ran out before the page was full: more may follow."""


async def find(
    conn: Connection,
    container_id: str,
    selection: ChunkSelection,
    *,
    after: int,
    limit: int,
    seconds: float,
) -> ChunkListing:
    """Visible chunks after ``after`` (-1 for the first) that match ``selection``; reads for at most ``seconds``."""
    until = time.monotonic() + seconds
    rows: list[ChunkRow] = []
    last = await _last(conn, selection)
    if last is not None:
        after = max(after, last[0] - 1)
    while True:
        reach = await _reach(conn, container_id, after)
        if reach is None or (last is not None and after >= last[1]):
            return ChunkListing(rows, None, in_time=True)
        values = {"container_id": container_id, "after": after, "upto": reach[0]}
        more = {**selection.values(), **values, "limit": limit + 1 - len(rows)}
        rows += await _chunks(conn, more)
        if len(rows) > limit:
            return ChunkListing(rows[:limit], rows[limit - 1].chunk_no, in_time=True)
        after = reach[0]
        if reach[1] < CHUNKS_PER_LOOK:
            return ChunkListing(rows, None, in_time=True)
        if time.monotonic() > until:
            return ChunkListing(rows, after, in_time=False)


async def _last(conn: Connection, selection: ChunkSelection) -> tuple[int, int] | None:
    """First and last chunk_no of a document; None without a condition on the document."""
    if selection.doc_id is None:
        return None
    row = await (await conn.execute(SPAN, {"doc_id": selection.doc_id})).fetchone()
    return (row["first"], row["last"]) if row and row["first"] is not None else (0, -1)


async def _reach(conn: Connection, container_id: str, after: int) -> tuple[int, int] | None:
    """The chunk_no up to which the next query reads, and the number of chunks until then."""
    values = {"container_id": container_id, "after": after, "n": CHUNKS_PER_LOOK}
    row = await (await conn.execute(REACH, values)).fetchone()
    return (row["last"], row["chunks"]) if row and row["chunks"] else None


async def one(conn: Connection, container_id: str, chunk_id: UUID) -> ChunkRow | None:
    """A visible chunk."""
    values = {"chunk_id": chunk_id, "container_id": container_id}
    row = await (await conn.execute(CHUNK_NO_OF, values)).fetchone()
    if row is None:
        return None
    bounds = {"after": row["chunk_no"] - 1, "upto": row["chunk_no"], "limit": 1}
    parameters = {
        **ChunkSelection(chunk_id=chunk_id).values(),
        "container_id": container_id,
        **bounds,
    }
    found = await _chunks(conn, parameters)
    return found[0] if found else None


async def _chunks(conn: Connection, parameters: Mapping[str, Any]) -> list[ChunkRow]:
    async with conn.cursor(row_factory=class_row(ChunkRow)) as cursor:
        await cursor.execute(FIND, parameters)
        return await cursor.fetchall()


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of the chunks of one source type, or of all (None)."""

    source_type: str | None
    row: Mapping[str, int]
    """Columns of ``SIZES``."""
    tokens: list[int]
    """Chunks in each class of ``TOKEN_STEPS``."""
    characters: list[int]


async def sizes(conn: Connection, container_id: str, doc_id: UUID | None) -> list[Sizes]:
    """Sizes of the visible chunks: first of all together, then by source type."""
    values = {"container_id": container_id, "doc_id": doc_id}
    rows = await (await conn.execute(SIZES, values)).fetchall()
    steps = {"token_steps": list(TOKEN_STEPS), "character_steps": list(CHARACTER_STEPS)}
    classes = await (await conn.execute(CLASSES, {**values, **steps})).fetchall()
    return [
        Sizes(
            source_type=(kind := row.pop("source_type")),
            row=row,
            tokens=_counts(classes, "tokens", kind, len(TOKEN_STEPS)),
            characters=_counts(classes, "characters", kind, len(CHARACTER_STEPS)),
        )
        for row in rows
        if row["chunks"]
    ]


def _counts(
    classes: list[dict[str, Any]], measure: str, source_type: str | None, steps: int
) -> list[int]:
    counts = [0] * (steps + 1)
    for row in classes:
        if source_type in (None, row["source_type"]):
            counts[row[measure]] += row["chunks"]
    return counts
