"""Texts of visible chunks: of candidates, and of what stands around a hit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from psycopg.rows import tuple_row

from latent_core.registry.connection import Connection

TEXTS: Final = """
SELECT c.ord, c.text
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE c.container_id = %(container_id)s AND c.ord = ANY(%(ords)s::bigint[]) AND d.deleted_at IS NULL
"""

# Pages that are chunks as pictures stand after all text: beside them stand pages, and beside text stands text.
AROUND: Final = """
SELECT h.doc AS doc_id, h.ordinal AS hit_ordinal, c.ordinal, c.id, c.text, c.page, c.page_end, c.line_start, c.line_end,
       c.heading_path, c.key_path, c.table_id, c.row_group
FROM unnest(%(docs)s::uuid[], %(generations)s::int[], %(ordinals)s::int[]) AS h(doc, generation, ordinal)
JOIN documents d ON d.id = h.doc AND d.live_generation = h.generation AND d.deleted_at IS NULL
JOIN chunks a ON a.doc_id = h.doc AND a.generation = h.generation AND a.ordinal = h.ordinal
JOIN chunks c ON c.doc_id = h.doc AND c.generation = h.generation AND c.ordinal <> h.ordinal
     AND c.ordinal BETWEEN h.ordinal - %(reach)s AND h.ordinal + %(reach)s AND c.modality = a.modality
ORDER BY h.doc, h.ordinal, c.ordinal
"""

BEGINNING: Final = """
SELECT left(c.text, %(chars)s)
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE c.doc_id = %(doc_id)s AND d.deleted_at IS NULL AND (c.modality = 'text' OR d.source_type = 'image')
ORDER BY c.ordinal
LIMIT %(chunks)s
"""
CHUNKS_OF_A_BEGINNING: Final = 50


async def of_ords(conn: Connection, container_id: str, ords: Sequence[int]) -> dict[int, str]:
    """Raw texts of those of ``ords`` that are visible."""
    async with conn.cursor(row_factory=tuple_row, binary=True) as cursor:
        await cursor.execute(TEXTS, {"container_id": container_id, "ords": list(ords)})
        return dict(await cursor.fetchall())


async def around(
    conn: Connection, chosen: Sequence[tuple[UUID, int, int]], reach: int
) -> list[dict[str, Any]]:
    """Visible chunks up to ``reach`` before and after those at (document, generation, ordinal), in order."""
    docs, generations, ordinals = zip(*chosen, strict=True)
    values = {
        "docs": list(docs),
        "generations": list(generations),
        "ordinals": list(ordinals),
        "reach": reach,
    }
    return await (await conn.execute(AROUND, values)).fetchall()


async def beginning(conn: Connection, doc_id: UUID, chars: int) -> list[str]:
    """The first visible chunks of a document, each cut at ``chars``."""
    values = {"doc_id": doc_id, "chars": chars, "chunks": CHUNKS_OF_A_BEGINNING}
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(BEGINNING, values)
        return [text for (text,) in await cursor.fetchall()]
