"""Lists of documents: each order in pages, the failed ones first, and what the statements read of 20,000 documents."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from latent_core.db.connection import Database
from latent_core.db.documents import document_listing
from latent_core.db.documents.document_listing import STATEMENTS, DocumentFilter
from latent_core.domain.document import DocumentState, DocumentView
from latent_core.domain.document_order import DocumentOrder, ListPosition, position
from latent_core.domain.errors import Invalid

CONTAINER = "INSERT INTO containers (id, manifest, etag) VALUES ('notes', '{}', 'e')"
INSERT = """
INSERT INTO documents (id, container_id, uri, source_type, bytes, written_at, live_generation, deleted_at, floor_request)
SELECT gen_random_uuid(), 'notes', format('file:///shelf/%%s.md', lpad(((n * 7919) %% %(count)s)::text, 5, '0')),
       (ARRAY['markdown', 'pdf', 'code', NULL])[1 + n %% 4], CASE WHEN n %% 9 > 0 THEN (n * 31) %% 1000 END,
       timestamptz '2026-01-01' + (n %% 50) * interval '1 hour', CASE WHEN n %% 10 > 0 THEN 1 END,
       CASE WHEN n %% 13 = 0 THEN now() END, 5
FROM generate_series(0, %(count)s - 1) AS n
"""
# Of the documents that are not live, every third has a queued job; of the live ones, some failed with a newer request.
JOBS = """
INSERT INTO jobs (kind, container_id, doc_id, principal, state, payload, cause)
SELECT 'ingest', 'notes', id, 'local:you',
       CASE WHEN live_generation IS NULL AND written_at < timestamptz '2026-01-01 16:00Z' THEN 'queued' ELSE 'failed' END,
       jsonb_build_object('request', CASE WHEN bytes %% 2 = 0 THEN 7 ELSE 3 END),
       '{"code": "INGEST_FAIL", "message": "torn"}'
