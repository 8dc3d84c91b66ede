"""Looking through chunks for as long as it is allowed to take."""

from __future__ import annotations

import pytest

from latent_core.domain.ids import document_id
from latent_core.registry import inspection
from latent_core.registry.connection import Database
from latent_core.registry.inspection import Wanted
from tests.support.queue import sql

CONTAINER = "INSERT INTO containers (id, manifest, etag) VALUES ('notes', '{}', 'x')"
DOCUMENT = """
INSERT INTO documents (id, container_id, uri, live_generation, live_chunks)
VALUES (%(id)s, 'notes', %(uri)s, 1, 5)
"""
CHUNKS = """
INSERT INTO chunks (doc_id, generation, ordinal, id, container_id, ord, source_type, block_type, text, embed_text,
                    offset_start, offset_end, content_hash, token_count, windows, tsv, length, provenance)
SELECT %(id)s, g, n, gen_random_uuid(), 'notes', %(first)s + n + 100 * (g - 1), 'text', 'paragraph', 'Lamp ' || n, '',
       0, 6, 'h', n, 1, '', 2, '{}'
FROM generate_series(0, 4) n, generate_series(1, 2) g
"""


@pytest.fixture
async def db(database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    """Two documents of five chunks, and as many of a generation that is not live."""
    monkeypatch.setattr(inspection, "CHUNKS_A_LOOK", 3)
    await sql(database, CONTAINER)
    for number, uri in enumerate(("file:///a", "file:///b")):
        await sql(database, DOCUMENT, id=document_id("notes", uri), uri=uri)
        await sql(database, CHUNKS, id=document_id("notes", uri), first=10 * number)
    return database


async def listed(
    db: Database, wanted: Wanted, *, limit: int = 100, seconds: float = 60.0
) -> tuple[list[int], int]:
    """Ords from page to page, and how many pages there were."""
    ords: list[int] = []
    after, pages = -1, 0
    while True:
        async with db.reading() as conn:
            found = await inspection.find(
                conn, "notes", wanted, after=after, limit=limit, seconds=seconds
            )
        pages += 1
        ords += [row.ord for row in found.rows]
        assert len(found.rows) <= limit
        if found.more_after is None:
            assert found.in_time
            return ords, pages
        assert found.more_after > after
        after = found.more_after


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 100])
@pytest.mark.parametrize("seconds", [60.0, -1.0])
async def test_every_live_chunk_is_listed_once_however_short_the_pages_and_the_time(
    db: Database, limit: int, seconds: float
) -> None:
    ords, pages = await listed(db, Wanted(), limit=limit, seconds=seconds)
    assert ords == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
    assert pages >= 10 / limit
    ords, _ = await listed(db, Wanted(contains="lamp 3"), limit=limit, seconds=seconds)
    assert ords == [3, 13]


async def test_when_the_time_is_over_the_page_says_where_to_go_on(db: Database) -> None:
    async with db.reading() as conn:
        found = await inspection.find(
            conn, "notes", Wanted(contains="nothing"), after=-1, limit=10, seconds=-1.0
        )
    assert (found.rows, found.in_time, found.more_after) == ([], False, 2)


async def test_only_the_part_of_a_document_is_read(db: Database) -> None:
    b = document_id("notes", "file:///b")
    ords, pages = await listed(db, Wanted(doc_id=b), seconds=-1.0)
    assert ords == [10, 11, 12, 13, 14]
    assert pages <= 3
    assert await listed(db, Wanted(doc_id=document_id("notes", "file:///c"))) == ([], 1)
