"""Exports and imports on real stores: the same is found again, a merge follows its policy, a cut-off one goes on."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from latent_core.db import containers, golden
from latent_core.db.connection import Database
from latent_core.domain.errors import Conflict, Invalid, StoreFull, Unavailable
from latent_core.domain.golden import GoldenSet, parse_golden
from latent_core.domain.ids import document_id
from latent_core.domain.job import JobKind
from latent_core.domain.manifest.model import Manifest
from latent_core.ingest import containers as founding
from latent_core.ingest.purge import purge_blobs
from latent_core.models.embedding.port import EmbeddingModel
from latent_core.transfer import exporting
from latent_core.transfer.import_commit import BlobsGone
from latent_core.transfer.requests import ImportPolicy
from latent_core.transfer.verify import Verification
from latent_workers.transfer import import_steps
from tests.support.harness.transfers import (
    CHUNKS,
    DOCUMENTS,
    OWNER,
    begin,
    delete,
    everything,
    export,
    fill,
    found,
    rows,
    take_in,
)
from tests.support.harness.worker_harness import (
    CONTAINER,
    DIMS,
    LEASE_SECONDS,
    WorkerHarness,
    open_harness,
)
from tests.support.queue import sql

WAIT_SECONDS: Final = 60.0


@pytest.fixture
async def harness(database: Database, tmp_path: Path) -> AsyncIterator[WorkerHarness]:
    async with open_harness(database, tmp_path) as one:
        yield one


async def test_a_restored_container_is_the_same_to_every_reader(harness: WorkerHarness) -> None:
    await fill(harness)
    before, answers = await everything(harness, CONTAINER), await found(harness, CONTAINER)
    assert before[2], "nothing repeats anything: the test would prove little"
    blobs, embedded = await harness.stored(), harness.embedder.texts
    data = await export(harness)
    await delete(harness, CONTAINER)
    assert not await rows(harness, CHUNKS, CONTAINER)
    result = await take_in(harness, data, CONTAINER)
    assert (result["embedded"], result["lacking_blobs"]) == (0, 0)
    await harness.settle()
    assert await everything(harness, CONTAINER) == before
    assert await found(harness, CONTAINER) == answers
    assert harness.embedder.texts == embedded
    assert blobs <= await harness.stored()
    report = await harness.examine()
    assert report.clean, report


async def test_under_another_id_the_texts_are_the_same_and_both_are_found_apart(
    harness: WorkerHarness,
) -> None:
    await fill(harness)
    data = await export(harness)
    assert (await take_in(harness, data, "copy"))["embedded"] == 0
    texts = [[r["text"] for r in await rows(harness, CHUNKS, c)] for c in (CONTAINER, "copy")]
    assert texts[0] == texts[1]
    ids = [{r["id"] for r in await rows(harness, CHUNKS, c)} for c in (CONTAINER, "copy")]
    assert ids[0].isdisjoint(ids[1])
    await harness.settle()
    assert (await harness.examine()).clean


async def test_without_vectors_it_embeds_and_finds_the_same(harness: WorkerHarness) -> None:
    await fill(harness)
    answers = await found(harness, CONTAINER)
    data = await export(harness, vectors=False)
    await delete(harness, CONTAINER)
    await sql(harness.stack.db, "DELETE FROM embedding_cache")
    before = harness.embedder.texts
    result = await take_in(harness, data, CONTAINER)
    chunks = await rows(harness, CHUNKS, CONTAINER)
    assert result["embedded"] == len(chunks)
    assert before < harness.embedder.texts <= before + len(chunks)
    assert await found(harness, CONTAINER) == answers


async def test_vectors_of_another_model_are_not_taken(harness: WorkerHarness) -> None:
    await fill(harness)
    data = await export(harness)
    harness.embedder.model = type(harness.embedder.model)("openai/test", "2", DIMS, 128)
    result = await take_in(harness, data, "newer")
    chunks = await rows(harness, CHUNKS, "newer")
    assert result["embedded"] == len(chunks)
    assert {c["provenance"]["embedder_version"] for c in chunks} == {"2"}


async def test_a_version_that_is_not_installed_any_more_is_left_out_of_the_manifest_and_embedded_anew(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a local model, whose version a refresh pins; a later release must be able to restore what was saved."""
    await fill(harness)
    pinned = "UPDATE containers SET manifest = manifest || '{\"embedder_version\": \"1\"}', etag = 'pinned'"
    await sql(harness.stack.db, pinned)
    data = await export(harness)
    newer = type(harness.embedder.model)("openai/test", "2", DIMS, 128)

    async def measure(self, manifest: Manifest) -> None:
        """Of a local embedder there is nothing to ask."""

    def model_of(manifest: Manifest) -> EmbeddingModel:
        if manifest.embedder_version not in (None, newer.version):
            raise Invalid("embedder_version is '1', but the embedder has '2'")
        return newer

    monkeypatch.setattr(harness.embedder, "model", newer)
    monkeypatch.setattr(harness.embedder, "model_of", model_of)
    result = await take_in(harness, data, "restored")
    assert result["embedded"] == result["chunks"] > 0
    async with harness.stack.db.transaction() as conn:
        made = await containers.get(conn, "restored")
    assert made is not None
    assert (made.manifest.embedder_version, made.space.version) == (None, "2")
    (job,) = await sql(harness.stack.db, "SELECT warnings FROM jobs WHERE kind = 'import'")
    assert "embedder_version 1" in job["warnings"][0]["message"]
    assert "all texts were embedded again" in job["warnings"][0]["message"]


