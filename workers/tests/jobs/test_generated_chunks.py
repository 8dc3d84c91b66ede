"""Generated chunks are appended, replaced and dropped; the chunks of the source never change by it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import numpy as np
import pytest

from latent_core.db import containers
from latent_core.db.connection import Connection, Database
from latent_core.db.documents import (
    chunk_listing,
    chunk_texts,
    documents,
    outline,
    page_extractions,
    summaries,
)
from latent_core.db.documents.chunk_listing import ChunkSelection
from latent_core.db.documents.page_extractions import ExtractionMaker, NewPageExtraction
from latent_core.db.documents.summaries import NewSummary
from latent_core.db.transfer import archives, export_rows
from latent_core.doctor.repair import Repairer
from latent_core.domain.findings import Remedy
from latent_core.domain.generated import GeneratedGroup, GeneratedKind
from latent_core.domain.ids import point_id
from latent_core.domain.job import JobKind, NewJob
from latent_core.domain.manifest.model import Manifest
from latent_core.ingest import followups, generated as core_generated
from latent_core.ingest.delete import delete_documents
from latent_core.ingest.followups import PublishedDocument
from latent_core.ingest.generated import DropPayload, PurgeTerms, drop, request_drop
from latent_core.queue import clock
from latent_core.queue.context import JobContext
from latent_core.queue.lease import HeldClaim
from latent_core.search.readable import Readable
from latent_core.transfer.requests import ImportPolicy
from latent_core.vectors.port import Points
from latent_core.wire.search import Hit, SearchRequest
from latent_workers.extract.chunks import append_chunks
from latent_workers.ingest import generated as generated_module
from latent_workers.ingest.generated import GeneratedText
from tests.support.harness.generated import append_as, by, end, generate, job_of
from tests.support.harness.transfers import delete, export, take_in
from tests.support.harness.worker_harness import (
    CONTAINER,
    DIMS,
    LEASE_SECONDS,
    WorkerHarness,
    open_harness,
)
from tests.support.queue import sql

TERMS: Final = PurgeTerms("local:you", LEASE_SECONDS)
ORIGINALS: Final = """
SELECT c.*, c.xmin::text AS written_by_transaction FROM chunks c WHERE c.generated IS NULL ORDER BY c.chunk_no
"""
GENERATED: Final = """
SELECT c.text, c.generated, c.page, c.position, c.provenance, c.chunk_no, c.meta FROM chunks c
WHERE c.generated IS NOT NULL ORDER BY c.position
"""
GUIDE: Final = b"PKCE protects the exchange of codes.\n\nTokens expire after an hour."


@pytest.fixture
async def harness(database: Database, tmp_path: Path) -> AsyncIterator[WorkerHarness]:
    async with open_harness(database, tmp_path) as opened:
        yield opened


async def generated(harness: WorkerHarness) -> list[dict[str, Any]]:
    return await sql(harness.stack.db, GENERATED)


async def found(harness: WorkerHarness, word: str) -> list[int]:
    """chunk_nos by keyword, among the live ones."""
    hits = await harness.stack.keywords.search(CONTAINER, [word], 20, timeout_seconds=10)
    return hits.chunk_nos.tolist()


LATER: Final = "UPDATE jobs SET finished_at = finished_at - interval '1 hour'"
OPEN: Final = (
    "SELECT kind, payload FROM jobs WHERE state IN ('queued', 'running') AND kind <> 'garbage'"
)


async def clean_jobs(harness: WorkerHarness) -> None:
    """All that is to be done, by and by."""
    await harness.settle()
    await sql(harness.stack.db, LATER)
    await harness.settle()
    assert await sql(harness.stack.db, OPEN) == []


async def clean(harness: WorkerHarness) -> None:
    """No job is open, and no store has more or less than the rows say."""
    await clean_jobs(harness)
    report = await harness.examine()
    assert report.clean, report
    counts = report.containers[CONTAINER].counts
    assert counts["points"] == counts["points_expected"]
    assert counts["failed_jobs"] == 0


async def test_generated_chunks_are_found_and_marked_and_the_source_is_untouched(
    harness: WorkerHarness,
) -> None:
    doc = await harness.add("guide.txt", GUIDE)
    await harness.work()
    before = await sql(harness.stack.db, ORIGINALS)
    texts = [
        GeneratedText("A diagram of the handshake.", 2),
        GeneratedText("The verifier is hashed.", 1, keywords="sha256 challenge"),
    ]
    assert await generate(harness, doc, texts)
    purges = "SELECT 1 FROM jobs WHERE kind = 'purge' AND state = 'queued'"
    assert await sql(harness.stack.db, purges) == [], "nothing was replaced, and nothing went wrong"

    rows = await generated(harness)
    assert [(row["text"], row["page"]) for row in rows] == [
        ("The verifier is hashed.", 1),
        ("A diagram of the handshake.", 2),
    ]
    assert rows[0]["position"] == 10_001_000
    assert rows[0]["provenance"]["generated"] == {
        "kind": "page",
        "model": "lab/reader",
        "prompt_version": "1",
        "created_at": "2026-11-24T00:00:00Z",
    }
    assert await found(harness, "handshak") == [rows[1]["chunk_no"]]
    assert await found(harness, "sha256") == [rows[0]["chunk_no"]]
    assert await sql(harness.stack.db, ORIGINALS) == before
    await clean(harness)


async def test_equal_texts_keep_their_rows_and_are_not_embedded_again(
    harness: WorkerHarness,
) -> None:
    doc = await harness.add("guide.txt", GUIDE)
    await harness.work()
    first = [GeneratedText("The verifier is hashed.", 1), GeneratedText("A diagram.", 2)]
    await generate(harness, doc, first)
    before, embedded = await generated(harness), harness.embedder.texts
    second = [first[0], GeneratedText("A table of expiry times.", 2)]
    assert await generate(harness, doc, second, by=by(GeneratedKind.PAGE, prompt="2"))

    after = await generated(harness)
    assert after[0]["chunk_no"] == before[0]["chunk_no"]
    assert after[1]["chunk_no"] > before[1]["chunk_no"]
    assert [row["provenance"]["generated"]["prompt_version"] for row in after] == ["2", "2"]
    assert harness.embedder.texts == embedded + 1
    assert await found(harness, "diagram") == []
    await clean(harness)
    assert await harness.stack.vectors.count((await space(harness)).collection()) == 3


async def space(harness: WorkerHarness) -> containers.Space:
    async with harness.stack.db.reading() as conn:
        container = await containers.get(conn, CONTAINER)
    assert container is not None
    return container.space


async def test_only_the_named_pages_and_the_kind_are_replaced(harness: WorkerHarness) -> None:
    doc = await harness.add("guide.txt", GUIDE)
    await harness.work()
    await generate(harness, doc, [GeneratedText(f"Page {n} of it.", n) for n in (1, 2, 3)])
    await generate(
        harness, doc, [GeneratedText("All of it.")], kind=GeneratedKind.SUMMARY, pages=None
    )
    await generate(harness, doc, [GeneratedText("Second thoughts.", 2)], pages=[2, 3])
    assert [row["text"] for row in await generated(harness)] == [
        "Page 1 of it.",
        "Second thoughts.",
        "All of it.",
    ]
    await clean(harness)


async def test_nothing_is_appended_to_a_generation_that_is_not_live(harness: WorkerHarness) -> None:
    doc = await harness.add("guide.txt", GUIDE)
    await harness.work()
    written = []

    async def also(_conn: Connection) -> None:
        written.append(True)

    texts = [GeneratedText("The verifier is hashed.", 1)]
    assert not await generate(harness, doc, texts, generation=7, also=also)
    async with harness.stack.db.transaction() as conn:
        await delete_documents(
            conn, CONTAINER, [doc], principal="local:you", lease_seconds=LEASE_SECONDS
        )
    assert not await generate(harness, doc, texts, also=also)
    assert not written
    await clean(harness)


def rows_of(doc: UUID) -> Callable[[Connection], Awaitable[None]]:
    """Writes a summary of the document, a page that was extracted, and one that failed."""

    async def save(conn: Connection) -> None:
        common = {"model": "lab/reader", "prompt_version": "1", "doc_id": doc, "generation": 1}
        assert await summaries.save(
            conn,
            NewSummary(
                state="done",
                text="All of it.",
                front_matter={"key_topics": ["pkce"]},
                input_hash="i",
                input_tokens=10,
                cost=0.5,
                **common,
            ),
        )
        for page, state in ((1, "done"), (2, "failed")):
            await page_extractions.save(
                conn,
                NewPageExtraction(
                    page=page,
                    state=state,
                    version="1",
                    page_hash="p",
                    extraction={"summary": "s"} if state == "done" else None,
                    cause=None if state == "done" else {"code": "POLICY", "message": "no JSON"},
                    raw=None if state == "done" else "Sorry",
                    output_tokens=3,
                    **common,
                ),
            )

    return save


async def test_rows_of_summaries_and_pages_are_saved_counted_and_dropped_with_their_chunks(
    harness: WorkerHarness,
) -> None:
    doc, other = await harness.add("guide.txt", GUIDE), await harness.add("b.txt", b"Other.")
    await harness.work()
    await sql(
        harness.stack.db,
        "INSERT INTO pages (doc_id, generation, page) VALUES (%(id)s, 1, 2)",
        id=doc,
    )
    before = await sql(harness.stack.db, ORIGINALS)
    maker = ExtractionMaker("lab/reader", "1", "1")
    save = rows_of(doc)
    await generate(harness, doc, [GeneratedText("The verifier is hashed.", 1)], also=save)
    async with harness.stack.db.transaction() as conn:
        summary = (await summaries.of_documents(conn, [doc, other]))[doc]
        pages = await page_extractions.of_document(conn, doc)
        of_summaries = await summaries.counts(conn, CONTAINER)
        of_pages = await page_extractions.counts_of_container(conn, CONTAINER, maker)
        newer = await page_extractions.counts(
            conn, CONTAINER, ExtractionMaker("lab/reader", "2", "1"), [doc]
        )
    assert (summary.front_matter, summary.text) == ({"key_topics": ["pkce"]}, "All of it.")
    assert [(n, one.state, one.raw) for n, one in pages.items()] == [
        (1, "done", None),
        (2, "failed", "Sorry"),
    ]
    assert (of_summaries.total, of_summaries.done, of_summaries.unprocessed) == (2, 1, 1)
    assert (of_pages.total, of_pages.unprocessed) == (3, 1)  # one of the other document
    assert (of_pages.done, of_pages.failed, of_pages.stale) == (1, 1, 0)
    assert of_pages.output_tokens == 6
    assert newer[doc].stale == 2

    async with harness.stack.db.transaction() as conn:
        dropped = await drop(conn, CONTAINER, GeneratedGroup.EXTRACTION, None, TERMS)
        assert (dropped.documents, dropped.chunks, dropped.rows, dropped.last) == (1, 1, 2, None)
        assert (
            await drop(conn, CONTAINER, GeneratedGroup.SUMMARIES, [other], TERMS)
        ).documents == 0
        assert (await drop(conn, CONTAINER, GeneratedGroup.SUMMARIES, [doc], TERMS)).rows == 1
        assert await page_extractions.of_document(conn, doc) == {}
    assert await generated(harness) == []
    assert await sql(harness.stack.db, ORIGINALS) == before
    await clean(harness)


async def hits(harness: WorkerHarness, query: str, **more: Any) -> list[Hit]:
    async with harness.stack.db.reading() as conn:
        container = await containers.get(conn, CONTAINER)
    assert container is not None
    request = SearchRequest(containers=[CONTAINER], top_k=20, query=query, dedup=False, **more)
    answer = await harness.deps.search_service(20).search(request, {CONTAINER: Readable(container)})
    assert not answer.partial, answer.issues
    return answer.hits


async def test_a_hit_on_a_generated_chunk_says_who_wrote_it_and_can_be_excluded(
    harness: WorkerHarness,
) -> None:
    doc = await harness.add("guide.txt", GUIDE)
    await harness.work()
    only_originals = await hits(harness, "handshake tokens", generated=False)
    await generate(harness, doc, [GeneratedText("A diagram of the handshake tokens.", 2)])

    found = {hit.text: hit for hit in await hits(harness, "handshake tokens")}
    (mine,) = [hit for hit in found.values() if hit.generated is not None]
    assert mine.text == "A diagram of the handshake tokens."
    assert mine.generated == by(GeneratedKind.PAGE)
    assert mine.place.page == 2
    assert len(found) == 2
    for excluding in (
        {"generated": False},
        {"filters": {"generated": False}},
        {"filters": {"not": {"generated": "page"}}},
    ):
        rest = await hits(harness, "handshake tokens", **excluding)
        assert [hit.text for hit in rest] == [hit.text for hit in only_originals]
    for selecting in ({"generated": True}, {"generated": ["page", "visual"]}):
        assert [h.text for h in await hits(harness, "tokens", filters=selecting)] == [mine.text]
    assert await hits(harness, "tokens", filters={"generated": "summary"}) == []


@pytest.mark.parametrize(
    ("query", "exact"),
    [
        ("", {"must_terms": ["handshake"]}),
        ("", {"regexes": ["hand.hake"]}),
        ('"the handshake"', {}),
    ],
)
async def test_exact_terms_expressions_and_quotes_are_those_of_the_source(
    harness: WorkerHarness, query: str, exact: dict[str, Any]
) -> None:
    doc = await harness.add("guide.txt", b"They prepare the handshake for you.")
    await harness.work()
    await generate(harness, doc, [GeneratedText("A diagram of the handshake.", 1)])
    assert [hit.text for hit in await hits(harness, query, **exact)] == [
        "They prepare the handshake for you."
    ]


async def test_outlines_and_previews_show_what_the_source_says(harness: WorkerHarness) -> None:
    doc = await harness.add("guide.md", b"# Guide\n\nPKCE protects.", mime="text/markdown")
    await harness.work()
    async with harness.stack.db.reading() as conn:
        before = await outline.sections(conn, doc, 10), await chunk_texts.beginning(conn, doc, 99)
    await generate(harness, doc, [GeneratedText("A diagram.", 1, headings=("Figures",))])
    async with harness.stack.db.reading() as conn:
        after = await outline.sections(conn, doc, 10), await chunk_texts.beginning(conn, doc, 99)
        shown = await documents.view(conn, doc)
        listed = [
            await chunk_listing.find(
                conn, CONTAINER, ChunkSelection(generated=chosen), after=-1, limit=9, seconds=60
            )
            for chosen in (True, False, None)
        ]
    assert after == before
    assert shown is not None
    assert (shown.chunks, shown.generated_chunks) == (2, 1)
    assert [[row.generated for row in one.rows] for one in listed] == [
        ["page"],
        [None],
        [None, "page"],
    ]


STORED: Final = """
SELECT d.uri, d.live_chunks, c.text, c.generated, c.page, c.position, c.tsv::text, c.provenance -> 'generated' AS by
FROM chunks c JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE c.container_id = %(id)s ORDER BY d.uri, c.position
"""
SUMMARIES: Final = """
SELECT d.uri, to_jsonb(s) - '{doc_id,generation}'::text[] AS summary
FROM summaries s JOIN documents d ON d.id = s.doc_id AND d.live_generation = s.generation
WHERE d.container_id = %(id)s ORDER BY d.uri
"""
EXTRACTIONS: Final = """
SELECT d.uri, to_jsonb(e) - '{doc_id,generation}'::text[] AS extraction
FROM page_extractions e JOIN documents d ON d.id = e.doc_id AND d.live_generation = e.generation
WHERE d.container_id = %(id)s ORDER BY d.uri, e.page
"""


async def understood(harness: WorkerHarness, container_id: str) -> list[Any]:
    found = [
        await sql(harness.stack.db, query, id=container_id)
        for query in (STORED, SUMMARIES, EXTRACTIONS)
    ]
    assert all(found)
    return found


async def contents(harness: WorkerHarness) -> str:
    """The key of an archive: with the same one, the same archive serves."""
    async with harness.stack.db.reading() as conn:
        return await archives.contents_key(conn, CONTAINER)


async def test_an_archive_has_what_models_wrote_and_an_import_pays_for_nothing_again(
    harness: WorkerHarness,
) -> None:
    first = await harness.add("a.txt", GUIDE)
    await harness.add("b.txt", GUIDE)
    await harness.work()
    await sql(
        harness.stack.db,
        "INSERT INTO pages (doc_id, generation, page) VALUES (%(id)s, 1, 2)",
        id=first,
    )
    texts = [GeneratedText("The verifier is hashed.", 1), GeneratedText("A diagram.", 2)]
    await generate(harness, first, texts, also=rows_of(first))
    await generate(harness, first, [GeneratedText("All of it.")], kind=GeneratedKind.SUMMARY)
    await harness.add(
        "c.txt", GUIDE
    )  # its chunk comes after the generated ones, and repeats the first
    await harness.settle()
    before, embedded = await understood(harness, CONTAINER), harness.embedder.texts
    data = await export(harness)

    await take_in(harness, data, "copy")
    assert await understood(harness, "copy") == before
    assert harness.embedder.texts == embedded
    await take_in(harness, data, CONTAINER, merge=True, policy=ImportPolicy.REPLACE)
    assert await understood(harness, CONTAINER) == before
    await clean(harness)

    exported = await contents(harness)
    await generate(harness, first, [GeneratedText("Another reading.", 1)], pages=[1], generation=2)
    assert await contents(harness) != exported


async def test_archives_are_whole_while_pages_are_extracted(harness: WorkerHarness) -> None:
    """A document may have more chunks when its batch is read than when it was listed."""
    doc = await harness.add("a.txt", GUIDE)
    await harness.work()
    plain = export_rows.chunks

    async def late(*given: Any, **more: Any) -> Any:
        monkeypatch.setattr(export_rows, "chunks", plain)
        await generate(harness, doc, [GeneratedText("The verifier is hashed.", 1)])
        return await plain(*given, **more)

    monkeypatch = pytest.MonkeyPatch()
    with monkeypatch.context():
        monkeypatch.setattr(export_rows, "chunks", late)
        data = await export(harness)
    await take_in(harness, data, "copy")
    counts = "SELECT live_chunks, (SELECT count(*) FROM chunks c WHERE c.doc_id = d.id) AS n FROM documents d WHERE container_id = 'copy'"
    (row,) = await sql(harness.stack.db, counts)
    assert row["live_chunks"] == row["n"]
    await clean(harness)


async def test_no_original_is_hidden_behind_a_generated_text_with_the_same_words(
    harness: WorkerHarness,
) -> None:
    """Neither in its container nor among several: the generated one was there first."""
    words = "The verifier is hashed before it is sent."
    doc = await harness.add("a.txt", GUIDE)
    await harness.work()
    await generate(harness, doc, [GeneratedText(words, 1)])
    await harness.settle()
    other = await harness.add("b.txt", words.encode())
    await harness.settle()
    assert await sql(harness.stack.db, "SELECT 1 FROM duplicates WHERE original IS NOT NULL") == []
    async with harness.stack.db.reading() as conn:
        container = await containers.get(conn, CONTAINER)
    assert container is not None
    request = SearchRequest(containers=[CONTAINER], top_k=5, query=words)
    service = harness.deps.search_service(20)
    answer = await service.search(request, {CONTAINER: Readable(container)})
    assert {hit.doc_id for hit in answer.hits} == {doc, other}
    assert all(not hit.duplicates for hit in answer.hits)


ANSWER: Final = """
INSERT INTO model_answers (container_id, key, doc_id, purpose, prompt_version, model, text, stop, input_tokens,
                           output_tokens, cost)
