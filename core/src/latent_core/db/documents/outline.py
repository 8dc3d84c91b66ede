"""The outline of a document: its headings in order, with the lines and pages of their sections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from psycopg.rows import class_row

from latent_core.db.connection import Connection
from latent_core.domain.generated import FIRST_POSITION

# Chunks follow each other in the order of the text: a section begins where its heading path first occurs.
SECTIONS: Final = f"""
SELECT c.heading_path, min(c.position) AS position, min(c.chunk_no) AS first_chunk_no, max(c.chunk_no) AS last_chunk_no,
       min(c.line_start) AS line_start, max(c.line_end) AS line_end, min(c.page) AS page,
       max(coalesce(c.page_end, c.page)) AS page_end, sum(char_length(c.text)) AS characters
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE d.id = %(doc_id)s AND d.deleted_at IS NULL AND c.modality = 'text' AND c.position < {FIRST_POSITION}
GROUP BY c.heading_path
ORDER BY min(c.position)
LIMIT %(limit)s
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionRow:
    heading_path: list[str]
    """Empty for text before the first heading."""
    position: int
    first_chunk_no: int
    last_chunk_no: int
    line_start: int | None
    line_end: int | None
    page: int | None
    page_end: int | None
    characters: int


async def sections(conn: Connection, doc_id: UUID, limit: int) -> list[SectionRow]:
    """The sections of the live generation, in the order of the text."""
    async with conn.cursor(row_factory=class_row(SectionRow)) as cursor:
        await cursor.execute(SECTIONS, {"doc_id": doc_id, "limit": limit})
        return await cursor.fetchall()