MAP: Final = """
INSERT INTO embedded (doc_id, collection_id, generation, mapped)
SELECT d.id, c.live_space, d.live_generation, true FROM documents d JOIN containers c ON c.id = d.container_id
WHERE d.uri = 'file:///2.md'
"""
CAME_MAPPED: Final = """
UPDATE chunks c SET provenance = c.provenance || '{"embedder_version": "1+drift1"}'
FROM documents d WHERE d.id = c.doc_id AND d.uri = 'file:///long.md'
"""


async def test_vectors_that_a_drift_adapter_mapped_are_left_out_and_made_by_the_embedder(
    harness: WorkerHarness,
) -> None:
    await fill(harness)
    before, answers = await everything(harness, CONTAINER), await found(harness, CONTAINER)
    await sql(harness.stack.db, MAP)
    await sql(harness.stack.db, CAME_MAPPED)
    data = await export(harness)
    *_, contents = Verification(io.BytesIO(data)).steps()
    assert contents is not None
    (many,) = await sql(
        harness.stack.db,
        "SELECT sum(live_chunks) AS chunks FROM documents WHERE uri IN ('file:///2.md', 'file:///long.md')",
    )
    assert many["chunks"] > 2
    assert contents.totals.vectors == contents.totals.chunks - many["chunks"] > 0
    await delete(harness, CONTAINER)
    assert (await take_in(harness, data, CONTAINER))["embedded"] == many["chunks"]
    await harness.settle()
    assert await everything(harness, CONTAINER) == before
    assert await found(harness, CONTAINER) == answers
    assert (await harness.examine()).clean


async def test_blobs_that_are_not_stored_here_are_reported_and_skipped_in_an_import_without_blobs(
    harness: WorkerHarness,
) -> None:
    await fill(harness)
    data = await export(harness, blobs=False)
    assert (await take_in(harness, data, "beside"))["lacking_blobs"] == 0  # they are stored here
    for one in (CONTAINER, "beside"):
        await delete(harness, one)
    await harness.settle()
    result = await take_in(harness, data, CONTAINER)
    assert result["lacking_blobs"] > 0
    await harness.settle()
    report = await harness.examine()
    assert report.clean, report


