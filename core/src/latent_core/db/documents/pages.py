"""Rows of pages and of references to blobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal
from uuid import UUID

from latent_core.db.connection import Connection
from latent_core.db.documents import page_words
from latent_core.domain.page_words import PageWord


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
    visual: float | None = None
    """The share of its area that is picture, 0 to 1; None until it is rendered."""
    words: tuple[PageWord, ...] | None = None
    """As OCR read them; None if the page's text is not from OCR."""


@dataclass(frozen=True, slots=True)
class MissingImage:
    """Why a page image is missing."""

    state: Literal["pending", "failed", "none"]
    """``none``: no job draws it and no reason is known."""
    cause: str | None = None
    drawing: bool = False
    """Whether the job that draws pages is still open."""


NO_IMAGE: Final = MissingImage("none")


@dataclass(frozen=True, slots=True)
class BlobRef:
    """Why a blob is kept, and its display name."""

    role: str
    part: int
    sha256: str
    mime: str
    filename: str


UPSERT: Final = """
INSERT INTO pages (doc_id, generation, page, text, width, height, image_sha256, line_start, line_end, visual, words)
VALUES (%(doc_id)s, %(generation)s, %(page)s, %(text)s, %(width)s, %(height)s, %(image_sha256)s,
        %(line_start)s, %(line_end)s, %(visual)s, %(words)s::jsonb)
ON CONFLICT (doc_id, generation, page) DO UPDATE
SET width = excluded.width, height = excluded.height, image_sha256 = excluded.image_sha256,
    line_start = excluded.line_start, line_end = excluded.line_end, visual = excluded.visual
"""

UPSERT_REF: Final = """
INSERT INTO blob_refs (doc_id, generation, role, part, sha256, mime, filename, bucket)
SELECT r.*, coalesce((SELECT c.bucket FROM documents d JOIN containers c ON c.id = d.container_id
                      WHERE d.id = r.doc_id), '')
FROM unnest(%(doc_ids)s::uuid[], %(generations)s::integer[], %(roles)s::text[], %(parts)s::integer[],
            %(sha256s)s::text[], %(mimes)s::text[], %(filenames)s::text[])
     AS r (doc_id, generation, role, part, sha256, mime, filename)
ON CONFLICT (doc_id, generation, role, part) DO UPDATE
SET bucket = excluded.bucket, sha256 = excluded.sha256, mime = excluded.mime, filename = excluded.filename
"""

REFER_LIVE: Final = """
INSERT INTO blob_refs (doc_id, generation, role, part, bucket, sha256, mime, filename)
SELECT d.id, d.live_generation, %(role)s, %(part)s, c.bucket, %(sha256)s, %(mime)s, %(filename)s
FROM documents d JOIN containers c ON c.id = d.container_id
WHERE d.id = %(doc_id)s AND d.live_generation IS NOT NULL
ON CONFLICT (doc_id, generation, role, part) DO NOTHING
"""

ONE: Final = """
SELECT p.page, p.text, p.width, p.height, p.image_sha256, p.generation, r.bucket, r.mime, r.filename,
       (SELECT count(*) FROM pages a WHERE a.doc_id = p.doc_id AND a.generation = p.generation) AS pages
FROM pages p
JOIN documents d ON d.id = p.doc_id AND d.live_generation = p.generation
LEFT JOIN blob_refs r ON r.doc_id = p.doc_id AND r.generation = p.generation AND r.role = 'page_image' AND r.part = p.page
WHERE p.doc_id = %(doc_id)s AND p.page = %(page)s AND d.deleted_at IS NULL
"""

LISTED: Final = """
SELECT p.page, p.width, p.height, p.image_sha256, r.bucket, r.mime, r.filename, b.bytes
FROM pages p
JOIN documents d ON d.id = p.doc_id AND d.live_generation = p.generation
LEFT JOIN blob_refs r ON r.doc_id = p.doc_id AND r.generation = p.generation AND r.role = 'page_image' AND r.part = p.page
LEFT JOIN blobs b ON b.bucket = r.bucket AND b.sha256 = p.image_sha256
WHERE p.doc_id = %(doc_id)s AND p.page > %(after)s AND d.deleted_at IS NULL
ORDER BY p.page
LIMIT %(limit)s
"""

# The last job that draws the pages of document d. The caller may have read the pages before: a job that ended just now
# may have drawn them since.
LAST_DRAWING: Final = """
    SELECT j.id, j.state, j.cause, j.warnings, j.state IN ('queued', 'running') AS open,
           j.state = 'done' AND j.finished_at > clock_timestamp() - interval '10 seconds' AS recent
    FROM jobs j
    WHERE j.doc_id = d.id AND j.kind = 'render'
    ORDER BY j.id DESC LIMIT 1
"""

DRAWING: Final = f"""
SELECT d.id AS doc_id, drawing.*
FROM unnest(%(doc_ids)s::uuid[]) AS d (id) CROSS JOIN LATERAL ({LAST_DRAWING}) drawing
"""

LACKING_IMAGES: Final = """
SELECT d.live_generation FROM documents d
WHERE d.id = %(doc_id)s AND d.live_generation IS NOT NULL
  AND (NOT EXISTS (SELECT 1 FROM pages p WHERE p.doc_id = d.id AND p.generation = d.live_generation)
       OR EXISTS (SELECT 1 FROM pages p WHERE p.doc_id = d.id AND p.generation = d.live_generation
                  AND p.image_sha256 IS NULL))
"""

