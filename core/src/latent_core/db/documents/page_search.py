"""Finds pages of a container by their number, or by a text in them: in the source or in what a model wrote of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from psycopg.rows import class_row

from latent_core.db.connection import Connection

NIL: Final = UUID(int=0)
SCANNED: Final = 5_000
"""Pages whose text one call compares."""

SCAN: Final = """
WITH scanned AS MATERIALIZED (
    SELECT p.doc_id, p.generation, p.page, p.text, p.visual, p.pdf_sha256, d.uri, d.title, d.sha256
    FROM documents d JOIN pages p ON p.doc_id = d.id AND p.generation = d.live_generation
    WHERE d.container_id = %(container_id)s AND d.deleted_at IS NULL
      AND (%(ids)s::uuid[] IS NULL OR d.id = ANY(%(ids)s)) AND (%(page)s::integer IS NULL OR p.page = %(page)s)
      AND (d.id, p.page) > (%(after_doc)s, %(after_page)s)
    ORDER BY d.id, p.page
    LIMIT %(scanned)s
)
SELECT s.doc_id, s.page, s.uri, s.title, s.visual, s.pdf_sha256 AS page_pdf_sha256, e.state, e.visual_importance,
       e.page_hash, e.model, e.created_at, e.cause ->> 'message' AS cause,
       strpos(lower(s.text), lower(%(text)s)) > 0 AS in_source,
       coalesce(strpos(lower(e.extraction ->> 'full_text'), lower(%(text)s)) > 0
                OR strpos(lower(e.extraction -> 'visuals' #>> '{}'), lower(%(text)s)) > 0, false) AS in_extraction,
       substr(s.text, greatest(strpos(lower(s.text), lower(%(text)s)) - 60, 1), 160) AS excerpt
FROM scanned s
LEFT JOIN page_extractions e ON (e.doc_id, e.generation, e.page) = (s.doc_id, s.generation, s.page)
WHERE %(text)s = '' OR strpos(lower(s.text), lower(%(text)s)) > 0
   OR strpos(lower(e.extraction ->> 'full_text'), lower(%(text)s)) > 0
   OR strpos(lower(e.extraction -> 'visuals' #>> '{}'), lower(%(text)s)) > 0
ORDER BY s.doc_id, s.page
LIMIT %(limit)s
"""

LAST_SCANNED: Final = """
SELECT d.id, p.page FROM documents d JOIN pages p ON p.doc_id = d.id AND p.generation = d.live_generation
WHERE d.container_id = %(container_id)s AND d.deleted_at IS NULL
  AND (%(ids)s::uuid[] IS NULL OR d.id = ANY(%(ids)s)) AND (%(page)s::integer IS NULL OR p.page = %(page)s)
  AND (d.id, p.page) > (%(after_doc)s, %(after_page)s)
ORDER BY d.id, p.page
LIMIT 1 OFFSET %(scanned)s - 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPageRow:
    """A page, and what is known of its extraction (None: there is none)."""

    doc_id: UUID
    page: int
    uri: str
    title: str | None
    visual: float | None
    page_pdf_sha256: str | None
    state: str | None
    visual_importance: int | None
    page_hash: str | None
    model: str | None
    created_at: datetime | None
    cause: str | None
    in_source: bool
    in_extraction: bool
    excerpt: str


@dataclass(frozen=True, slots=True)
class PageMatches:
    rows: list[FoundPageRow]
    last: tuple[UUID, int] | None
    """After which another call goes on; None at the end."""


async def find(
    conn: Connection,
    container_id: str,
    *,
    text: str,
    page: int | None,
    doc_ids: Collection[UUID] | None,
    after: tuple[UUID, int] | None,
    limit: int,
) -> PageMatches:
    """Pages in the order of documents and numbers. One call compares ``SCANNED`` pages: it may find none and yet not be
    the last."""
    after_doc, after_page = after or (NIL, 0)
    values: dict[str, Any] = {
        "container_id": container_id,
        "text": text,
        "page": page,
        "ids": None if doc_ids is None else list(doc_ids),
        "after_doc": after_doc,
        "after_page": after_page,
        "scanned": SCANNED,
        "limit": limit + 1,
    }
    async with conn.cursor(row_factory=class_row(FoundPageRow)) as cursor:
        await cursor.execute(SCAN, values)
        rows: Sequence[FoundPageRow] = await cursor.fetchall()
    if len(rows) > limit:
        return PageMatches(list(rows[:limit]), (rows[limit - 1].doc_id, rows[limit - 1].page))
    last = await (await conn.execute(LAST_SCANNED, values)).fetchone()
    return PageMatches(list(rows), (last["id"], last["page"]) if last else None)
