"""Looking through chunks for as long as it is allowed to take."""

from __future__ import annotations

import pytest

from latent_core.db.connection import Database
from latent_core.db.documents import chunk_listing
from latent_core.db.documents.chunk_listing import ChunkSelection
from latent_core.domain.ids import document_id
from tests.support.queue import sql

CONTAINER = "INSERT INTO containers (id, manifest, etag) VALUES ('notes', '{}', 'x')"
DOCUMENT = """
INSERT INTO documents (id, container_id, uri, live_generation, live_chunks)
VALUES (%(id)s, 'notes', %(uri)s, 1, 5)
"""
CHUNKS = """
INSERT INTO chunks (doc_id, generation, position, id, container_id, chunk_no, source_type, block_type, text, embed_text,
                    offset_start, offset_end, content_hash, token_count, windows, tsv, length, provenance)
SELECT %(id)s, g, n, gen_random_uuid(), 'notes', %(first)s + n + 100 * (g - 1), 'text', 'paragraph', 'Lamp ' || n, '',
       0, 6, 'h', n, 1, '', 2, '{}'
FROM generate_series(0, 4) n, generate_series(1, 2) g
"""


@pytest.fixture
async def db(database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    """Two documents of five chunks, and as many of a generation that is not live."""
    monkeypatch.setattr(chunk_listing, "CHUNKS_PER_LOOK", 3)
    await sql(database, CONTAINER)
    for number, uri in enumerate(("file:///a", "file:///b")):
        await sql(database, DOCUMENT, id=document_id("notes", uri), uri=uri)
        await sql(database, CHUNKS, id=document_id("notes", uri), first=10 * number)
    return database


async def listed(
    db: Database, selection: ChunkSelection, *, limit: int = 100, seconds: float = 60.0
) -> tuple[list[int], int]:
    """Ords from page to page, and how many pages there were."""
    chunk_nos: list[int] = []
    after, pages = -1, 0
    while True:
        async with db.reading() as conn:
            found = await chunk_listing.find(
                conn, "notes", selection, after=after, limit=limit, seconds=seconds
            )
        pages += 1
        chunk_nos += [row.chunk_no for row in found.rows]
        assert len(found.rows) <= limit
        if found.more_after is None:
            assert found.in_time
            return chunk_nos, pages
        assert found.more_after > after
        after = found.more_after


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 100])
@pytest.mark.parametrize("seconds", [60.0, -1.0])
async def test_every_live_chunk_is_listed_once_however_short_the_pages_and_the_time(
    db: Database, limit: int, seconds: float
) -> None:
    chunk_nos, pages = await listed(db, ChunkSelection(), limit=limit, seconds=seconds)
    assert chunk_nos == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
    assert pages >= 10 / limit
    chunk_nos, _ = await listed(db, ChunkSelection(contains="lamp 3"), limit=limit, seconds=seconds)
    assert chunk_nos == [3, 13]


async def test_when_the_time_is_over_the_page_says_where_to_go_on(db: Database) -> None:
    async with db.reading() as conn:
        found = await chunk_listing.find(
            conn, "notes", ChunkSelection(contains="nothing"), after=-1, limit=10, seconds=-1.0
        )
    assert (found.rows, found.in_time, found.more_after) == ([], False, 2)


async def test_only_the_part_of_a_document_is_read(db: Database) -> None:
    b = document_id("notes", "file:///b")
    chunk_nos, pages = await listed(db, ChunkSelection(doc_id=b), seconds=-1.0)
    assert chunk_nos == [10, 11, 12, 13, 14]
    assert pages <= 3
    assert await listed(db, ChunkSelection(doc_id=document_id("notes", "file:///c"))) == ([], 1)