VALUES ('notes', %(key)s, %(id)s, 'extraction', '1', 'lab/reader', 'what it says', 'end', 1, 1, 0)
"""
KEPT: Final = """
SELECT (SELECT count(*) FROM summaries) AS summaries, (SELECT count(*) FROM page_extractions) AS extractions,
       (SELECT count(*) FROM model_answers) AS answers
"""


async def test_rows_go_with_their_generation_and_answers_with_their_document(
    harness: WorkerHarness,
) -> None:
    """An answer holds what the document says; a page that did not change needs no new one."""
    docs = [await harness.add(name, GUIDE) for name in ("a.txt", "b.txt")]
    await harness.work()
    for doc in docs:
        await generate(harness, doc, [GeneratedText("A page.", 1)], also=rows_of(doc))
        await sql(harness.stack.db, ANSWER, id=doc, key=str(doc))
    assert await sql(harness.stack.db, KEPT) == [{"summaries": 2, "extractions": 4, "answers": 2}]
    await harness.add("a.txt", GUIDE + b" Again.")
    await clean(harness)
    assert await sql(harness.stack.db, KEPT) == [{"summaries": 1, "extractions": 2, "answers": 2}]
    async with harness.stack.db.transaction() as conn:
        await delete_documents(
            conn, CONTAINER, docs[:1], principal="local:you", lease_seconds=LEASE_SECONDS
        )
    await clean(harness)
    assert await sql(harness.stack.db, KEPT) == [{"summaries": 1, "extractions": 2, "answers": 1}]
    await delete(harness, CONTAINER)
    assert await sql(harness.stack.db, KEPT) == [{"summaries": 0, "extractions": 0, "answers": 0}]


class Killed(BaseException):
    """The process is gone: nothing after it runs, and the job is still claimed."""


POINTS: Final = (
    "generated.after_intent",
    "generated.before_vectors",
    "generated.after_vectors",
    "generated.before_commit",
    "generated.after_commit",
)
AGAIN: Final = "UPDATE jobs SET state = 'queued', claim_id = NULL, run_at = now() WHERE id = %(id)s"
CANCEL: Final = "UPDATE jobs SET state = 'cancelled', finished_at = now() WHERE id = %(id)s"


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("retried", [True, False], ids=["retried", "cancelled"])
async def test_a_kill_during_an_append_leaves_no_trace_and_nothing_twice(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch, point: str, retried: bool
) -> None:
    doc = await harness.add("guide.txt", GUIDE)
    await harness.work()
    before = await sql(harness.stack.db, ORIGINALS)
    await generate(harness, doc, [GeneratedText("An older reading.", 1)])

    def die(name: str) -> None:
        if name == point:
            raise Killed

    texts = [GeneratedText("The verifier is hashed.", 1), GeneratedText("A diagram.", 2)]
    ctx = await job_of(harness, doc)
    with monkeypatch.context() as patch:
        patch.setattr(generated_module, "failpoint", die)
        with pytest.raises(Killed):
            await append_as(ctx, harness, doc, texts)
    assert (await harness.examine()).clean, "work in progress is no difference"
    if retried:
        await sql(harness.stack.db, AGAIN, id=ctx.job.id)
        again = await harness.claim(JobKind.RENDER)
        assert again is not None
        held = HeldClaim(again, lease_seconds=LEASE_SECONDS, since=clock.now())
        second = JobContext(harness.stack.db, held)
        assert await append_as(second, harness, doc, texts)
        await end(second)
    else:
        await sql(harness.stack.db, CANCEL, id=ctx.job.id)

    await clean(harness)
    committed = retried or point == "generated.after_commit"
    expected = ["The verifier is hashed.", "A diagram."] if committed else ["An older reading."]
    assert [row["text"] for row in await generated(harness)] == expected
    assert await sql(harness.stack.db, ORIGINALS) == before


async def test_points_of_an_open_job_are_not_purged_however_long_it_takes(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    doc = await harness.add("guide.txt", GUIDE)
    await harness.work()
    ctx = await job_of(harness, doc)

    def purge_now(name: str) -> None:
        if name == "generated.after_vectors":
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(generated_module, "failpoint", purge_now)
        with pytest.raises(Killed):
            await append_as(ctx, harness, doc, [GeneratedText("The verifier is hashed.", 1)])
    collection = (await space(harness)).collection()
    await harness.settle()
    assert await harness.stack.vectors.count(collection) == 2
    await end(ctx)
    await harness.settle()
    assert await harness.stack.vectors.count(collection) == 2, "a frozen writer may still write"
    await clean(harness)
    assert await harness.stack.vectors.count(collection) == 1


async def test_a_publication_enqueues_the_jobs_that_follow_it_of_documents_and_records(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def follow(manifest: Manifest, document: PublishedDocument) -> NewJob | None:
        if manifest.id != CONTAINER:
            return None
        payload = {"generation": document.generation, "is_record": document.is_record}
        return NewJob(
            JobKind.READ_IMAGE,
            CONTAINER,
            document.doc_id,
            dedupe_key=f"follow:{document.doc_id}",
            payload=payload,
            principal=document.principal,
        )

    monkeypatch.setattr(followups, "FOLLOW_UPS", (follow, lambda *_: None))
    doc = await harness.add("guide.txt", GUIDE)
    await harness.work(JobKind.INGEST)
    await harness.add("guide.txt", GUIDE + b" Again.")
    await harness.work(JobKind.INGEST)
    corpus = await harness.add_corpus({"one": "The first record.", "two": "The second record."})
    await harness.work(JobKind.CORPUS)
    jobs = await sql(harness.stack.db, FOLLOWING)
    assert [(row["payload"], row["doc_id"] == doc) for row in jobs] == [
        ({"generation": 2, "is_record": False}, True),
        ({"generation": 1, "is_record": True}, False),
        ({"generation": 1, "is_record": True}, False),
    ]
    assert corpus not in {row["doc_id"] for row in jobs}
    assert {row["principal"] for row in jobs} == {"local:you"}


FOLLOWING: Final = (
    "SELECT doc_id, payload, principal FROM jobs WHERE kind = 'read_image' ORDER BY id"
)


async def repaired(harness: WorkerHarness) -> list[tuple[str, Remedy]]:
    """Kinds and remedies of what the doctor finds and mends."""
    report = await harness.examine()
    stack = harness.stack
    repairer = Repairer(
        stack.db, stack.vectors, stack.blobs, principal="local:you", lease_seconds=LEASE_SECONDS
    )
    outcomes = await repairer.repair(report)
    assert all(one.done for one in outcomes), outcomes
    return [(one.kind, one.repair) for one in outcomes]


async def test_doctor_embeds_lost_vectors_of_generated_chunks_again_and_keeps_their_rows(
    harness: WorkerHarness,
) -> None:
    doc = await harness.add("guide.txt", GUIDE)
    await harness.work()
    await generate(harness, doc, [GeneratedText("The verifier is hashed.", 1)])
    await clean(harness)
    before = await sql(harness.stack.db, ORIGINALS), await generated(harness)
    collection = (await space(harness)).collection()
    points = await harness.stack.vectors.scroll(collection, after=None, limit=10)
    (mine,) = [p.id for p in points if p.chunk_no == before[1][0]["chunk_no"]]
    await harness.stack.vectors.delete_points(collection, [mine])

    assert await repaired(harness) == [("point", Remedy.EMBED)]
    await clean(harness)
    assert (await sql(harness.stack.db, ORIGINALS), await generated(harness)) == before
    assert mine in await harness.stack.vectors.vectors(collection, [mine])


async def test_doctor_deletes_points_of_a_live_generation_that_no_chunk_expects(
    harness: WorkerHarness,
) -> None:
    doc = await harness.add("guide.txt", GUIDE)
    await harness.work()
    before = await sql(harness.stack.db, ORIGINALS)
    orphans = Points(
        [point_id(doc, 1, n) for n in range(2)],
        np.eye(2, DIMS, dtype=np.float32),
        [doc] * 2,
        [1] * 2,
        [100, 101],
    )
    await harness.stack.vectors.upsert((await space(harness)).collection(), orphans)
    await clean_jobs(harness)
    assert await repaired(harness) == [("orphan_point", Remedy.DROP)] * 2
    await clean(harness)
    assert await sql(harness.stack.db, ORIGINALS) == before


@pytest.mark.parametrize("named", [True, False], ids=["documents", "all"])
async def test_a_job_drops_a_group_in_steps_and_leaves_the_other_ones(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    monkeypatch.setattr(core_generated, "DOCUMENTS_PER_DROP", 2)
    docs = [await harness.add(f"{n}.txt", GUIDE) for n in range(5)]
    await harness.work()
    before = await sql(harness.stack.db, ORIGINALS)
    for doc in docs:
        await generate(harness, doc, [GeneratedText("A page.", 1)])
        await generate(harness, doc, [GeneratedText("A chart.", 1)], kind=GeneratedKind.VISUAL)
        await generate(harness, doc, [GeneratedText("All of it.")], kind=GeneratedKind.SUMMARY)
    chosen = docs[:3] if named else docs
    payload = DropPayload(group=GeneratedGroup.EXTRACTION, doc_ids=chosen if named else None)
    async with harness.stack.db.transaction() as conn:
        job_id = await request_drop(conn, CONTAINER, payload, principal="local:you")
    assert await harness.work() == []
    (job,) = await sql(
        harness.stack.db, "SELECT state, result FROM jobs WHERE id = %(id)s", id=job_id
    )
    assert job == {"state": "done", "result": {"documents": len(chosen), "chunks": 2 * len(chosen)}}
    left = await generated(harness)
    assert sum(row["generated"] == "summary" for row in left) == 5
    assert len(left) == 5 + 2 * (len(docs) - len(chosen))
    assert await sql(harness.stack.db, ORIGINALS) == before
    await clean(harness)


async def test_pages_that_another_model_described_keep_its_name_in_a_batch_of_two_models(
    harness: WorkerHarness,
) -> None:
    doc = await harness.add("guide.txt", GUIDE)
    await harness.work()
    (live,) = await sql(harness.stack.db, "SELECT live_generation AS n FROM documents")
    extraction = {
        "summary": "s",
        "sections": [],
        "full_text": "The keeper counts ships.",
        "visuals": [],
        "visual_importance": 1,
    }
    async with harness.stack.db.transaction() as conn:
        for page, model in ((1, "lab/old"), (2, "lab/new")):
            await page_extractions.save(
                conn,
                NewPageExtraction(
                    doc_id=doc,
                    generation=live["n"],
                    page=page,
                    state="done",
                    extraction=extraction,
                    visual_importance=1,
                    model=model,
                    prompt_version="page-1",
                    version="1",
                    page_hash=str(page),
                ),
            )
    ctx = await job_of(harness, doc)
    async with harness.stack.db.reading() as conn:
        container = await containers.get(conn, CONTAINER)
    assert container is not None
    for _ in range(2):
        assert await append_chunks(ctx, harness.deps, container, doc, live["n"], [1, 2])
    models = {
        row["page"]: row["provenance"]["generated"]["model"]
        for row in await sql(harness.stack.db, GENERATED)
    }
    assert models == {1: "lab/old", 2: "lab/new"}
