"""Texts of visible chunks: of candidates, and of the neighbours of a hit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from psycopg.rows import class_row, tuple_row

from latent_core.db.connection import Connection
from latent_core.db.documents.chunks import Position
from latent_core.domain.generated import FIRST_POSITION
from latent_core.domain.ids import ChunkId

TEXTS: Final = """
SELECT c.chunk_no, c.text
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE c.container_id = %(container_id)s AND c.chunk_no = ANY(%(chunk_nos)s::bigint[]) AND d.deleted_at IS NULL
"""

# Image chunks of pages come after all text chunks: their neighbours are pages, those of a text are texts.
AROUND: Final = """
SELECT h.doc AS doc_id, h.position AS hit_position, c.position, c.id, c.text, c.page, c.page_end, c.line_start, c.line_end,
       c.heading_path, c.key_path, c.table_id, c.row_group
FROM unnest(%(docs)s::uuid[], %(generations)s::int[], %(positions)s::int[]) AS h(doc, generation, position)
JOIN documents d ON d.id = h.doc AND d.live_generation = h.generation AND d.deleted_at IS NULL
JOIN chunks a ON a.doc_id = h.doc AND a.generation = h.generation AND a.position = h.position
JOIN chunks c ON c.doc_id = h.doc AND c.generation = h.generation AND c.position <> h.position
     AND c.position BETWEEN h.position - %(reach)s AND h.position + %(reach)s AND c.modality = a.modality
ORDER BY h.doc, h.position, c.position
"""

BEGINNING: Final = f"""
SELECT left(c.text, %(chars)s)
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE c.doc_id = %(doc_id)s AND d.deleted_at IS NULL AND c.position < {FIRST_POSITION} AND (c.modality = 'text' OR d.source_type = 'image')
ORDER BY c.position
LIMIT %(chunks)s
"""
CHUNKS_OF_PREVIEW: Final = 50


# Images have no text of their own; their vectors are those of pictures.
EMBEDDED: Final = """
SELECT c.chunk_no, left(coalesce(c.embed_text, c.embed_head || c.text), %(chars)s) AS text, d.language
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE c.container_id = %(container_id)s AND c.chunk_no = ANY(%(chunk_nos)s::bigint[]) AND c.modality = 'text'
  AND d.deleted_at IS NULL
"""


@dataclass(frozen=True, slots=True)
class EmbeddedText:
    """A row of ``EMBEDDED``: what the vector of a chunk stands for."""

    chunk_no: int
    text: str
    language: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourRow(Position):
    """A row of ``AROUND``: a chunk near the hit at ``hit_position`` of the same document."""

    doc_id: UUID
    hit_position: int
    position: int
    id: ChunkId
    text: str


async def of_chunk_nos(
    conn: Connection, container_id: str, chunk_nos: Sequence[int]
) -> dict[int, str]:
    """Raw texts of the visible ones among ``chunk_nos``."""
    async with conn.cursor(row_factory=tuple_row, binary=True) as cursor:
        await cursor.execute(TEXTS, {"container_id": container_id, "chunk_nos": list(chunk_nos)})
        return dict(await cursor.fetchall())


async def embedded(
    conn: Connection, container_id: str, chunk_nos: Sequence[int], chars: int
) -> list[EmbeddedText]:
    """Beginnings of the embedded texts of the visible ones among ``chunk_nos``, without images."""
    values = {"container_id": container_id, "chunk_nos": list(chunk_nos), "chars": chars}
    async with conn.cursor(row_factory=class_row(EmbeddedText)) as cursor:
        await cursor.execute(EMBEDDED, values)
        return await cursor.fetchall()


async def around(
    conn: Connection, chosen: Sequence[tuple[UUID, int, int]], reach: int
) -> list[NeighbourRow]:
    """Visible chunks up to ``reach`` before and after those at (document, generation, position), in order."""
    docs, generations, positions = zip(*chosen, strict=True)
    values = {
        "docs": list(docs),
        "generations": list(generations),
        "positions": list(positions),
        "reach": reach,
    }
    async with conn.cursor(row_factory=class_row(NeighbourRow)) as cursor:
        await cursor.execute(AROUND, values)
        return await cursor.fetchall()


async def beginning(conn: Connection, doc_id: UUID, chars: int) -> list[str]:
    """The first visible chunks of a document, each cut at ``chars``."""
    values = {"doc_id": doc_id, "chars": chars, "chunks": CHUNKS_OF_PREVIEW}
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(BEGINNING, values)
        return [text for (text,) in await cursor.fetchall()]
