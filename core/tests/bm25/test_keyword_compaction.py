"""Compaction: fewer rows, the same answers, nothing forgotten too early; and what doctor sees."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from uuid import uuid4

import pytest
from psycopg.types.json import Jsonb

from latent_core.bm25 import postings
from latent_core.bm25.analyser import analyse, term_vector
from latent_core.bm25.bm25 import READ, PostgresKeywordIndex
from latent_core.bm25.compaction import (
    MERGE,
    RANGE_END,
    UNMERGED_END,
    CompactionReport,
    CompactionRules,
    compact,
    needed,
)
from latent_core.bm25.differences import DifferenceKind, KeywordDifference, differences
from latent_core.bm25.packing import ChunkTerms
from latent_core.db.connection import Database
from latent_core.domain.errors import TimedOut

CONTAINER = "tested"
PURGING = CompactionRules(dead_chunks=1, dead_share=10_000)
LAZY = CompactionRules(dead_chunks=10**9)
WORDS = ["ash", "birch", "cedar", "elm", "fir", "hazel", "ivy", "juniper", "larch"]


async def go_on() -> None:
    """The checkpoint of a run that nobody cancels."""


def chunk(chunk_no: int, text: str) -> ChunkTerms:
    analysed = analyse(text, "simple")
    return ChunkTerms(chunk_no, analysed.length, analysed.tfs)


async def publish(database: Database, *chunks: ChunkTerms) -> None:
    async with database.transaction() as conn:
        await postings.write(conn, CONTAINER, chunks)


async def mark_dead(database: Database, *chunks: ChunkTerms) -> None:
    async with database.transaction() as conn:
        await postings.mark_dead(conn, CONTAINER, [(c.chunk_no, c.length) for c in chunks])


async def rows(database: Database, statement: str) -> list[tuple[object, ...]]:
    async with database.transaction() as conn:
        found = await (await conn.execute(statement)).fetchall()
    return [tuple(row.values()) for row in found]


async def sizes(database: Database, term: str) -> list[int]:
    async with database.transaction() as conn:
        statement = "SELECT octet_length(tfs) AS n FROM postings WHERE term = %s ORDER BY n"
        found = await (await conn.execute(statement, (term,))).fetchall()
    return [row["n"] for row in found]


async def found(database: Database, *terms: str) -> list[int]:
    index = PostgresKeywordIndex(database)
    hits = await index.search(CONTAINER, terms, 1000, timeout_seconds=10)
    return sorted(hits.chunk_nos.tolist())


async def test_the_rows_of_a_term_become_one(database: Database) -> None:
    for n in range(9):
        await publish(database, chunk(n, f"common {WORDS[n]}"))
    before = await found(database, "common", "ivy")
    report = await compact(database, CONTAINER, go_on)
    assert report == CompactionReport(rows_before=18, rows_after=10, transactions=2)
    assert await sizes(database, "common") == [9]
    assert await sizes(database, "ivy") == [1]
    assert await found(database, "common", "ivy") == before


async def test_a_long_row_is_left_alone_until_the_short_ones_are_worth_it(
    database: Database,
) -> None:
    await publish(database, *[chunk(n, "common") for n in range(40)])
    await compact(database, CONTAINER, go_on)
    for n in range(40, 46):
        await publish(database, chunk(n, "common"))
    await compact(database, CONTAINER, go_on)
    assert await sizes(database, "common") == [6, 40]
    for n in range(46, 56):
        await publish(database, chunk(n, "common"))
    await compact(database, CONTAINER, go_on)
    assert await sizes(database, "common") == [56]


async def test_no_row_grows_beyond_its_bound(database: Database) -> None:
    for start in (0, 30_000, 60_000):
        await publish(database, *[ChunkTerms(start + n, 1, {"word": 1}) for n in range(30_000)])
    await compact(database, CONTAINER, go_on)
    assert await sizes(database, "word") == [30_000, 60_000]


async def test_a_range_ends_within_a_term_and_goes_on_there(database: Database) -> None:
    for n in range(10):
        await publish(database, chunk(n, "a b"))
    report = await compact(database, CONTAINER, go_on, CompactionRules(range_rows=4))
    assert report.transactions == 6
    assert await sizes(database, "a") == [2, 8]
    assert await found(database, "a") == await found(database, "b") == list(range(10))


async def test_dead_chunks_are_dropped_and_then_forgotten(database: Database) -> None:
    chunks = [chunk(n, f"common own{n}") for n in range(6)]
    for one in chunks:
        await publish(database, one)
    await mark_dead(database, chunks[1], chunks[4])
    await mark_dead(database, chunks[0])
    report = await compact(database, CONTAINER, go_on, PURGING)
    assert report.dropped_chunks == 3
    assert await sizes(database, "common") == [3]
    assert await sizes(database, "own4") == []
    assert await rows(database, "SELECT * FROM dead_chunk_nos") == []
    assert await found(database, "common", "own4") == [2, 3, 5]


async def test_few_dead_chunks_stay_and_are_packed_into_one_row(database: Database) -> None:
    chunks = [chunk(n, "common") for n in range(6)]
    await publish(database, *chunks)
    for one in chunks[:3]:
        await mark_dead(database, one)
    report = await compact(database, CONTAINER, go_on, LAZY)
    assert report.dropped_chunks == 0
    assert await rows(database, "SELECT octet_length(chunk_nos) FROM dead_chunk_nos") == [(12,)]
    assert await found(database, "common") == [3, 4, 5]
    assert await rows(database, "SELECT unmerged_writes, dead_chunks FROM keyword_stats") == [
        (0, 3)
    ]


async def test_chunks_marked_dead_during_a_run_are_kept_for_the_next(database: Database) -> None:
    chunks = [chunk(n, f"a{n} common z{n}") for n in range(6)]
    await publish(database, *chunks)
    await mark_dead(database, chunks[0])
    calls = 0

    async def meanwhile() -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            await mark_dead(database, chunks[1])
            await publish(database, chunk(6, "a6 common z6"))

    report = await compact(
        database, CONTAINER, meanwhile, CompactionRules(4, dead_chunks=1, dead_share=100)
    )
    assert report.dropped_chunks == 1
    assert await found(database, "common", "a1", "z1") == [2, 3, 4, 5, 6]
    assert await rows(database, "SELECT unmerged_writes, dead_chunks FROM keyword_stats") == [
        (2, 1)
    ]
    assert await found(database, "z0", "z1", "z2") == [2]


async def test_a_run_that_is_ended_early_leaves_a_correct_index_for_the_next(
    database: Database,
) -> None:
    chunks = [chunk(n, f"a{n} common z{n}") for n in range(8)]
    for one in chunks:
        await publish(database, one)
    await mark_dead(database, *chunks[:4])

    class LeaseLostError(Exception):
        pass

    calls = 0

    async def lost() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise LeaseLostError

    rules = CompactionRules(range_rows=5, dead_chunks=1)
    with pytest.raises(LeaseLostError):
        await compact(database, CONTAINER, lost, rules)
    assert await found(database, "common", "z1") == [4, 5, 6, 7]
    assert (await compact(database, CONTAINER, go_on, rules)).dropped_chunks == 4
    assert await found(database, "common", "a1", "z1") == [4, 5, 6, 7]


async def test_two_runs_never_work_on_one_container(database: Database) -> None:
    await publish(database, chunk(0, "word"))
    second: list[CompactionReport] = []

    async def meanwhile() -> None:
        second.append(await compact(database, CONTAINER, go_on))

    first = await compact(database, CONTAINER, meanwhile)
    assert not first.skipped
    assert all(report.skipped for report in second)
    assert not (await compact(database, CONTAINER, go_on)).skipped


async def test_an_unknown_container_has_nothing_to_compact(database: Database) -> None:
    assert await compact(database, "nobody", go_on) == CompactionReport()


async def test_a_compaction_is_due_after_many_writes_or_many_deaths(database: Database) -> None:
    rules = CompactionRules(unmerged_writes=3, dead_chunks=4, dead_share=2)
    due: list[bool] = []

    async def look() -> None:
        async with database.transaction() as conn:
            due.append(await needed(conn, CONTAINER, rules))

    await look()
    chunks = [chunk(n, "word") for n in range(8)]
    await publish(database, *chunks)
    await look()
    await mark_dead(database, *chunks[:4])
    await look()
    await compact(database, CONTAINER, go_on, rules)
    await look()
    for n in range(8, 11):
        await publish(database, chunk(n, "word"))
    await look()
    assert due == [False, False, True, False, True]


async def test_a_container_is_dropped_in_batches(database: Database) -> None:
    await publish(database, chunk(0, "a b c"))
    await publish(database, one := chunk(1, "c d"))
    await mark_dead(database, one)
    gone: list[int] = []
    for _ in range(3):
        async with database.transaction() as conn:
            gone.append(await postings.drop_batch(conn, CONTAINER, 3))
    assert gone == [3, 2, 0]
    for table in ("postings", "unmerged_postings", "dead_chunk_nos", "keyword_stats"):
        assert await rows(database, f"SELECT count(*) FROM {table}") == [(0,)]


async def test_a_drop_waits_for_a_running_compaction(database: Database) -> None:
    await publish(database, chunk(0, "word"))
    outcomes: list[str] = []

    async def drop() -> None:
        async with database.transaction() as conn:
            await conn.execute("SET LOCAL lock_timeout = '50ms'")
            await postings.drop(conn, CONTAINER)

    async def meanwhile() -> None:
        with pytest.raises(TimedOut):
            await drop()
        outcomes.append("waited")

    await compact(database, CONTAINER, meanwhile)
    await drop()
    assert set(outcomes) == {"waited"}
    assert await found(database, "word") == []


async def test_searches_and_compactions_read_by_the_index_and_not_the_whole_table(
    database: Database,
) -> None:
    async with database.transaction() as conn:
        for container in range(40):
            entries = [ChunkTerms(n, 1, {f"term{n}": 1, f"other{n}": 1}) for n in range(200)]
            await postings.write(conn, f"container-{container}", entries)
    await compact(database, "container-1", go_on)
    scope = {"container_id": "container-7", "term": "a", "block": -1, "ceiling": 10**6}
    end = {"end_term": "term1", "end_block": 10**6, "half": 1000, "ratio": 3}
    async with database.transaction() as conn:
        await conn.execute("INSERT INTO postings SELECT * FROM unmerged_postings")
        await conn.execute("ANALYZE postings, unmerged_postings, dead_chunk_nos, keyword_stats")
        for statement, parameters in (
            (READ, {"container_ids": ["container-7"], "terms": [f"term{n}" for n in range(12)]}),
            (UNMERGED_END, scope | {"rows": 20, "postings": 1000}),
            (RANGE_END, scope | {"rows": 20, "postings": 1000}),
            (MERGE, scope | end),
        ):
            cursor = await conn.execute(f"EXPLAIN {statement}", parameters)
            plan = "\n".join(str(line["QUERY PLAN"]) for line in await cursor.fetchall())
            assert "postings_pkey" in plan
            assert not re.search(r"Seq Scan on (loose_)?postings", plan), plan


DOCUMENT = """
INSERT INTO documents (id, container_id, uri, live_generation) VALUES (%(id)s, %(container_id)s, %(uri)s, 1)
"""
CHUNK = """
INSERT INTO chunks (doc_id, generation, position, id, container_id, chunk_no, source_type, block_type, text, embed_text,
                    offset_start, offset_end, content_hash, token_count, windows, tsv, length, provenance)
