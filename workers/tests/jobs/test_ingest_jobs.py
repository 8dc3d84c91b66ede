"""The handlers of jobs on real stores: what a job leaves visible, and that it leaves nothing else."""

from __future__ import annotations

import hashlib
import io
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import orjson
import pytest
from PIL import Image

from latent_core.db import containers
from latent_core.db.connection import Database
from latent_core.db.documents.documents import SourceInfo
from latent_core.db.spaces import refresh_sources
from latent_core.domain import versions
from latent_core.domain.errors import IngestFailed, ServiceUnreachable, TooLarge, Unavailable
from latent_core.domain.job import JobKind
from latent_core.ingest.accept import accept, from_original
from latent_core.ingest.delete import delete_container, delete_documents
from latent_core.queue.reaper import reap
from latent_core.search.plan import is_foreign
from latent_core.vectors.port import Points
from latent_workers import publishing
from latent_workers.jobs import corpus, render
from latent_workers.ocr.reader import PageReader
from latent_workers.parse.pdf import mupdf
from latent_workers.parse.text.decode import clean_value
from tests.support.harness.worker_harness import (
    CONTAINER,
    LEASE_SECONDS,
    WorkerHarness,
    open_harness,
)
from tests.support.locked_files import PASSWORD, locked_office, locked_pdf
from tests.support.office_files import docx, p
from tests.support.queue import expire, sql

LINES: Final = "\n".join(f"line {n} of the log" for n in range(1500))


@pytest.fixture
async def harness(database: Database, tmp_path: Path) -> AsyncIterator[WorkerHarness]:
    async with open_harness(database, tmp_path) as opened:
        yield opened


NOTE = b"""---
title: Lamps of the coast
aliases: [Argand burner]
tags: [fresnel, oil]
lastmod: 2021-03-04 05:06:07 +0200
---
# Keepers

The lamp is lit at dusk.
"""


async def test_front_matter_finds_its_document_by_the_body_and_dates_it(
    harness: WorkerHarness,
) -> None:
    await harness.add("a.md", NOTE)
    assert await harness.work() == []
    rows = """SELECT c.text, c.embed_text, c.embed_head, c.line_start, c.page, c.tsv::text AS tsv, c.meta, d.title, d.source_modified_at, d.meta->'tags' AS tags
              FROM chunks c JOIN documents d ON d.id = c.doc_id"""
    (row,) = await sql(harness.stack.db, rows)
    assert row["text"] == "# Keepers\n\nThe lamp is lit at dusk."
    assert (row["line_start"], row["page"]) == (7, 1)
    assert (row["title"], row["tags"]) == ("Lamps of the coast", ["fresnel", "oil"])
    assert row["embed_text"] is None, "it is the head and the text, which is not stored twice"
    assert row["embed_head"].startswith("Lamps of the coast\nArgand burner\nfresnel\noil\n\n")
    assert all(f"'{word}'" in row["tsv"] for word in ("argand", "fresnel", "coast", "dusk"))
    written = datetime(2021, 3, 4, 3, 6, 7, tzinfo=UTC)
    assert row["source_modified_at"] == written
    # The same content with a newer file time: the author's date stays.
    await harness.add("a.md", NOTE)
    assert await harness.work() == []
    (again,) = await sql(harness.stack.db, rows)
    assert again["source_modified_at"] == written
    await harness.add("b.md", NOTE.replace(b"lastmod", b"date"))
    assert await harness.work() == []
    dates = await sql(harness.stack.db, "SELECT source_modified_at FROM documents ORDER BY uri")
    assert dates[1]["source_modified_at"] == written  # no time of its own