IS_LIVE: Final = """
SELECT 1 FROM documents WHERE id = %(doc_id)s AND live_generation = %(generation)s AND deleted_at IS NULL FOR SHARE
"""


async def write(conn: Connection, doc_id: UUID, generation: int, rows: Sequence[PageRow]) -> None:
    """Insert pages, or set the image of existing ones."""
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
                "visual": r.visual,
                "words": None if r.words is None else page_words.as_json(r.words),
            }
            for r in rows
        ],
    )


async def refer_live(conn: Connection, doc_id: UUID, ref: BlobRef) -> None:
    """Keep a blob for the live generation, unless it has one for this purpose."""
    values = {"doc_id": doc_id, **asdict(ref)}
    await conn.execute(REFER_LIVE, values)


async def refer(conn: Connection, doc_id: UUID, generation: int, refs: Sequence[BlobRef]) -> None:
    """Keep blobs for a generation."""
    await refer_all(conn, [(doc_id, generation, ref) for ref in refs])


async def refer_all(conn: Connection, refs: Sequence[tuple[UUID, int, BlobRef]]) -> None:
    """Keep blobs, each for a document's generation."""
    if not refs:
        return
    parameters = {
        "doc_ids": [doc_id for doc_id, _, _ in refs],
        "generations": [generation for _, generation, _ in refs],
        "roles": [ref.role for _, _, ref in refs],
        "parts": [ref.part for _, _, ref in refs],
        "sha256s": [ref.sha256 for _, _, ref in refs],
        "mimes": [ref.mime for _, _, ref in refs],
        "filenames": [ref.filename for _, _, ref in refs],
    }
    await conn.execute(UPSERT_REF, parameters)


async def _many(conn: Connection, query: str, rows: list[dict[str, Any]]) -> None:
    if len(rows) == 1:  # the driver's executemany costs more than the statement
        await conn.execute(query, rows[0])
    elif rows:
        async with conn.cursor() as cursor:
            await cursor.executemany(query, rows)


async def one(conn: Connection, doc_id: UUID, page: int) -> dict[str, Any] | None:
    """One page of the live generation."""
    return await (await conn.execute(ONE, {"doc_id": doc_id, "page": page})).fetchone()


async def listed(conn: Connection, doc_id: UUID, *, after: int, limit: int) -> list[dict[str, Any]]:
    """Pages of the live generation after ``after`` (0 for the first), without their text."""
    cursor = await conn.execute(LISTED, {"doc_id": doc_id, "after": after, "limit": limit})
    return await cursor.fetchall()


async def lacks(conn: Connection, doc_ids: Sequence[UUID]) -> dict[UUID, MissingImage]:
    """Why documents have no page images; absent where no job gives a reason."""
    cursor = await conn.execute(DRAWING, {"doc_ids": list(doc_ids)})
    return {row["doc_id"]: missing_image(row) for row in await cursor.fetchall()}


def missing_image(job: Mapping[str, Any] | None) -> MissingImage:
    """Why an image is missing, by the last job that draws the pages; None: there was no such job."""
    if job is None:
        return NO_IMAGE
    if job["open"] or job["recent"]:
        return MissingImage("pending", drawing=job["open"])
    issues = [job["cause"]] if job["cause"] else job["warnings"]
    causes = "; ".join(str(issue["message"]) for issue in issues)
    if job["state"] == "done":
        return MissingImage("failed", causes) if causes else NO_IMAGE
    causes = causes or f"the job ended as {job['state']}"
    return MissingImage("failed", f"{causes} (job {job['id']}; requeue it to draw the pages again)")


async def is_live(conn: Connection, doc_id: UUID, generation: int) -> bool:
    """Whether ``generation`` is the visible one; the answer holds until the transaction ends."""
    cursor = await conn.execute(IS_LIVE, {"doc_id": doc_id, "generation": generation})
    return await cursor.fetchone() is not None


async def lacking_images(conn: Connection, doc_id: UUID) -> int | None:
    """The live generation if some of its pages have no image; None when all have one."""
    row = await (await conn.execute(LACKING_IMAGES, {"doc_id": doc_id})).fetchone()
    return row["live_generation"] if row else None


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
    bucket: str
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
SELECT d.container_id, c.bucket, d.live_generation AS generation, p.page IS NOT NULL AS exists,
       o.sha256, o.mime, o.filename,
       r.sha256 AS made_sha256, r.mime AS made_mime, r.filename AS made_filename
FROM documents d
JOIN containers c ON c.id = d.container_id
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


async def pdf_source(conn: Connection, doc_id: UUID, page: int) -> PageSource | None:
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
        bucket=row["bucket"],
        generation=row["generation"],
        page=page,
        exists=row["exists"],
        sha256=row["sha256"],
        mime=row["mime"],
        filename=row["filename"],
        made=made,
    )


async def is_pdf_requested(conn: Connection, doc_id: UUID, generation: int, page: int) -> bool:
    """Whether the page is visible and has no PDF yet."""
    values = {"doc_id": doc_id, "generation": generation, "page": page}
    return await (await conn.execute(IS_REQUESTED, values)).fetchone() is not None


async def note_pdf(
    conn: Connection, doc_id: UUID, generation: int, page: int, made: PagePdfFile
) -> None:
    """Record the stored PDF of a page."""
    values = {"doc_id": doc_id, "generation": generation, "page": page, "sha256": made.sha256}
    await conn.execute(NOTE, values)
    ref = BlobRef(ROLE, page, made.sha256, made.mime, made.filename)
    await refer(conn, doc_id, generation, [ref])
