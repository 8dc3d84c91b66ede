"""Single pages of a PDF as PDF files: their sources and their rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from latent_core.db.connection import Connection
from latent_core.db.documents import pages
from latent_core.db.documents.pages import BlobRef

ROLE: Final = "page_pdf"


@dataclass(frozen=True, slots=True)
class PagePdfFile:
    """The PDF of this page."""

    sha256: str
    mime: str
    filename: str


@dataclass(frozen=True, slots=True)
class PageSource:
    """A page of a visible document, and the original it is a page of."""

    container_id: str
    generation: int
    page: int
    exists: bool
    """Whether the document has such a page."""
    sha256: str | None
    """Of the original; None when its bytes are not stored."""
    mime: str | None
    filename: str | None
    made: PagePdfFile | None


SOURCE: Final = """
SELECT d.container_id, d.live_generation AS generation, p.page IS NOT NULL AS exists,
       o.sha256, o.mime, o.filename,
       r.sha256 AS made_sha256, r.mime AS made_mime, r.filename AS made_filename
FROM documents d
LEFT JOIN pages p ON p.doc_id = d.id AND p.generation = d.live_generation AND p.page = %(page)s
LEFT JOIN blob_refs o ON o.doc_id = d.id AND o.generation = d.live_generation AND o.role = 'original' AND o.part = 0
LEFT JOIN blob_refs r ON r.doc_id = d.id AND r.generation = d.live_generation AND r.role = 'page_pdf'
                     AND r.part = p.page AND r.sha256 = p.pdf_sha256
WHERE d.id = %(doc_id)s AND d.live_generation IS NOT NULL AND d.deleted_at IS NULL
"""

IS_REQUESTED: Final = """
SELECT 1 FROM pages p JOIN documents d ON d.id = p.doc_id AND d.live_generation = p.generation
WHERE p.doc_id = %(doc_id)s AND p.generation = %(generation)s AND p.page = %(page)s
  AND p.pdf_sha256 IS NULL AND d.deleted_at IS NULL
"""

NOTE: Final = """
UPDATE pages SET pdf_sha256 = %(sha256)s
WHERE doc_id = %(doc_id)s AND generation = %(generation)s AND page = %(page)s
"""


async def source(conn: Connection, doc_id: UUID, page: int) -> PageSource | None:
    """The source of a page of the live generation; None when the document does not exist."""
    row = await (await conn.execute(SOURCE, {"doc_id": doc_id, "page": page})).fetchone()
    if row is None:
        return None
    made = (
        PagePdfFile(row["made_sha256"], row["made_mime"], row["made_filename"])
        if row["made_sha256"]
        else None
    )
    return PageSource(
        container_id=row["container_id"],
        generation=row["generation"],
        page=page,
        exists=row["exists"],
        sha256=row["sha256"],
        mime=row["mime"],
        filename=row["filename"],
        made=made,
    )


async def is_requested(conn: Connection, doc_id: UUID, generation: int, page: int) -> bool:
    """Whether the page is visible and has no PDF yet."""
    values = {"doc_id": doc_id, "generation": generation, "page": page}
    return await (await conn.execute(IS_REQUESTED, values)).fetchone() is not None


async def note(
    conn: Connection, doc_id: UUID, generation: int, page: int, made: PagePdfFile
) -> None:
    """Record the stored PDF of a page."""
    values = {"doc_id": doc_id, "generation": generation, "page": page, "sha256": made.sha256}
    await conn.execute(NOTE, values)
    ref = BlobRef(ROLE, page, made.sha256, made.mime, made.filename)
    await pages.refer(conn, doc_id, generation, [ref])