async def test_adding_unchanged_content_again_embeds_nothing_and_keeps_what_was_parsed(
    harness: WorkerHarness,
) -> None:
    text = b"---\nauthor: Ada\n---\n# Lamps\n\nThe lamp is lit.\n"
    await harness.add("a.md", text, meta={"shelf": 1})
    assert await harness.work() == []
    embedded = harness.embedder.texts
    before = await sql(harness.stack.db, "SELECT meta, live_generation FROM documents")
    assert before[0]["meta"].items() >= {"author": "Ada", "shelf": 1}.items()
    await harness.add("a.md", text, meta={"shelf": 1})
    assert await harness.work() == []
    assert await sql(harness.stack.db, "SELECT meta, live_generation FROM documents") == before
    await harness.add("a.md", text, meta={"shelf": 2})
    assert await harness.work() == []
    (row,) = await sql(harness.stack.db, "SELECT meta FROM documents")
    assert row["meta"].items() >= {"author": "Ada", "shelf": 2}.items()
    assert harness.embedder.texts == embedded


async def test_a_record_that_vanished_from_its_corpus_is_removed_and_the_others_embed_nothing(
    harness: WorkerHarness,
) -> None:
    records = {f"r{n}": f"lamp number {n} is lit" for n in range(6)}
    await harness.add_corpus(records)
    assert await harness.work() == []
    embedded = harness.embedder.texts
    gone = records.pop("r5")
    await harness.add_corpus(records)
    assert await harness.work() == []
    assert gone not in await harness.texts()
    assert sorted(await harness.texts()) == sorted(records.values())
    assert harness.embedder.texts == embedded
    await harness.settle()
    report = await harness.examine()
    assert report.clean, report


async def test_a_deleted_corpus_that_is_added_again_keeps_its_records_when_late_purges_run(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "RECORDS_PER_BATCH", 2)
    records = {f"r{n}": f"lamp number {n} is lit" for n in range(5)}
    doc_id = await harness.add_corpus(records)
    assert await harness.work() == []
    async with harness.stack.db.transaction() as conn:
        deleted = await delete_documents(
            conn, CONTAINER, [doc_id], principal="local:you", lease_seconds=LEASE_SECONDS
        )
    assert deleted is not None
    assert [c for c, _ in deleted.corpora] == [doc_id]
    await harness.add_corpus(records)
    await harness.work(JobKind.CORPUS)
    await harness.settle()
    assert sorted(await harness.texts()) == sorted(records.values())
    assert (await harness.examine()).clean


async def test_lines_that_cannot_be_read_remove_nothing(harness: WorkerHarness) -> None:
    await harness.add_corpus({"r1": "one lamp", "r2": "two lamps", "r3": "three lamps"})
    assert await harness.work() == []
    bad = b'{"_id": "r1", "text": "one lamp"}\n{"_id": "r2", "text": 7}'
    await harness.add("c.jsonl", bad, kind=JobKind.CORPUS)
    assert await harness.work() == []
    assert await harness.texts() == ["one lamp", "two lamps"]
    await harness.add("c.jsonl", b'{"_id": "r1", "text": "one lamp"}\n{"_id', kind=JobKind.CORPUS)
    assert await harness.work() == []
    assert await harness.texts() == ["one lamp", "two lamps"]
    (job,) = await sql(
        harness.stack.db, "SELECT warnings FROM jobs WHERE kind = 'corpus' ORDER BY id DESC LIMIT 1"
    )
    assert "none was removed" in job["warnings"][-1]["message"]


async def test_a_number_of_any_size_in_a_records_meta_is_kept_as_text(
    harness: WorkerHarness,
) -> None:
    line = b'{"_id": "r1", "text": "one lamp", "big": 36893488147419103232, "small": -5}'
    await harness.add("c.jsonl", line, kind=JobKind.CORPUS)
    assert await harness.work() == []
    (row,) = await sql(harness.stack.db, "SELECT meta FROM documents WHERE parent_id IS NOT NULL")
    assert row["meta"] == {"big": "36893488147419103232", "small": -5}


def test_every_cleaned_value_can_be_written_as_json() -> None:
    value = {2**70: [2**63, 2**64, -(2**63) - 1, True], "x": 16**5000}
    cleaned = clean_value(value)
    assert cleaned[str(2**70)] == [2**63, str(2**64), str(-(2**63) - 1), True]
    assert orjson.loads(orjson.dumps(cleaned)) == cleaned