FROM documents WHERE live_generation IS NULL OR bytes %% 17 < 2
"""
HOUR = timedelta(hours=1)
SMALLEST = UUID(int=0)


@pytest.fixture
def count() -> int:
    return 400


async def store(db: Database, count: int) -> None:
    async with db.transaction() as conn:
        await conn.execute(CONTAINER)
        await conn.execute(INSERT, {"count": count})
        await conn.execute(JOBS.replace("%%", "%"))
        await conn.execute("ANALYZE documents")
        await conn.execute("ANALYZE jobs")


async def paged(
    db: Database, order: DocumentOrder, chosen: DocumentFilter = DocumentFilter(), limit: int = 37
) -> list[DocumentView]:
    """The whole list, by the cursors of its pages."""
    found: list[DocumentView] = []
    cursor = None
    while True:
        async with db.reading() as conn:
            page = await document_listing.listed(
                conn, "notes", chosen, order, after=position(cursor, order), limit=limit
            )
        found += page
        if len(page) < limit:
            return found
        cursor = ListPosition.of(page[-1], order).cursor()


def key(document: DocumentView, order: DocumentOrder) -> tuple[Any, ...]:
    """What ascends in that order."""
    written = document.written_at
    assert written is not None
    age = -(written - datetime(2026, 1, 1, tzinfo=UTC)) / HOUR
    down = -document.doc_id.int
    size = -1 if document.bytes is None else document.bytes
    return {
        DocumentOrder.ID: (document.doc_id,),
        DocumentOrder.NEWEST: (age, down),
        DocumentOrder.OLDEST: (-age, -down),
        DocumentOrder.PATH: (document.source_uri,),
        DocumentOrder.PATH_DOWN: ([-ord(char) for char in document.source_uri],),
        DocumentOrder.LARGEST: (-size, down),
        DocumentOrder.SMALLEST: (size, -down),
        DocumentOrder.TYPE: (document.source_type or "", age, down),
        DocumentOrder.FAILED: (document.failure is None, age, down),
    }[order]


async def test_each_order_lists_every_document_once_over_its_pages(
    database: Database, count: int
) -> None:
    await store(database, count)
    whole = await paged(database, DocumentOrder.ID)
    assert len(whole) == count - len(range(0, count, 13))
    for order in DocumentOrder:
        found = await paged(database, order)
        assert [one.doc_id for one in found] == [
            one.doc_id for one in sorted(whole, key=lambda one: key(one, order))
        ], order
    kinds = {(one.state, one.failure is None) for one in whole}
    assert len(kinds) == 4, "live and failed, live, pending, failed"


async def test_filters_hold_in_every_order(database: Database, count: int) -> None:
    await store(database, count)
    whole = await paged(database, DocumentOrder.ID)
    since = datetime(2026, 1, 1, 12, tzinfo=UTC)
    for chosen, holds in (
        (DocumentFilter(state=DocumentState.FAILED), lambda one: one.state == "failed"),
        (DocumentFilter(source_types=["pdf"]), lambda one: one.source_type == "pdf"),
        (DocumentFilter(path="shelf/000*"), lambda one: "/shelf/000" in one.source_uri),
        (
            DocumentFilter(since=since, until=since + 3 * HOUR),
            lambda one: since <= one.written_at < since + 3 * HOUR,
        ),
    ):
        expected = {one.doc_id for one in whole if holds(one)}
        assert 0 < len(expected) < len(whole)
        for order in DocumentOrder:
            assert {one.doc_id for one in await paged(database, order, chosen)} == expected


async def test_a_list_goes_on_after_a_document_that_was_deleted_meanwhile(
    database: Database, count: int
) -> None:
    await store(database, count)
    for order in DocumentOrder:
        async with database.transaction() as conn:
            first = await document_listing.listed(conn, "notes", DocumentFilter(), order, limit=10)
            rest = await document_listing.listed(
                conn,
                "notes",
                DocumentFilter(),
                order,
                after=ListPosition.of(first[-1], order),
                limit=10,
            )
            await conn.execute(
                "UPDATE documents SET deleted_at = now() WHERE id = %s", [first[-1].doc_id]
            )
            again = await document_listing.listed(
                conn,
                "notes",
                DocumentFilter(),
                order,
                after=ListPosition.of(first[-1], order),
                limit=10,
            )
        assert [one.doc_id for one in again] == [one.doc_id for one in rest], order


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "!",
        "bmV3ZXN0",
        "aWR8eHx8fHw",
        "aWR8MDAwMDAwMDAtMDAwMC0wMDAwLTAwMDAtMDAwMDAwMDAwMDAwfHw5OTk5OTk5OTk5OTk5OTk5OTk5OTk5fHww",
    ],
)
def test_a_cursor_that_is_not_of_this_list_is_refused(cursor: str) -> None:
    with pytest.raises(Invalid, match="invalid cursor"):
        position(cursor, DocumentOrder.ID)
    foreign = ListPosition(DocumentOrder.NEWEST, SMALLEST, datetime.now(UTC)).cursor()
    with pytest.raises(Invalid, match="another order"):
        position(foreign, DocumentOrder.LARGEST)


async def test_no_cursor_is_longer_than_what_the_routes_take(database: Database) -> None:
    await store(database, 400)
    whole = await paged(database, DocumentOrder.ID)
    longest = whole[0].model_copy(update={"source_type": "conversation", "bytes": 2**62})
    for order in DocumentOrder:
        assert len(ListPosition.of(longest, order).cursor()) <= 128


async def test_a_page_of_20_000_documents_counts_pages_and_jobs_only_of_what_it_shows(
    database: Database,
) -> None:
    """The parts of a row that look into other tables are read after the limit, whatever the order."""
    await store(database, 20_000)
    for order in DocumentOrder:
        plan = await explained(database, order)
        loops = {
            int(n) for n in re.findall(r"'Relation Name': 'pages'.*?'Actual Loops': (\d+)", plan)
        }
        assert max(loops) <= 50, order
        if order in (DocumentOrder.PATH, DocumentOrder.PATH_DOWN):
            assert "documents_uri" in plan


async def explained(db: Database, order: DocumentOrder) -> str:
    values = {
        **document_listing._values("notes", DocumentFilter(), 50),
        "after": None,
        "written_at": None,
        "bytes": None,
        "source_type": None,
        "failed": 0,
    }
    async with db.transaction() as conn:
        statement = f"EXPLAIN (ANALYZE, FORMAT JSON) {STATEMENTS[order]}"
        rows: Sequence[Any] = await (await conn.execute(statement, values)).fetchall()
    plan = rows[0]["QUERY PLAN"]
    print(order, plan[0]["Execution Time"])
    return str(plan)
