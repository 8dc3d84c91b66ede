"""What a page extraction reads: the pages of a live generation with their text, image and PDF."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from psycopg.rows import class_row

from latent_core.db.connection import Connection

SOURCE: Final = """
SELECT d.container_id, d.live_generation AS generation, d.source_type, d.title, d.parent_id IS NOT NULL AS is_record,
       o.sha256, o.mime, o.filename,
       coalesce((SELECT array_agg(p.page ORDER BY p.page) FROM pages p
                 WHERE p.doc_id = d.id AND p.generation = d.live_generation), '{}') AS pages
FROM documents d
LEFT JOIN blob_refs o ON o.doc_id = d.id AND o.generation = d.live_generation AND o.role = 'original' AND o.part = 0
WHERE d.id = %(doc_id)s AND d.live_generation IS NOT NULL AND d.deleted_at IS NULL
"""

PAGES: Final = """
SELECT p.page, p.text, p.visual, p.pdf_sha256, p.image_sha256, i.mime AS image_mime
FROM pages p
JOIN documents d ON d.id = p.doc_id AND d.live_generation = p.generation
LEFT JOIN blob_refs i ON i.doc_id = p.doc_id AND i.generation = p.generation AND i.role = 'page_image' AND i.part = p.page
                     AND i.sha256 = p.image_sha256
WHERE p.doc_id = %(doc_id)s AND p.generation = %(generation)s AND p.page = ANY(%(pages)s) AND d.deleted_at IS NULL
ORDER BY p.page
"""


@dataclass(frozen=True, slots=True)
class PagedDocument:
    """A visible document and its original; ``sha256``, ``mime`` and ``filename`` are None without stored bytes."""

    container_id: str
    generation: int
    source_type: str
    title: str | None
    is_record: bool
    """Of a corpus."""
    sha256: str | None
    mime: str | None
    filename: str | None
    pages: list[int]


@dataclass(frozen=True, slots=True)
class PageInput:
    """A page of a generation."""

    page: int
    text: str
    visual: float | None
    """The share of its area that is picture; None until it is drawn."""
    pdf_sha256: str | None
    """None until its PDF is made."""
    image_sha256: str | None
    image_mime: str | None


async def document(conn: Connection, doc_id: UUID) -> PagedDocument | None:
    """None if it is not visible."""
    async with conn.cursor(row_factory=class_row(PagedDocument)) as cursor:
        await cursor.execute(SOURCE, {"doc_id": doc_id})
        return await cursor.fetchone()


async def pages(
    conn: Connection, doc_id: UUID, generation: int, numbers: Sequence[int]
) -> dict[int, PageInput]:
    """Those of the pages ``numbers`` that exist; none if the generation is not live any more."""
    values = {"doc_id": doc_id, "generation": generation, "pages": list(numbers)}
    async with conn.cursor(row_factory=class_row(PageInput)) as cursor:
        await cursor.execute(PAGES, values)
        return {row.page: row for row in await cursor.fetchall()}
