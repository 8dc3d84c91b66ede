"""The words of pages with their boxes: columns of ``pages``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

import orjson
from psycopg.rows import class_row

from latent_core.db.connection import Connection
from latent_core.domain.page_words import PageWord, PageWords

KEPT: Final = timedelta(days=7)
MAX_PAGES: Final = 20_000
"""Pages whose words from PDFs are kept; older ones are read again on request."""
ROWS_PER_LOOK: Final = 5_000

# One character separates the texts of two pages in that of the document.
FIND: Final = """
SELECT p.page, p.text, p.words, d.live_generation AS generation, d.container_id, c.bucket,
       (SELECT coalesce(sum(char_length(q.text) + 1), 0)::bigint FROM pages q
        WHERE q.doc_id = p.doc_id AND q.generation = p.generation AND q.page < p.page) AS text_start,
       o.sha256, o.mime, o.filename
FROM pages p
JOIN documents d ON d.id = p.doc_id AND d.live_generation = p.generation
JOIN containers c ON c.id = d.container_id
LEFT JOIN blob_refs o ON o.doc_id = d.id AND o.generation = d.live_generation AND o.role = 'original' AND o.part = 0
WHERE p.doc_id = %(doc_id)s AND p.page = %(page)s AND d.deleted_at IS NULL
"""

IS_REQUESTED: Final = """
SELECT 1 FROM pages p JOIN documents d ON d.id = p.doc_id AND d.live_generation = p.generation
WHERE p.doc_id = %(doc_id)s AND p.generation = %(generation)s AND p.page = %(page)s
  AND p.words IS NULL AND d.deleted_at IS NULL
"""

NOTE: Final = """
UPDATE pages SET words = %(words)s::jsonb, words_at = now()
WHERE doc_id = %(doc_id)s AND generation = %(generation)s AND page = %(page)s AND words IS NULL
"""

FORGET: Final = """
UPDATE pages SET words = NULL, words_at = NULL
WHERE (doc_id, generation, page) IN (
    SELECT doc_id, generation, page FROM pages
    WHERE words_at < greatest(now() - %(kept)s::interval, (
        SELECT words_at FROM pages WHERE words_at IS NOT NULL ORDER BY words_at DESC OFFSET %(max_pages)s LIMIT 1))
    ORDER BY words_at LIMIT %(limit)s
)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageWordsRow:
    """A visible page, its words if they are known, and the original that it is a page of."""

    page: int
    text: str
    text_start: int
    """Where the page begins in the text of the document, in characters."""
    words: list[list[str | int]] | None
    generation: int
    container_id: str
    bucket: str
    sha256: str | None
    """Of the original; None when its bytes are not stored."""
    mime: str | None
    filename: str | None

    def placed(self) -> tuple[PageWord, ...] | None:
        """The words; None if nothing has read them yet."""
        return None if self.words is None else PageWords.validate_python(self.words)


async def find(conn: Connection, doc_id: UUID, page: int) -> PageWordsRow | None:
    """The page of the live generation."""
    async with conn.cursor(row_factory=class_row(PageWordsRow)) as cursor:
        await cursor.execute(FIND, {"doc_id": doc_id, "page": page})
        return await cursor.fetchone()


async def is_requested(conn: Connection, doc_id: UUID, generation: int, page: int) -> bool:
    """Whether the page is visible and its words are not known."""
    values = {"doc_id": doc_id, "generation": generation, "page": page}
    return await (await conn.execute(IS_REQUESTED, values)).fetchone() is not None


async def note(
    conn: Connection, doc_id: UUID, generation: int, page: int, words: Sequence[PageWord]
) -> None:
    """Keep words that were read from a PDF, for a limited time."""
    await conn.execute(
        NOTE,
        {"doc_id": doc_id, "generation": generation, "page": page, "words": as_json(words)},
    )


async def forget(conn: Connection, kept: timedelta = KEPT, max_pages: int = MAX_PAGES) -> int:
    """Remove a batch of the words from PDFs that are older than ``kept`` or more than ``max_pages``; returns their
    number."""
    values = {"kept": kept, "max_pages": max_pages, "limit": ROWS_PER_LOOK}
    return (await conn.execute(FORGET, values)).rowcount


def as_json(words: Sequence[PageWord]) -> str:
    return orjson.dumps([list(word) for word in words]).decode()