VALUES (%(doc)s, 1, %(chunk_no)s, %(id)s, %(container_id)s, %(chunk_no)s, 'text', 'paragraph', %(text)s, '', 0, 0, '', 0, 1,
        %(tsv)s, %(length)s, '{}')
"""
FOUNDED = "INSERT INTO containers (id, manifest, etag) VALUES (%(id)s, %(manifest)s, '')"


async def ingest(database: Database, texts: Sequence[str]) -> list[ChunkTerms]:
    """A document of one chunk a text, as a publication writes it."""
    doc = uuid4()
    analysed = [analyse(text, "simple") for text in texts]
    chunks = [ChunkTerms(n, a.length, a.tfs) for n, a in enumerate(analysed)]
    async with database.transaction() as conn:
        await conn.execute(FOUNDED, {"id": CONTAINER, "manifest": Jsonb({})})
        await conn.execute(DOCUMENT, {"id": doc, "container_id": CONTAINER, "uri": str(doc)})
        for n, (text, found) in enumerate(zip(texts, analysed, strict=True)):
            values = {
                "doc": doc,
                "chunk_no": n,
                "id": uuid4(),
                "text": text,
                "container_id": CONTAINER,
            }
            vector = {"tsv": term_vector(found), "length": found.length}
            await conn.execute(CHUNK, values | vector)
        await postings.write(conn, CONTAINER, chunks)
    return chunks


TEXTS = ["it's a quick fox", "quick quick fox_trot", "", "lazy dog 'quoted' back\\slash"]


async def differences_of(database: Database) -> list[tuple[DifferenceKind, str]]:
    return [(d.kind, d.object) for d in await differences(database, CONTAINER, limit=20)]


async def change(database: Database, statement: str) -> None:
    async with database.transaction() as conn:
        await conn.execute(statement)


async def test_an_index_that_agrees_with_its_chunks_has_no_differences(database: Database) -> None:
    chunks = await ingest(database, [*TEXTS, "word " * 400])
    assert await differences_of(database) == []
    async with database.transaction() as conn:
        await conn.execute("UPDATE documents SET live_generation = NULL, deleted_at = now()")
        await postings.mark_dead(conn, CONTAINER, [(c.chunk_no, c.length) for c in chunks])
    assert await differences_of(database) == []
    await compact(database, CONTAINER, go_on, PURGING)
    assert await differences_of(database) == []
    assert await differences(database, "nobody", limit=5) == []


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        ("DELETE FROM unmerged_postings WHERE term = 'fox_trot'", [(DifferenceKind.MISSING, "1")]),
        ("UPDATE unmerged_postings SET tfs = '\\x01' WHERE term = 'dog'", []),
        ("UPDATE unmerged_postings SET tfs = '\\x07' WHERE term = 'dog'", [(DifferenceKind.WRONG, "3")]),
        ("UPDATE unmerged_postings SET lens = '\\x0100' WHERE term = 'dog'", [(DifferenceKind.WRONG, "3")]),
        ("UPDATE unmerged_postings SET chunk_nos = '\\x02000000' WHERE term = 'dog'",
         [(DifferenceKind.WRONG, "2"), (DifferenceKind.MISSING, "3")]),
        ("UPDATE unmerged_postings SET chunk_nos = '\\x63000000' WHERE term = 'dog'",
         [(DifferenceKind.MISSING, "3"), (DifferenceKind.ORPHAN, "99")]),
        ("INSERT INTO unmerged_postings SELECT container_id, term, block + 1, chunk_nos, tfs, lens FROM unmerged_postings WHERE term = 'dog'",
         [(DifferenceKind.WRONG, "3")]),
        ("UPDATE keyword_stats SET live_chunks = 5, live_length = 1, dead_chunks = 2",
         [(DifferenceKind.STATS, "keyword_stats")] * 3),
        ("INSERT INTO dead_chunk_nos VALUES ('tested', 1, '\\x00000000')",
         [(DifferenceKind.WRONG, "0"), (DifferenceKind.STATS, "keyword_stats")]),
    ],
)  # fmt: skip
async def test_every_damage_is_reported(
    database: Database, damage: str, expected: list[tuple[DifferenceKind, str]], settled: bool
) -> None:
    await ingest(database, TEXTS)
    if settled:
        await compact(database, CONTAINER, go_on)
        damage = damage.replace("unmerged_postings", "postings")
    await change(database, damage)
    assert await differences_of(database) == expected


async def test_differences_are_bounded_and_name_terms(database: Database) -> None:
    await ingest(database, [f"alpha beta gamma delta epsilon {word}" for word in WORDS])
    await change(database, "DELETE FROM unmerged_postings")
    few = await differences(database, CONTAINER, limit=4)
    assert len(few) == 4
    assert isinstance(few[0], KeywordDifference)
    assert few[0].message.endswith("by 'alpha', 'ash', 'beta', 'delta', 'epsilon' and 1 more")


async def test_an_index_that_is_being_written_has_no_differences(database: Database) -> None:
    chunks = await ingest(database, [f"common own{n}" for n in range(300)])
    done = asyncio.Event()

    async def write() -> None:
        for one in chunks[::3]:
            async with database.transaction() as conn:
                await conn.execute("DELETE FROM chunks WHERE chunk_no = %s", (one.chunk_no,))
                await postings.mark_dead(conn, CONTAINER, [(one.chunk_no, one.length)])
        done.set()

    async def keep_compacting() -> None:
        while not done.is_set():
            await compact(database, CONTAINER, go_on, PURGING)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(write())
        group.create_task(keep_compacting())
        while not done.is_set():
            assert await differences_of(database) == []
    assert await differences_of(database) == []
