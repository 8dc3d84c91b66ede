"""Rows of pages and of references to blobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from latent_core.registry.connection import Connection


@dataclass(frozen=True, slots=True)
class PageRow:
    """One page of a generation; ``image_sha256`` is None until it is rendered."""

    page: int
    text: str
    width: int | None = None
    height: int | None = None
    image_sha256: str | None = None
    line_start: int | None = None
    line_end: int | None = None


@dataclass(frozen=True, slots=True)
class BlobRef:
    """Why a blob is kept, and the name people see it by."""

    role: str
    part: int
    sha256: str
    mime: str
    filename: str


UPSERT: Final = """
INSERT INTO pages (doc_id, generation, page, text, width, height, image_sha256, line_start, line_end)
VALUES (%(doc_id)s, %(generation)s, %(page)s, %(text)s, %(width)s, %(height)s, %(image_sha256)s,
        %(line_start)s, %(line_end)s)
ON CONFLICT (doc_id, generation, page) DO UPDATE
SET width = excluded.width, height = excluded.height, image_sha256 = excluded.image_sha256,
    line_start = excluded.line_start, line_end = excluded.line_end
"""

UPSERT_REF: Final = """
INSERT INTO blob_refs (doc_id, generation, role, part, sha256, mime, filename)
VALUES (%(doc_id)s, %(generation)s, %(role)s, %(part)s, %(sha256)s, %(mime)s, %(filename)s)
ON CONFLICT (doc_id, generation, role, part) DO UPDATE
SET sha256 = excluded.sha256, mime = excluded.mime, filename = excluded.filename
"""

IMAGES: Final = """
SELECT p.doc_id, p.generation, p.page, p.image_sha256, r.mime, r.filename
FROM pages p
LEFT JOIN blob_refs r ON r.doc_id = p.doc_id AND r.generation = p.generation AND r.role = 'page_image' AND r.part = p.page
WHERE (p.doc_id, p.generation) IN (SELECT * FROM unnest(%(doc_ids)s::uuid[], %(generations)s::integer[]))
  AND p.page = ANY(%(pages)s)
"""

ONE: Final = """
SELECT p.page, p.text, p.width, p.height, p.image_sha256, p.generation, r.mime, r.filename,
       (SELECT count(*) FROM pages a WHERE a.doc_id = p.doc_id AND a.generation = p.generation) AS pages
FROM pages p
JOIN documents d ON d.id = p.doc_id AND d.live_generation = p.generation
LEFT JOIN blob_refs r ON r.doc_id = p.doc_id AND r.generation = p.generation AND r.role = 'page_image' AND r.part = p.page
WHERE p.doc_id = %(doc_id)s AND p.page = %(page)s AND d.deleted_at IS NULL
"""

LACKING_IMAGES: Final = """
SELECT d.live_generation FROM documents d
WHERE d.id = %(doc_id)s AND d.live_generation IS NOT NULL
  AND (NOT EXISTS (SELECT 1 FROM pages p WHERE p.doc_id = d.id AND p.generation = d.live_generation)
       OR EXISTS (SELECT 1 FROM pages p WHERE p.doc_id = d.id AND p.generation = d.live_generation
                  AND p.image_sha256 IS NULL))
"""

DELETE_DEAD: Final = """
DELETE FROM pages p
WHERE p.doc_id = %(doc_id)s AND p.generation < %(below)s
  AND p.generation IS DISTINCT FROM (SELECT live_generation FROM documents WHERE id = %(doc_id)s)
"""

DELETE_DEAD_REFS: Final = """
DELETE FROM blob_refs r
WHERE r.doc_id = %(doc_id)s AND r.generation < %(below)s
  AND r.generation IS DISTINCT FROM (SELECT live_generation FROM documents WHERE id = %(doc_id)s)
"""

IS_LIVE: Final = """
SELECT 1 FROM documents WHERE id = %(doc_id)s AND live_generation = %(generation)s AND deleted_at IS NULL FOR SHARE
"""


async def write(conn: Connection, doc_id: UUID, generation: int, rows: Sequence[PageRow]) -> None:
    """Insert pages, or give those that are there their image."""
    await _many(
        conn,
        UPSERT,
        [
            {
                "doc_id": doc_id,
                "generation": generation,
                "page": r.page,
                "text": r.text,
                "width": r.width,
                "height": r.height,
                "image_sha256": r.image_sha256,
                "line_start": r.line_start,
                "line_end": r.line_end,
            }
            for r in rows
        ],
    )


async def refer(conn: Connection, doc_id: UUID, generation: int, refs: Sequence[BlobRef]) -> None:
    """Keep blobs for a generation."""
    await _many(
        conn,
        UPSERT_REF,
        [
            {
                "doc_id": doc_id,
                "generation": generation,
                "role": r.role,
                "part": r.part,
                "sha256": r.sha256,
                "mime": r.mime,
                "filename": r.filename,
            }
            for r in refs
        ],
    )


async def _many(conn: Connection, query: str, rows: list[dict[str, Any]]) -> None:
    if rows:
        async with conn.cursor() as cursor:
            await cursor.executemany(query, rows)


async def images(
    conn: Connection, generations: Sequence[tuple[UUID, int]], pages: Sequence[int]
) -> dict[tuple[UUID, int], dict[str, Any]]:
    """Page rows of generations, by (document, page)."""
    if not generations or not pages:
        return {}
    cursor = await conn.execute(
        IMAGES,
        {
            "doc_ids": [doc for doc, _ in generations],
            "generations": [generation for _, generation in generations],
            "pages": sorted(set(pages)),
        },
    )
    return {(row["doc_id"], row["page"]): row for row in await cursor.fetchall()}


async def one(conn: Connection, doc_id: UUID, page: int) -> dict[str, Any] | None:
    """One page of the live generation."""
    return await (await conn.execute(ONE, {"doc_id": doc_id, "page": page})).fetchone()


async def is_live(conn: Connection, doc_id: UUID, generation: int) -> bool:
    """Whether ``generation`` is the visible one; it stays so until the transaction ends."""
    cursor = await conn.execute(IS_LIVE, {"doc_id": doc_id, "generation": generation})
    return await cursor.fetchone() is not None


async def lacking_images(conn: Connection, doc_id: UUID) -> int | None:
    """The live generation when pages of it have no image (yet); None when all have."""
    row = await (await conn.execute(LACKING_IMAGES, {"doc_id": doc_id})).fetchone()
    return row["live_generation"] if row else None


async def delete_dead(conn: Connection, doc_id: UUID, below: int) -> tuple[int, int]:
    """Remove pages and blob references of generations < ``below`` that are not live; answers both counts."""
    values = {"doc_id": doc_id, "below": below}
    pages = (await conn.execute(DELETE_DEAD, values)).rowcount
    return pages, (await conn.execute(DELETE_DEAD_REFS, values)).rowcount
