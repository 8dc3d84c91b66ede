"""Words of pages: those of OCR stay, those that were read from PDFs are forgotten by age and by number."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

from latent_core.db.connection import Connection, Database
from latent_core.db.documents import page_words, pages
from latent_core.db.documents.pages import PageRow
from latent_core.domain.page_words import PageWord

WORDS = (PageWord("lamp", 100, 200, 900, 400), PageWord("n\u00e4chtlich", 1000, 200, 2900, 400))
CONTAINER = "INSERT INTO containers (id, manifest, etag) VALUES ('notes', '{}', 'e')"
DOCUMENT = "INSERT INTO documents (id, container_id, uri, live_generation) VALUES (%s, 'notes', 'file:///a.pdf', 1)"
KEPT = "SELECT page FROM pages WHERE words IS NOT NULL ORDER BY page"


async def store(conn: Connection, count: int, *, scanned: int) -> UUID:
    doc_id = uuid4()
    await conn.execute(CONTAINER)
    await conn.execute(DOCUMENT, [doc_id])
    rows = [
        PageRow(n, f"page {n}", words=WORDS if n == scanned else None) for n in range(1, count + 1)
    ]
    await pages.write(conn, doc_id, 1, rows)
    return doc_id


async def test_a_page_has_its_words_and_the_place_of_its_text(database: Database) -> None:
    async with database.transaction() as conn:
        doc_id = await store(conn, 12, scanned=11)
        found = await page_words.find(conn, doc_id, 11)
        unread = await page_words.find(conn, doc_id, 12)
        assert await page_words.find(conn, doc_id, 13) is None
        assert not await page_words.is_requested(conn, doc_id, 1, 11)
        assert await page_words.is_requested(conn, doc_id, 1, 12)
    assert found is not None
    assert found.placed() == WORDS
    text = "\f".join(f"page {n}" for n in range(1, 13))
    assert found.text_start == text.index("page 11")
    assert unread is not None
    assert unread.placed() is None


async def test_words_of_pdfs_are_forgotten_by_age_and_number_and_those_of_ocr_stay(
    database: Database,
) -> None:
    async with database.transaction() as conn:
        doc_id = await store(conn, 6, scanned=1)
        for page in (1, 2, 3, 4, 5):
            await page_words.note(conn, doc_id, 1, page, WORDS[:1])
        row = await page_words.find(conn, doc_id, 1)
        assert row is not None
        assert row.placed() == WORDS, "what OCR read is not replaced"
        age = (
            "UPDATE pages SET words_at = now() - page * interval '1 day' WHERE words_at IS NOT NULL"
        )
        await conn.execute(age)
        assert await page_words.forget(conn, kept=timedelta(days=4, hours=12)) == 1
        kept = await (await conn.execute(KEPT)).fetchall()
        assert [one["page"] for one in kept] == [1, 2, 3, 4]
        assert await page_words.forget(conn, max_pages=1) == 1
        assert await page_words.forget(conn, max_pages=1) == 0
        kept = await (await conn.execute(KEPT)).fetchall()
        assert [one["page"] for one in kept] == [1, 2, 3]