async def test_page_images_are_referred_to_while_the_rest_is_still_drawn(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a collection would take them away from a long render."""
    monkeypatch.setattr(render, "PAGES_PER_BATCH", 2)
    doc_id = await harness.add("log.txt", LINES.encode())
    await harness.work(JobKind.INGEST)
    seen: list[int] = []

    async def note(*given: Any, **more: Any) -> bool:
        live = await noting(*given, **more)
        (row,) = await sql(
            harness.stack.db, "SELECT count(*) AS n FROM blob_refs WHERE role = 'page_image'"
        )
        seen.append(row["n"])
        return live

    noting = render._note
    monkeypatch.setattr(render, "_note", note)
    assert await harness.work(JobKind.RENDER) == []
    assert len(seen) > 2
    assert seen[0] == 2
    rows = await sql(
        harness.stack.db, "SELECT page, image_sha256 FROM pages WHERE doc_id = %(id)s", id=doc_id
    )
    assert len(rows) == seen[-1]
    assert all(row["image_sha256"] for row in rows)
    placed = await sql(harness.stack.db, "SELECT count(*) AS n FROM chunks WHERE page IS NULL")
    assert placed == [{"n": 0}]


async def test_images_drawn_for_a_document_that_was_deleted_meanwhile_are_collected(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(render, "PAGES_PER_BATCH", 2)
    doc_id = await harness.add("log.txt", LINES.encode())
    await harness.work(JobKind.INGEST)
    noting = render._note
    notes = 0

    async def note(*given: Any, **more: Any) -> bool:
        nonlocal notes
        notes += 1
        live = await noting(*given, **more)
        if notes == 1:
            async with harness.stack.db.transaction() as conn:
                await delete_documents(
                    conn, CONTAINER, [doc_id], principal="local:you", lease_seconds=LEASE_SECONDS
                )
        return live

    monkeypatch.setattr(render, "_note", note)
    assert await harness.work(JobKind.RENDER) == []
    assert notes == 2
    assert len(await harness.stored()) > 1
    await harness.settle()
    assert await harness.stored() == set()
    assert (await harness.examine()).clean


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_a_missing_original_fails_the_drawing_of_pages_only_while_the_document_is_live(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    doc_id = await harness.add("a.md", b"# Lamp\n\nParaffin.\n")
    await harness.work(JobKind.INGEST)

    async def missing(*_given: Any) -> AsyncIterator[Any]:
        if is_deleted:
            async with harness.stack.db.transaction() as conn:
                await delete_documents(
                    conn, CONTAINER, [doc_id], principal="local:you", lease_seconds=LEASE_SECONDS
                )
        raise IngestFailed("cannot be read: No such file or directory")
        yield

    monkeypatch.setattr(render, "draw", missing)
    assert len(await harness.work(JobKind.RENDER)) == (0 if is_deleted else 1)


async def test_the_bytes_of_a_file_below_a_root_are_kept_while_it_is_ingested_and_tried_again(
    harness: WorkerHarness,
) -> None:
    (harness.inbox / "a.txt").write_text("the lamp is lit")
    sha256 = hashlib.sha256(b"the lamp is lit").hexdigest()
    await harness.add("a.txt", None)
    harness.embedder.failure = Unavailable("the embedder is away")
    job = await harness.claim()
    assert job is not None
    assert isinstance(await harness.run(job), Unavailable)
    (row,) = await sql(harness.stack.db, "SELECT payload, state FROM jobs WHERE kind = 'ingest'")
    assert (row["payload"]["sha256"], row["state"]) == (sha256, "queued")
    harness.embedder.failure = None
    await harness.settle()
    assert await harness.texts() == ["the lamp is lit"]
    assert await harness.stored() >= {sha256}
    (document,) = await sql(harness.stack.db, "SELECT source_mtime_ns FROM documents")
    assert document["source_mtime_ns"] == (harness.inbox / "a.txt").stat().st_mtime_ns


async def test_a_document_whose_embedder_is_unreachable_waits_with_that_cause_and_is_not_cleaned_up(
    harness: WorkerHarness,
) -> None:
    await harness.add("a.txt", b"the lamp is lit")
    await sql(harness.stack.db, "UPDATE jobs SET max_attempts = 1")
    harness.embedder.failure = ServiceUnreachable("the embedder cannot be reached")
    for _ in range(3):
        await sql(harness.stack.db, "UPDATE jobs SET run_at = now(), waits_for = NULL")
        job = await harness.claim()
        assert job is not None
        assert isinstance(await harness.run(job), ServiceUnreachable)
    (row,) = await sql(harness.stack.db, "SELECT kind, state, attempts, cause FROM jobs")
    assert (row["kind"], row["state"], row["attempts"]) == ("ingest", "queued", 0)
    assert row["cause"]["message"] == "the embedder cannot be reached"
    harness.embedder.failure = None
    await harness.settle()
    assert await harness.texts() == ["the lamp is lit"]


@pytest.mark.parametrize("corpus_job", [False, True])
@pytest.mark.parametrize("live", [False, True])
async def test_attempts_that_fail_after_their_vectors_were_written_do_not_leave_them_all(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch, *, live: bool, corpus_job: bool
) -> None:
    """Of an update of a corpus too, though there only its publication removes them."""

    async def add(text: str) -> None:
        if corpus_job:
            await harness.add_corpus({"r1": text})
        else:
            await harness.add("a.txt", text.encode())

    index = harness.stack.vectors
    (collection,) = await index.collections()
    if live:
        await add("the first lamp is lit")
        assert await harness.work() == []
    before = await index.count(collection)
    await add("the second lamp is lit")
    upsert = index.upsert

    async def unanswered(name: str, points: Points) -> None:
        await upsert(name, points)
        raise ServiceUnreachable("the answer was lost")

    monkeypatch.setattr(index, "upsert", unanswered)
    kind = JobKind.CORPUS if corpus_job else JobKind.INGEST
    for _ in range(4):
        assert len(await harness.work(kind)) == 1
        await sql(harness.stack.db, "UPDATE jobs SET run_at = now(), waits_for = NULL")
        if not (live and corpus_job):
            assert await index.count(collection) == before + 1
    monkeypatch.undo()
    assert await harness.work() == []
    assert await harness.texts() == ["the second lamp is lit"]
    await harness.settle()
    assert await index.count(collection) == 1


@pytest.mark.parametrize("kind", [JobKind.INGEST, JobKind.CORPUS])
async def test_what_a_job_staged_is_purged_when_its_last_attempt_fails(
    harness: WorkerHarness, kind: JobKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = b'{"_id": "r1", "title": "", "text": "the lamp is lit"}'
    await harness.add("c.jsonl" if kind is JobKind.CORPUS else "a.txt", data, kind=kind)
    await sql(harness.stack.db, "UPDATE jobs SET max_attempts = 1")
    job = await harness.claim()
    assert job is not None

    async def refuse(*_: object) -> None:
        raise IngestFailed("the document cannot be published")

    monkeypatch.setattr(publishing, "publish", refuse)
    monkeypatch.setattr(corpus, "publish", refuse)
    assert isinstance(await harness.run(job), IngestFailed)
    monkeypatch.undo()
    assert (
        any(d.kind == "point" for d in (await harness.examine()).containers[CONTAINER].differences)
        is False
    )
    await harness.settle()
    report = await harness.examine()
    assert report.containers[CONTAINER].counts["points"] == 0
    assert report.clean, report


async def test_a_job_that_failed_keeps_its_bytes_until_it_is_forgotten(
    harness: WorkerHarness,
) -> None:
    (harness.inbox / "a.txt").write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 64)
    await harness.add("a.txt", None)
    assert len(await harness.work()) == 1
    await harness.settle()
    assert len(await harness.stored()) == 1
    (again,) = await sql(
        harness.stack.db,
        "SELECT run_at > now() + interval '1 hour' AS late FROM jobs WHERE kind = 'garbage' AND state = 'queued'",
    )
    assert again["late"]
    await sql(harness.stack.db, "DELETE FROM jobs WHERE kind = 'ingest'")
    await harness.settle()
    assert await harness.stored() == set()
    open_jobs = await sql(harness.stack.db, "SELECT kind FROM jobs WHERE state = 'queued'")
    assert open_jobs == []


async def test_a_deleted_container_leaves_no_bytes(harness: WorkerHarness) -> None:
    await harness.add("a.txt", b"the lamp is lit")
    await harness.work()
    assert len(await harness.stored()) > 1
    async with harness.stack.db.transaction() as conn:
        await delete_container(conn, CONTAINER, principal="local:you")
    await harness.settle()
    assert await harness.stored() == set()
    assert (await harness.examine()).clean


async def test_a_collection_comes_back_for_what_is_still_too_young(harness: WorkerHarness) -> None:
    doc_id = await harness.add("a.txt", b"the lamp is lit")
    await harness.work()
    async with harness.stack.db.transaction() as conn:
        await delete_documents(
            conn, CONTAINER, [doc_id], principal="local:you", lease_seconds=LEASE_SECONDS
        )
    await harness.work()
    await sql(
        harness.stack.db, "UPDATE jobs SET run_at = now(), waits_for = NULL WHERE kind = 'garbage'"
    )
    assert await harness.work(JobKind.GARBAGE) == []
    assert len(await harness.stored()) > 1
    await harness.settle()
    assert await harness.stored() == set()


@pytest.mark.parametrize("trouble", ["too large", "gone"])
async def test_a_file_that_cannot_be_copied_leaves_no_copy(
    harness: WorkerHarness, trouble: str
) -> None:
    if trouble == "too large":
        (harness.inbox / "a.txt").write_bytes(b"x" * 1_000_001)
    await harness.add("a.txt", None)
    (error,) = await harness.work()
    assert isinstance(error, TooLarge) is (trouble == "too large")
    assert list(harness.stack.tmp.iterdir()) == []


def install_engine(folder: Path) -> None:
    """A program named tesseract that reads the same two words on every page."""
    head = "level page block paragraph line word left top width height confidence text"
    words = [f"5 1 1 1 1 1 0 0 9 9 95 {word}" for word in ("harbour", "lights")]
    answer = "\n".join(row.replace(" ", "\t") for row in (head, *words))
    program = folder / "tesseract"
    program.write_text(
        f"#!{sys.executable} -IS\nimport sys\n"
        "told = {'--version': 'tesseract 1.0', '--list-langs': 'List:\\neng'}\n"
        f"print(told.get(sys.argv[1], {answer!r}))\n"
        "'--version' in sys.argv or sys.stdin.buffer.read()\n",
        encoding="utf-8",
    )
    program.chmod(0o755)


def picture(form: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (60, 40), 200).save(buffer, form)
    return buffer.getvalue()


def half_scanned() -> bytes:
    """A page of text and a page that is a picture."""
    document = mupdf.load().open()
    document.new_page().insert_text((50, 50), "The keeper wrote this page himself")
    page = document.new_page()
    page.insert_image(page.rect, stream=picture())
    return bytes(document.tobytes())


@pytest.fixture
async def reader(
    harness: WorkerHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Path]:
    """OCR without an engine, until one is put into the folder."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    async with PageReader("tesseract") as found:
        harness.deps = replace(harness.deps, ocr=found)
        yield folder


async def test_an_image_is_one_chunk_of_the_text_it_shows_with_its_thumbnail(
    harness: WorkerHarness, reader: Path
) -> None:
    install_engine(reader)
    await harness.add("sign-7.png", picture())
    assert await harness.work() == []
    (row,) = await sql(
        harness.stack.db, "SELECT text, modality, source_type, page, meta, provenance FROM chunks"
    )
    assert (row["text"], row["modality"], row["source_type"]) == (
        "harbour lights",
        "image",
        "image",
    )
    assert (row["page"], row["meta"]["ocr"]) == (1, True)
    assert row["provenance"]["handler"] == "image parser, tesseract 1.0"
    (page,) = await sql(
        harness.stack.db,
        "SELECT p.text, p.width, r.mime FROM pages p JOIN blob_refs r ON r.role = 'page_image'",
    )
    assert (page["text"], page["width"], page["mime"]) == ("harbour lights", 60, "image/webp")
    embedded = harness.embedder.texts
    await harness.add("sign-7.png", picture())
    assert await harness.work() == []
    assert harness.embedder.texts == embedded
    await harness.settle()
    assert (await harness.examine()).clean


async def test_an_image_that_nobody_could_read_is_found_by_its_name_and_says_what_to_install(
    harness: WorkerHarness, reader: Path
) -> None:
    await harness.add("sign-7.png", picture())
    assert await harness.work() == []
    assert await harness.texts() == ["sign 7"]
    (job,) = await sql(harness.stack.db, "SELECT warnings FROM jobs WHERE kind = 'ingest'")
    assert "tesseract-ocr" in job["warnings"][0]["message"]


async def test_source_code_of_an_older_version_is_read_again_and_other_documents_are_not(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def added() -> dict[str, Any]:
        for name in ("lamp.py", "lamp.md"):
            await harness.add(name, b"wick = 1\n")
        assert await harness.work() == []
        rows = await sql(harness.stack.db, "SELECT source_type, live_generation FROM documents")
        return {row["source_type"]: row["live_generation"] for row in rows}

    monkeypatch.setattr(versions, "CODE", versions.CODE - 1)
    older = await added()
    monkeypatch.undo()
    now = await added()
    assert now["code"] > older["code"]
    assert now["markdown"] == older["markdown"]
    assert await added() == now


async def test_scanned_pages_are_read_when_the_document_is_added_again_with_an_engine(
    harness: WorkerHarness, reader: Path
) -> None:
    live = "SELECT live_generation AS n, recipe FROM documents"
    data = half_scanned()
    for generation in (1, 1):
        await harness.add("log.pdf", data)
        assert await harness.work() == []
        assert await harness.texts() == ["The keeper wrote this page himself"]
        (document,) = await sql(harness.stack.db, live)
        assert document["n"] == generation, "without an engine, again is the same"
    assert document["recipe"].endswith("-unread"), "or a listing would never ask for it again"
    install_engine(reader)
    await harness.add("log.pdf", data)
    assert await harness.work() == []
    assert await harness.texts() == ["The keeper wrote this page himself", "harbour lights"]
    (again,) = await sql(harness.stack.db, live)
    assert again["n"] > document["n"]
    assert document["recipe"] == again["recipe"] + "-unread"
    rows = await sql(
        harness.stack.db,
        "SELECT c.page, c.meta FROM chunks c JOIN documents d ON d.live_generation = c.generation ORDER BY c.chunk_no",
    )
    assert [(row["page"], row["meta"].get("ocr")) for row in rows] == [(1, None), (2, True)]
    await harness.settle()
    assert (await harness.examine()).clean


TURKISH: Final = "Kütüphane her gün saat dokuzda hizmete girer ve üyeler {} kitap ödünç alabilirler, sonra geri verirler."


async def test_the_records_of_a_corpus_decide_about_the_language_of_the_short_ones(
    harness: WorkerHarness,
) -> None:
    records = {f"r{n}": TURKISH.format(n) for n in range(10)}
    await harness.add_corpus({**records, "x": "Q3 2026", "y": "3.14"})
    await harness.work(JobKind.CORPUS)
    rows = await sql(
        harness.stack.db,
        "SELECT DISTINCT language FROM documents WHERE parent_id IS NOT NULL",
    )
    assert [row["language"] for row in rows] == ["turkish"]


async def test_a_short_document_has_the_language_of_its_container_which_is_then_foreign(
    harness: WorkerHarness,
) -> None:
    await harness.add_corpus({f"r{n}": TURKISH.format(n) for n in range(20)})
    await harness.work(JobKind.CORPUS)
    await harness.add("a.md", b"# Q3 2026\n\n7.5 / 8.1\n")
    await harness.add("b.py", b"price = 3\n")
    english = b"The library opens every morning at nine, and visitors may borrow three books."
    await harness.add("c.txt", english)
    await harness.work(JobKind.INGEST)
    rows = await sql(
        harness.stack.db,
        "SELECT title, language FROM documents WHERE parent_id IS NULL AND live_chunks > 0 ORDER BY uri",
    )
    assert [row["language"] for row in rows] == ["turkish", "code", "english"]
    async with harness.stack.db.reading() as conn:
        container = await containers.get(conn, CONTAINER)
    assert container is not None
    local = replace(container, space=replace(container.space, embedder="local"))
    assert is_foreign(local)


async def test_a_password_survives_the_worker_and_not_the_job(harness: WorkerHarness) -> None:
    doc_id = await harness.add("a.pdf", locked_pdf("The heron is quiet."), password=PASSWORD)
    killed = await harness.claim(JobKind.INGEST)
    assert killed is not None
    await expire(harness.stack.db, killed.id)
    await reap(harness.stack.db)
    (waiting,) = await sql(harness.stack.db, "SELECT payload::text AS text FROM jobs")
    assert "gAAAAA" in waiting["text"]
    assert PASSWORD not in waiting["text"]
    assert await harness.work() == []
    assert await harness.texts() == ["The heron is quiet."]
    (page,) = await sql(
        harness.stack.db, f"SELECT image_sha256 FROM pages WHERE doc_id = '{doc_id}'"
    )
    assert page["image_sha256"] is not None
    for row in await sql(harness.stack.db, "SELECT j::text AS text FROM jobs j"):
        assert "gAAAAA" not in row["text"]
    assert list(harness.stack.tmp.iterdir()) == []


async def test_pages_of_a_locked_office_file_are_drawn_while_it_is_open(
    harness: WorkerHarness,
) -> None:
    locked = locked_office(docx(p("The heron is quiet.")))
    await harness.add("a.docx", locked, password=PASSWORD)
    assert await harness.work() == []
    assert await harness.texts() == ["The heron is quiet."]
    drawn = await sql(harness.stack.db, "SELECT image_sha256 FROM pages")
    assert [row["image_sha256"] is not None for row in drawn] == [True]
    assert await sql(harness.stack.db, "SELECT page, page_end FROM chunks") == [
        {"page": 1, "page_end": 1}
    ]
    assert hashlib.sha256(locked).hexdigest() in await harness.stored()


async def test_a_reparse_of_a_locked_file_fails_by_name_and_keeps_what_is_live(
    harness: WorkerHarness,
) -> None:
    doc_id = await harness.add("a.pdf", locked_pdf("The heron is quiet."), password=PASSWORD)
    assert await harness.work() == []
    async with harness.stack.db.transaction() as conn:
        (row,) = await refresh_sources.originals(conn, CONTAINER, after=UUID(int=0), limit=10)
        source = SourceInfo(CONTAINER, row["uri"], row["mime"])
        payload = from_original(row, "recipe")
        await accept(conn, source, payload, kind=JobKind.INGEST, principal="local:you")
    (trouble,) = await harness.work()
    assert "'a.pdf' is encrypted: add it again with its password (--password-file)" in str(trouble)
    assert await harness.texts() == ["The heron is quiet."]
    again = await harness.add("a.pdf", locked_pdf("The heron flew."), password="wrong")
    assert again == doc_id
    (trouble,) = await harness.work()
    assert "the given password does not open it" in str(trouble)
    assert await harness.texts() == ["The heron is quiet."]


async def test_an_archived_container_does_not_keep_passwords(harness: WorkerHarness) -> None:
    await harness.add("a.pdf", locked_pdf("The heron is quiet."), password=PASSWORD)
    await sql(harness.stack.db, "UPDATE containers SET state = 'archived'")
    job = await harness.claim(JobKind.INGEST)
    assert job is not None
    await harness.run(job)
    (waiting,) = await sql(harness.stack.db, "SELECT state, payload::text AS text FROM jobs")
    assert waiting["state"] == "queued"
    assert "sealed_password" not in waiting["text"]
