"""Generated chunks while something else happens: whatever comes between, the stores agree, and the source is untouched."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest

from latent_core.bm25.compaction import CompactionRules, compact, rebuild
from latent_core.bm25.differences import differences
from latent_core.db import containers
from latent_core.db.connection import Database
from latent_core.domain.generated import GeneratedGroup, GeneratedKind
from latent_core.domain.job import JobKind
from latent_core.ingest.delete import delete_documents
from latent_core.ingest.generated import GeneratedChanged, PurgeTerms, drop
from latent_core.ingest.publish import ContainerArchived
from latent_core.search.readable import Readable
from latent_core.wire.search import SearchRequest
from latent_workers.ingest import generated as generated_module
from latent_workers.ingest.generated import GeneratedText
from tests.support.harness.generated import append_as, end, generate, job_of
from tests.support.harness.worker_harness import (
    CONTAINER,
    LEASE_SECONDS,
    WorkerHarness,
    open_harness,
)
from tests.support.queue import sql

TERMS: Final = PurgeTerms("local:you", LEASE_SECONDS)
WORDS: Final = ("lamp", "lens", "keeper", "fog", "horn", "gull", "tern", "rock")
LATER: Final = "UPDATE jobs SET finished_at = finished_at - interval '1 hour'"
OPEN: Final = (
    "SELECT kind, doc_id FROM jobs WHERE state IN ('queued', 'running') AND kind <> 'garbage'"
)
STATE: Final = "UPDATE containers SET state = %(state)s WHERE id = 'notes'"
GENERATED: Final = "SELECT text FROM chunks WHERE generated IS NOT NULL ORDER BY position"
SOURCES: Final = """
SELECT d.uri, c.id, c.position, c.chunk_no, c.text, c.tsv::text, c.provenance, c.meta, c.xmin::text AS written_by
FROM chunks c JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE c.generated IS NULL ORDER BY c.chunk_no
"""
STATS: Final = "SELECT live_chunks, live_length FROM keyword_stats"
HASTY: Final = CompactionRules(dead_chunks=1, dead_share=10_000)


@pytest.fixture
async def harness(database: Database, tmp_path: Path) -> AsyncIterator[WorkerHarness]:
    async with open_harness(database, tmp_path) as opened:
        yield opened


async def clean(harness: WorkerHarness) -> None:
    for _ in range(2):
        await harness.settle()
        await sql(harness.stack.db, LATER)
    assert await sql(harness.stack.db, OPEN) == []
    report = await harness.examine()
    assert report.clean, report
    counts = report.containers[CONTAINER].counts
    assert counts["points"] == counts["points_expected"]


async def compacted(harness: WorkerHarness) -> None:
    async def go_on() -> None:
        """It is never cancelled."""

    await compact(harness.stack.db, CONTAINER, go_on, HASTY)


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Awaitable[Any]]) -> None:
    """``act`` happens once, after the vectors of an append are stored and before its transaction."""
    plain = generated_module.stage_dual_write

    async def interrupted(*given: Any) -> dict[int, list[int]]:
        monkeypatch.setattr(generated_module, "stage_dual_write", plain)
        written = await plain(*given)
        await act()
        return written

    monkeypatch.setattr(generated_module, "stage_dual_write", interrupted)


@pytest.mark.parametrize("change", ["replaced", "deleted"])
async def test_an_append_that_a_new_generation_or_a_deletion_overtakes_writes_nothing(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    doc = await harness.add("guide.txt", b"The keeper lights the lamp.")
    await harness.work()
    await generate(harness, doc, [GeneratedText("An older reading.", 1)])

    async def act() -> None:
        if change == "replaced":
            await harness.add("guide.txt", b"The keeper trims the lamp.")
            await harness.work(JobKind.INGEST)
            return
        async with harness.stack.db.transaction() as conn:
            await delete_documents(
                conn, CONTAINER, [doc], principal="local:you", lease_seconds=LEASE_SECONDS
            )

    meanwhile(monkeypatch, act)
    assert not await generate(harness, doc, [GeneratedText("A newer reading.", 1)])
    await clean(harness)
    assert await sql(harness.stack.db, GENERATED) == []
    expected = ["The keeper trims the lamp."] if change == "replaced" else []
    assert await harness.texts() == expected


async def test_nothing_is_appended_to_an_archived_container_until_it_is_active(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    doc = await harness.add("guide.txt", b"The keeper lights the lamp.")
    await harness.work()
    ctx = await job_of(harness, doc)
    meanwhile(monkeypatch, lambda: sql(harness.stack.db, STATE, state="archived"))
    texts = [GeneratedText("A reading.", 1)]
    with pytest.raises(ContainerArchived):
        await append_as(ctx, harness, doc, texts)
    assert await sql(harness.stack.db, GENERATED) == []
    async with harness.stack.db.transaction() as conn:
        with pytest.raises(ContainerArchived):
            await drop(conn, CONTAINER, GeneratedGroup.SUMMARIES, None, TERMS)
    await sql(harness.stack.db, STATE, state="active")
    assert await append_as(ctx, harness, doc, texts)
    await end(ctx)
    await clean(harness)
    assert [row["text"] for row in await sql(harness.stack.db, GENERATED)] == ["A reading."]


async def test_of_two_jobs_for_the_same_pages_the_one_whose_kept_texts_are_gone_tries_again(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    doc = await harness.add("guide.txt", b"The keeper lights the lamp.")
    await harness.work()
    first = [GeneratedText("Page one.", 1), GeneratedText("Page two.", 2)]
    await generate(harness, doc, first)
    other = [GeneratedText("Page one again.", 1), GeneratedText("Page two.", 2)]
    mine = [first[0], GeneratedText("Page two again.", 2)]
    meanwhile(monkeypatch, lambda: generate(harness, doc, other))
    ctx = await job_of(harness, doc)
    with pytest.raises(GeneratedChanged):
        await append_as(ctx, harness, doc, mine)
    assert await append_as(ctx, harness, doc, mine)
    await end(ctx)
    await clean(harness)
    assert [row["text"] for row in await sql(harness.stack.db, GENERATED)] == [
        "Page one.",
        "Page two again.",
    ]


class Walk:
    """Random steps on some documents; what each of them should hold is known all the while."""

    def __init__(self, harness: WorkerHarness, rng: random.Random, docs: list[UUID]) -> None:
        self._harness = harness
        self._rng = rng
        self._docs = docs
        self._generations = dict.fromkeys(docs, 1)
        self.held: dict[tuple[UUID, GeneratedKind, int | None], list[str]] = {}

    async def step(self) -> None:
        doc = self._rng.choice(self._docs)
        act = self._rng.choice(
            [self._pages, self._pages, self._summary, self._drop, self._replace, self._compact]
        )
        await act(doc)

    def _text(self) -> str:
        """Few words, so that texts repeat."""
        return f"The {self._rng.choice(WORDS)} and the {self._rng.choice(WORDS)}."

    async def _generate(
        self, doc: UUID, kind: GeneratedKind, texts: list[GeneratedText], pages: list[int] | None
    ) -> None:
        generation = self._generations[doc]
        assert await generate(
            self._harness, doc, texts, kind=kind, pages=pages, generation=generation
        )
        for key in [k for k in self.held if k[:2] == (doc, kind)]:
            if pages is None or key[2] in pages:
                del self.held[key]
        for one in texts:
            self.held.setdefault((doc, kind, one.page), []).append(one.text)

    async def _pages(self, doc: UUID) -> None:
        pages = sorted(self._rng.sample(range(1, 5), self._rng.randint(1, 3)))
        texts = [
            GeneratedText(self._text(), page)
            for page in pages
            for _ in range(self._rng.randint(0, 2))
        ]
        kind = self._rng.choice([GeneratedKind.PAGE, GeneratedKind.VISUAL])
        await self._generate(doc, kind, texts, pages)

    async def _summary(self, doc: UUID) -> None:
        await self._generate(doc, GeneratedKind.SUMMARY, [GeneratedText(self._text())], None)

    async def _drop(self, doc: UUID) -> None:
        group = self._rng.choice([GeneratedGroup.SUMMARIES, GeneratedGroup.EXTRACTION])
        async with self._harness.stack.db.transaction() as conn:
            await drop(conn, CONTAINER, group, [doc], TERMS)
        for key in [k for k in self.held if k[0] == doc and k[1] in group.kinds]:
            del self.held[key]

    async def _replace(self, doc: UUID) -> None:
        number, generation = self._docs.index(doc), self._generations[doc] + 1
        await self._harness.add(f"{number}.txt", f"{self._text()} {generation}".encode())
        assert await self._harness.work(JobKind.INGEST) == []
        self._generations[doc] = generation
        for key in [k for k in self.held if k[0] == doc]:
            del self.held[key]

    async def _compact(self, _doc: UUID) -> None:
        await compacted(self._harness)


@pytest.mark.parametrize("seed", range(2))
async def test_after_any_steps_words_are_found_as_after_a_rebuild_and_nothing_else_changes(
    harness: WorkerHarness, seed: int
) -> None:
    docs = [await harness.add(f"{n}.txt", f"The {WORDS[n]} of {n}.".encode()) for n in range(3)]
    await harness.work()
    walk = Walk(harness, random.Random(seed), docs)
    for _ in range(25):
        await walk.step()
        assert await differences(harness.stack.db, CONTAINER, limit=10) == []
    stored = [row["text"] for row in await sql(harness.stack.db, GENERATED)]
    held = [text for texts in walk.held.values() for text in texts]
    live = await sql(
        harness.stack.db,
        "SELECT c.text FROM chunks c JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation"
        " WHERE c.generated IS NOT NULL",
    )
    assert sorted(row["text"] for row in live) == sorted(held)
    assert set(held) <= set(stored)

    before = await scores(harness), await sql(harness.stack.db, STATS)
    await rebuild(harness.stack.db, CONTAINER)
    assert (await scores(harness), await sql(harness.stack.db, STATS)) == before
    await clean(harness)


async def scores(harness: WorkerHarness) -> list[list[tuple[int, float]]]:
    """By each word, of originals and of summaries."""
    index, found = harness.stack.keywords, []
    for of_summaries in (False, True):
        for word in WORDS:
            read = await index.read(
                {CONTAINER: [word]}, timeout_seconds=10, of_summaries=of_summaries
            )
            hits = await read.best(CONTAINER, 50, None)
            found.append(
                sorted(zip(hits.chunk_nos.tolist(), hits.scores.round(5).tolist(), strict=True))
            )
    return found


async def test_searches_compactions_and_appends_at_once_end_in_one_state(
    harness: WorkerHarness,
) -> None:
    """A search may have a chunk as a candidate whose row is gone when it is to be shown."""
    docs = [await harness.add(f"{n}.txt", f"The lamp of {n}.".encode()) for n in range(3)]
    await harness.work()
    sources = await sql(harness.stack.db, SOURCES)
    async with harness.stack.db.reading() as conn:
        container = await containers.get(conn, CONTAINER)
    assert container is not None
    writing = True

    async def write(number: int, doc: UUID) -> None:
        for n in range(6):
            texts = [GeneratedText(f"A lamp {number} {n} on page {p}.", p) for p in (1, 2)]
            await generate(harness, doc, texts)

    async def write_all() -> None:
        nonlocal writing
        await asyncio.gather(*(write(n, doc) for n, doc in enumerate(docs)))
        writing = False

    async def tidy() -> None:
        while writing:
            await compacted(harness)

    async def search() -> None:
        request = SearchRequest(containers=[CONTAINER], top_k=20, query="lamp", dedup=False)
        service = harness.deps.search_service(20)
        while writing:
            answer = await service.search(request, {CONTAINER: Readable(container)})
            assert not answer.partial, answer.issues
            own = {hit.text for hit in answer.hits if hit.generated is None}
            assert own == {f"The lamp of {n}." for n in range(3)}

    async with asyncio.timeout(90):
        await asyncio.gather(write_all(), tidy(), search())
    assert await sql(harness.stack.db, SOURCES) == sources
    await clean(harness)
    assert len(await sql(harness.stack.db, GENERATED)) == 6