async def test_until_its_last_step_nothing_of_an_import_is_seen_and_a_failed_one_leaves_nothing(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(harness)
    data = await export(harness)
    monkeypatch.setattr(exporting, "CHUNKS_PER_PART", 4)
    data = await export_again(harness)
    monkeypatch.setattr(import_steps, "CHUNKS_PER_STEP", 4)
    seen: list[bool] = []

    def look(name: str) -> None:
        if name == "import.after_commit":
            seen.append(True)
            if len(seen) == 3:
                raise Conflict("the test ends it")

    monkeypatch.setattr(import_steps, "failpoint", look)
    await begin(harness, data, "hidden")
    (trouble,) = await harness.work(JobKind.IMPORT)
    assert "the test ends it" in str(trouble)
    async with harness.stack.db.transaction() as conn:
        assert await containers.get(conn, "hidden") is None
    await harness.settle()
    left = await sql(
        harness.stack.db, "SELECT id FROM containers UNION SELECT container_id FROM chunks"
    )
    assert [r["id"] for r in left] == [CONTAINER]
    assert (await harness.examine()).clean


async def test_a_failed_import_frees_its_space_with_its_last_attempt(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(harness)
    data = await export(harness)

    async def full(*_: object, **__: object) -> None:
        raise StoreFull("no space left: make room", service="qdrant")

    monkeypatch.setattr(harness.stack.vectors, "upsert", full)
    await begin(harness, data, "large")
    await sql(harness.stack.db, "UPDATE jobs SET max_attempts = 2 WHERE kind = 'import'")
    for _ in range(2):
        await sql(harness.stack.db, "UPDATE jobs SET run_at = now() WHERE kind = 'import'")
        (trouble,) = await harness.work(JobKind.IMPORT)
        assert "no space left" in str(trouble)
    monkeypatch.undo()
    (job,) = await sql(harness.stack.db, "SELECT state, cause FROM jobs WHERE kind = 'import'")
    assert (job["state"], job["cause"]["code"]) == ("failed", "UNAVAILABLE")
    await harness.settle()
    async with harness.stack.db.transaction() as conn:
        assert await containers.get(conn, "large") is None
    assert (await harness.examine()).clean


async def test_a_merge_into_a_container_with_a_missing_collection_is_retried(
    harness: WorkerHarness,
) -> None:
    await fill(harness)
    data = await export(harness)
    (collection,) = await harness.stack.vectors.collections()
    await harness.stack.vectors.drop_collection(collection)
    await begin(harness, data, CONTAINER, merge=True, policy=ImportPolicy.REPLACE)
    (trouble,) = await harness.work(JobKind.IMPORT)
    assert isinstance(trouble, Unavailable), trouble
    (job,) = await sql(harness.stack.db, "SELECT state FROM jobs WHERE kind = 'import'")
    assert job["state"] == "queued"


async def export_again(harness: WorkerHarness) -> bytes:
    """After something that an archive holds has changed, so that it is made anew."""
    await harness.add("more.md", b"# More\n\nOne more lamp.\n")
    assert await harness.work() == []
    return await export(harness)


class Killed(BaseException):
    """As ``kill -9`` ends an attempt: nothing is cleaned up."""


@pytest.mark.parametrize(
    ("merge", "indexed_together"),
    [
        pytest.param(True, 50_000, id="merge"),
        pytest.param(False, 50_000, id="postings-at-the-end"),
        pytest.param(False, 5, id="postings-every-two-steps"),
    ],
)
async def test_a_killed_import_goes_on_where_it_was_and_ends_as_if_nothing_had_happened(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch, merge: bool, indexed_together: int
) -> None:
    await fill(harness)
    monkeypatch.setattr(exporting, "CHUNKS_PER_PART", 3)
    data = await export_again(harness)
    before, answers = await everything(harness, CONTAINER), await found(harness, CONTAINER)
    await delete(harness, CONTAINER)
    if merge:
        manifest = Manifest(id=CONTAINER, name="Notes", embedder="openai/test", dims=DIMS)
        stack = harness.stack
        await founding.create(
            stack.db,
            stack.vectors,
            stack.blobs,
            harness.embedder,
            manifest,
            principal=OWNER,
            request_id=None,
        )
    monkeypatch.setattr(import_steps, "CHUNKS_PER_STEP", 3)
    monkeypatch.setattr(import_steps, "CHUNKS_INDEXED_TOGETHER", indexed_together)
    embedded = harness.embedder.texts
    await begin(harness, data, CONTAINER, merge=merge)
    points = ("import.after_vectors", "import.before_commit", "import.after_commit")
    postings = () if merge else ("import.before_postings", "import.after_postings")
    last_points = (*postings, "import.before_finish")
    for point in (*points, "import.before_vectors", *last_points):
        job = await harness.claim(JobKind.IMPORT)
        assert job is not None, point
        with monkeypatch.context() as patch:
            patch.setattr(import_steps, "failpoint", killer(point, skip=1))
            with pytest.raises(Killed):
                await harness.run(job)
        await sql(
            harness.stack.db,
            "UPDATE jobs SET state = 'queued', claim_id = NULL WHERE kind = 'import'",
        )
    assert await harness.work(JobKind.IMPORT) == []
    await harness.settle()
    after = await everything(harness, CONTAINER)
    assert after[:2] == before[:2]
    assert await found(harness, CONTAINER) == answers
    assert harness.embedder.texts == embedded
    report = await harness.examine()
    assert report.clean, report


async def test_an_import_whose_steps_wrote_their_postings_themselves_does_not_write_them_again(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As versions did whose payload did not tell what waits."""
    await fill(harness)
    data = await export_again(harness)
    before, answers = await everything(harness, CONTAINER), await found(harness, CONTAINER)
    await delete(harness, CONTAINER)
    monkeypatch.setattr(import_steps, "CHUNKS_PER_STEP", 3)
    monkeypatch.setattr(import_steps, "CHUNKS_INDEXED_TOGETHER", 1)
    await begin(harness, data, CONTAINER)
    job = await harness.claim(JobKind.IMPORT)
    assert job is not None
    with monkeypatch.context() as patch:
        patch.setattr(import_steps, "failpoint", killer("import.after_postings", skip=0))
        with pytest.raises(Killed):
            await harness.run(job)
    (stopped,) = await sql(
        harness.stack.db,
        "UPDATE jobs SET state = 'queued', claim_id = NULL, payload = payload - 'chunks_waiting' WHERE kind = 'import' "
        "RETURNING payload",
    )
    assert stopped["payload"]["chunks_read"] > 0
    assert await harness.work(JobKind.IMPORT) == []
    await harness.settle()
    assert (await everything(harness, CONTAINER))[:2] == before[:2]
    assert await found(harness, CONTAINER) == answers
    assert (await harness.examine()).clean


def killer(point: str, *, skip: int) -> Callable[[str], None]:
    """Ends an attempt when it comes to ``point`` for the time after ``skip`` others, or at the last one there is."""
    left = 0 if point.endswith(("finish", "postings")) else skip

    def at(name: str) -> None:
        nonlocal left
        if name == point:
            if left == 0:
                raise Killed
            left -= 1

    return at


KEYWORD_ROWS: Final = """
SELECT count(*) AS rows, count(DISTINCT term) AS terms
FROM (SELECT * FROM postings UNION ALL SELECT * FROM unmerged_postings) p WHERE container_id = 'copy'
"""


async def test_a_term_has_one_row_of_postings_in_a_new_container_whatever_the_number_of_steps(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(harness)
    monkeypatch.setattr(exporting, "CHUNKS_PER_PART", 3)
    data = await export_again(harness)
    monkeypatch.setattr(import_steps, "CHUNKS_PER_STEP", 3)
    result = await take_in(harness, data, "copy")
    assert result["chunks"] > 3 * 3
    (counted,) = await sql(harness.stack.db, KEYWORD_ROWS)
    assert counted["rows"] == counted["terms"] > 3


async def test_vectors_of_a_step_are_stored_while_the_step_before_is_committed(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(harness)
    monkeypatch.setattr(exporting, "CHUNKS_PER_PART", 4)
    data = await export_again(harness)
    await delete(harness, CONTAINER)
    monkeypatch.setattr(import_steps, "CHUNKS_PER_STEP", 4)
    stored = asyncio.Queue[None]()
    committed: list[bool] = []
    stage, commit = import_steps.import_commit.stage, import_steps.import_commit.commit

    async def staged(*args: Any) -> None:
        await stage(*args)
        stored.put_nowait(None)

    async def waiting(*args: Any) -> Any:
        if not committed:  # its own vectors, and those of the step that follows
            await stored.get()
            await stored.get()
        committed.append(True)
        return await commit(*args)

    monkeypatch.setattr(import_steps.import_commit, "stage", staged)
    monkeypatch.setattr(import_steps.import_commit, "commit", waiting)
    async with asyncio.timeout(WAIT_SECONDS):
        await take_in(harness, data, CONTAINER)
    assert len(committed) > 1


@pytest.mark.parametrize("policy", list(ImportPolicy))
async def test_a_merge_takes_what_its_policy_says(
    harness: WorkerHarness, policy: ImportPolicy
) -> None:
    await harness.add("old.md", b"# Old\n\nThe old lamp.\n")
    await harness.add("new.md", b"# New\n\nThe old lens.\n")
    await harness.add("gone.md", b"# Gone\n\nThe gull.\n")
    assert await harness.work() == []
    await sql(
        harness.stack.db,
        "UPDATE documents SET source_modified_at = '2026-01-02' WHERE uri IN ('file:///old.md', 'file:///new.md')",
    )
    data = await export(harness)
    await harness.add("old.md", b"# Old\n\nThe changed lamp.\n")
    await harness.add("new.md", b"# New\n\nThe changed lens.\n")
    assert await harness.work() == []
    moments = {"old.md": "2026-01-01", "new.md": "2026-01-03"}
    for name, at in moments.items():
        await sql(
            harness.stack.db,
            f"UPDATE documents SET source_modified_at = '{at}' WHERE uri = 'file:///{name}'",
        )
    await remove(harness, "gone.md")
    result = await take_in(harness, data, CONTAINER, merge=True, policy=policy)
    texts = {
        r["text"].split()[-1] + r["text"].split()[-2]
        for r in await rows(harness, CHUNKS, CONTAINER)
    }
    expected = {
        ImportPolicy.SKIP: {"lamp.changed", "lens.changed"},
        ImportPolicy.REPLACE: {"lamp.old", "lens.old"},
        ImportPolicy.NEWEST: {"lamp.old", "lens.changed"},
    }[policy]
    assert texts == expected | {"gull.The"}
    assert (
        result["documents"]
        == {ImportPolicy.SKIP: 1, ImportPolicy.REPLACE: 3, ImportPolicy.NEWEST: 2}[policy]
    )
    await harness.settle()
    report = await harness.examine()
    assert report.clean, report


async def remove(harness: WorkerHarness, name: str) -> None:
    from latent_core.ingest.delete import delete_documents

    async with harness.stack.db.transaction() as conn:
        doc_id = document_id(CONTAINER, f"file:///{name}")
        await delete_documents(
            conn, CONTAINER, [doc_id], principal=OWNER, lease_seconds=LEASE_SECONDS
        )
    await harness.work()


async def test_a_damaged_archive_is_refused_with_the_place_and_nothing_is_made(
    harness: WorkerHarness,
) -> None:
    await fill(harness)
    data = bytearray(await export(harness))
    data[len(data) // 2] ^= 1
    await begin(harness, bytes(data), "damaged")
    (trouble,) = await harness.work(JobKind.IMPORT)
    assert isinstance(trouble, Invalid)
    assert "cannot be imported" in trouble.message
    left = await sql(harness.stack.db, "SELECT id FROM containers")
    assert [r["id"] for r in left] == [CONTAINER]


async def test_searches_see_whole_documents_while_an_import_replaces_them_all(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(harness)
    data = await export(harness)
    monkeypatch.setattr(import_steps, "CHUNKS_PER_STEP", 5)
    done = asyncio.Event()
    counts: list[int] = []
    lamps = (
        await harness.stack.keywords.search(CONTAINER, ["lamp"], 50, timeout_seconds=5)
    ).matched

    async def search() -> None:
        while not done.is_set():
            hits = await harness.stack.keywords.search(CONTAINER, ["lamp"], 50, timeout_seconds=5)
            assert hits.matched == lamps
            counts.append(len(await harness.texts()))

    searching = asyncio.create_task(search())
    try:
        await take_in(harness, data, CONTAINER, merge=True, policy=ImportPolicy.REPLACE)
    finally:
        done.set()
        await searching
    assert counts
    assert set(counts) == {len(await harness.texts())}


async def test_documents_that_change_while_they_are_exported_are_whole_and_in_once(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(harness)
    monkeypatch.setattr(exporting, "CHUNKS_PER_PART", 1)
    monkeypatch.setattr(exporting, "DOCUMENTS_PER_LOOK", 2)
    changed: list[str] = []
    original_write = exporting.ArchiveExport._write_batch

    async def disturbed(self: Any, writer: Any, some: Any) -> None:
        if len(changed) < 3:
            changed.append(f"{6 - len(changed)}.md")
            await harness.add(
                changed[-1], b"# Changed\n\nThe lamp was changed while it was copied.\n"
            )
            await harness.work(JobKind.INGEST)
        await original_write(self, writer, some)

    monkeypatch.setattr(exporting.ArchiveExport, "_write_batch", disturbed)
    data = await export(harness)
    monkeypatch.undo()
    *_, contents = Verification(io.BytesIO(data)).steps()
    assert contents is not None
    live = await rows(harness, DOCUMENTS, CONTAINER)
    assert contents.totals.documents == len(live)
    await take_in(harness, data, "copy")
    copied = await rows(harness, DOCUMENTS, "copy")
    assert [d["uri"] for d in copied] == [d["uri"] for d in live]
    assert [d["sha256"] for d in copied] == [d["sha256"] for d in live]


async def test_unavailable_settings_are_removed_from_the_manifest_and_reported(
    harness: WorkerHarness,
) -> None:
    asks = "UPDATE containers SET manifest = jsonb_set(manifest, '{summaries,enabled}', 'true'), etag = 'asks'"
    await sql(harness.stack.db, asks)
    data = await export(harness)
    await take_in(harness, data, "other")
    async with harness.stack.db.transaction() as conn:
        made = await containers.get(conn, "other")
    assert made is not None
    assert not made.manifest.summaries.enabled
    (job,) = await sql(
        harness.stack.db, "SELECT warnings FROM jobs WHERE kind = 'import' ORDER BY id DESC LIMIT 1"
    )
    assert "summaries.enabled" in job["warnings"][0]["message"]


GOLDEN_SET: Final = parse_golden(
    {"queries": [{"q": "lamp", "expect": ["lamp"]}], "thresholds": {"ndcg@10": 0.5}}
)


async def keep_golden(harness: WorkerHarness, container: str, given: GoldenSet) -> None:
    async with harness.stack.db.transaction() as conn:
        version = await golden.begin(conn, container, OWNER)
        await golden.replace(conn, container, given, version)


async def golden_of(harness: WorkerHarness, container: str) -> GoldenSet | None:
    async with harness.stack.db.transaction() as conn:
        return await golden.read(conn, container)


async def test_golden_queries_go_along_unless_the_container_has_some(
    harness: WorkerHarness,
) -> None:
    await keep_golden(harness, CONTAINER, GOLDEN_SET)
    await harness.add("a.md", b"# A\n\nThe lamp.\n")
    assert await harness.work() == []
    data = await export(harness)
    await take_in(harness, data, "other")
    assert await golden_of(harness, "other") == GOLDEN_SET
    own = parse_golden({"queries": [{"q": "horn", "expect": ["horn"]}]})
    await keep_golden(harness, "other", own)
    await take_in(harness, data, "other", merge=True)
    assert await golden_of(harness, "other") == own


async def test_golden_queries_that_are_not_valid_are_reported_and_fail_no_import(
    harness: WorkerHarness,
) -> None:
    await keep_golden(harness, CONTAINER, GOLDEN_SET)
    await harness.add("a.md", b"# A\n\nThe lamp.\n")
    assert await harness.work() == []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GoldenSet, "written", lambda _: {"queries": [{"q": "lamp"}]})
        data = await export(harness)
    await take_in(harness, data, "other")
    (job,) = await sql(harness.stack.db, "SELECT warnings FROM jobs WHERE kind = 'import'")
    assert "expects nothing" in job["warnings"][0]["message"]
    assert await golden_of(harness, "other") is None


AGES = """
WITH older AS (UPDATE jobs SET started_at = started_at - interval '10 minutes' WHERE state = 'running')
UPDATE blobs SET touched_at = touched_at - interval '10 minutes'
"""


@pytest.mark.parametrize("killed", [False, True])
async def test_what_an_import_brings_outlives_a_collection_of_garbage_until_it_is_referred_to(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    await fill(harness)
    data = await export(harness)
    blobs = {r["sha256"] for r in await sql(harness.stack.db, "SELECT sha256 FROM blob_refs")}
    await delete(harness, CONTAINER)
    await harness.settle()
    seen: list[str] = []

    async def collect() -> None:
        await sql(harness.stack.db, AGES)
        await purge_blobs(
            harness.stack.db,
            harness.stack.blobs.own,
            older_than_seconds=2 * LEASE_SECONDS,
            checkpoint=no_pause,
        )

    async def staged(*args: Any) -> None:
        await stage(*args)
        await collect()
        seen.append("collected")
        if killed and len(seen) == 1:
            raise Unavailable("the attempt ends here")

    stage = import_steps.import_commit.stage
    monkeypatch.setattr(import_steps.import_commit, "stage", staged)
    job_id = await begin(harness, data, CONTAINER)
    assert len(await harness.work(JobKind.IMPORT)) == killed
    if killed:  # nobody runs: what it brought may go, and is brought again
        await collect()
        assert not blobs & (await harness.stored())
        await sql(harness.stack.db, "UPDATE jobs SET run_at = now(), waits_for = NULL")
        assert await harness.work(JobKind.IMPORT) == []
    (job,) = await sql(
        harness.stack.db, f"SELECT state, result, warnings FROM jobs WHERE id = {job_id}"
    )
    assert (job["state"], job["result"]["lacking_blobs"], job["warnings"]) == ("done", 0, [])
    assert seen
    assert blobs <= await harness.stored()


async def no_pause() -> None:
    """Nothing has to be asked between two blobs."""


async def test_an_import_whose_bytes_vanish_before_its_commit_repeats_the_step(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(harness)
    data = await export(harness)
    await delete(harness, CONTAINER)
    await harness.settle()
    stage = import_steps.import_commit.stage
    lost: list[str] = []

    async def staged(*args: Any) -> None:
        await stage(*args)
        if not lost:
            held = "SELECT sha256 FROM archives"
            query = f"DELETE FROM blobs WHERE sha256 NOT IN ({held}) RETURNING sha256"
            lost.extend(row["sha256"] for row in await sql(harness.stack.db, query))

    monkeypatch.setattr(import_steps.import_commit, "stage", staged)
    job_id = await begin(harness, data, CONTAINER)
    (trouble,) = await harness.work(JobKind.IMPORT)
    assert isinstance(trouble, BlobsGone)
    assert lost
    await sql(harness.stack.db, "UPDATE jobs SET run_at = now(), waits_for = NULL")
    assert await harness.work(JobKind.IMPORT) == []
    (job,) = await sql(harness.stack.db, f"SELECT result, warnings FROM jobs WHERE id = {job_id}")
    assert (job["result"]["lacking_blobs"], job["warnings"]) == (0, [])


@pytest.mark.parametrize("policy", list(ImportPolicy))
async def test_a_merge_gives_way_to_what_was_accepted_before_it_unless_it_replaces(
    harness: WorkerHarness, policy: ImportPolicy
) -> None:
    await harness.add("live.md", b"# Live\n\nThe archived lamp.\n")
    await harness.add("gone.md", b"# Gone\n\nThe archived lens.\n")
    assert await harness.work() == []
    await sql(harness.stack.db, "UPDATE documents SET source_modified_at = '2026-01-02'")
    data = await export(harness)
    await remove(harness, "gone.md")
    await sql(harness.stack.db, "UPDATE documents SET source_modified_at = '2026-01-01'")
    await harness.add("live.md", b"# Live\n\nThe accepted lamp.\n")
    await harness.add("gone.md", b"# Gone\n\nThe accepted lens.\n")
    await take_in(harness, data, CONTAINER, merge=True, policy=policy)
    assert await harness.work() == []
    original_write = {r["text"].split()[-2] for r in await rows(harness, CHUNKS, CONTAINER)}
    assert original_write == ({"archived"} if policy is ImportPolicy.REPLACE else {"accepted"})


async def test_the_planner_knows_the_documents_of_an_import_before_they_are_searched(
    harness: WorkerHarness,
) -> None:
    await fill(harness)
    data = await export(harness)
    await begin(harness, data, "copy")
    assert await harness.work(JobKind.IMPORT) == []
    (known,) = await sql(
        harness.stack.db,
        "SELECT reltuples, (SELECT count(*) FROM documents) AS documents FROM pg_class WHERE relname = 'documents'",
    )
    assert known["reltuples"] == known["documents"] > 0
