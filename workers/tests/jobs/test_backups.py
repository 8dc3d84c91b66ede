"""Backups, deletions and documents whose time is over: what is kept, restored and taken away, and when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from latent_core.db import containers, schedules
from latent_core.db.connection import Database
from latent_core.db.schedules import BackupSummary
from latent_core.db.transfer import archives
from latent_core.domain.errors import Conflict
from latent_core.domain.ids import Sha256
from latent_core.domain.job import ArchiveKind, JobKind
from latent_core.domain.manifest.model import Ingest, Manifest
from latent_core.ingest.containers import etag
from latent_core.ingest.delete import delete_container, enqueue_removal
from latent_core.queue.errors import LeaseLost
from latent_core.queue.reaper import reap
from latent_core.transfer.requests import ExportPayload, request_export
from latent_workers import scheduler
from tests.support.harness.transfers import (
    DOCUMENTS,
    OWNER,
    begin,
    delete,
    everything,
    export,
    fill,
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
from tests.support.queue import expire, sql

HOUR: Final = 3600.0
DAY: Final = 24 * HOUR
KEPT_RUN: Final = """
INSERT INTO eval_runs (container_id, dataset, setup, figures, passed, principal)
VALUES (%(container_id)s, 'golden', %(setup)s, '{}', true, 'local:you')
"""


@pytest.fixture
async def harness(database: Database, tmp_path: Path) -> AsyncIterator[WorkerHarness]:
    async with open_harness(database, tmp_path) as one:
        yield one


async def test_backups_are_kept_by_number_verified_and_restored(harness: WorkerHarness) -> None:
    manifest = Manifest(
        id=CONTAINER, name="Notes", embedder="openai/test", dims=DIMS, backup={"keep": 2}
    )
    await sql(
        harness.stack.db,
        f"UPDATE containers SET manifest = '{manifest.model_dump_json()}', etag = 'kept'",
    )
    await fill(harness)
    before = await everything(harness, CONTAINER)
    for _ in range(3):
        async with harness.stack.db.transaction() as conn:
            await request_export(conn, CONTAINER, ExportPayload(kept=True), principal=OWNER)
        assert await harness.work(JobKind.EXPORT) == []
    async with harness.stack.db.transaction() as conn:
        kept = await archives.listed(conn, ArchiveKind.BACKUP, [CONTAINER], 10)
        assert len(kept) == 2
        await request_export(
            conn, CONTAINER, ExportPayload(kept=True, verify=kept[0].id), principal=OWNER
        )
    assert await harness.work(JobKind.EXPORT) == []
    await delete(harness, CONTAINER)
    await harness.settle()
    async with harness.stack.db.transaction() as conn:
        (newest, _) = await archives.listed(conn, ArchiveKind.BACKUP, [CONTAINER], 10)
        assert newest.verified_at is not None
    data = await harness.stack.blobs.own.get(Sha256(newest.sha256))  # outlived its container
    await take_in(harness, data, CONTAINER)
    assert await everything(harness, CONTAINER) == before


async def test_a_container_is_restored_only_when_its_deletion_has_ended(
    harness: WorkerHarness,
) -> None:
    await fill(harness)
    before = await everything(harness, CONTAINER)
    data = await export(harness)
    async with harness.stack.db.transaction() as conn:
        await delete_container(conn, CONTAINER, principal=OWNER)
    await begin(harness, data, CONTAINER)
    (refused,) = await harness.work(JobKind.IMPORT)
    assert isinstance(refused, Conflict)
    assert "still being deleted. Try again when its job has finished" in refused.message
    await harness.settle()
    await take_in(harness, data, CONTAINER)
    assert await everything(harness, CONTAINER) == before
    assert (await harness.examine()).clean


async def test_a_deletion_that_was_frozen_takes_nothing_of_what_was_restored_meanwhile(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(harness)
    before = await everything(harness, CONTAINER)
    data = await export(harness)
    async with harness.stack.db.transaction() as conn:
        await delete_container(conn, CONTAINER, principal=OWNER)
    frozen = await harness.claim(JobKind.DELETE_CONTAINER)
    assert frozen is not None
    drop = harness.stack.vectors.drop_collection

    async def meanwhile(name: str) -> None:
        monkeypatch.undo()
        await drop(name)
        await expire(harness.stack.db, frozen.id)
        await reap(harness.stack.db)
        assert await harness.work(JobKind.DELETE_CONTAINER) == []
        await take_in(harness, data, CONTAINER)

    monkeypatch.setattr(harness.stack.vectors, "drop_collection", meanwhile)
    with pytest.raises(LeaseLost):
        await harness.run(frozen)
    await harness.settle()
    assert await everything(harness, CONTAINER) == before
    assert (await harness.examine()).clean


async def test_a_deletion_of_what_is_there_again_removes_nothing(harness: WorkerHarness) -> None:
    await fill(harness)
    before = await everything(harness, CONTAINER)
    async with harness.stack.db.transaction() as conn:
        await enqueue_removal(conn, CONTAINER, principal=OWNER)
    (refused,) = await harness.work(JobKind.DELETE_CONTAINER)
    assert isinstance(refused, Conflict)
    assert await everything(harness, CONTAINER) == before


async def test_a_merge_into_a_container_that_is_deleted_meanwhile_leaves_nothing(
    harness: WorkerHarness,
) -> None:
    await fill(harness)
    data = await export(harness)
    await begin(harness, data, CONTAINER, merge=True)
    await delete(harness, CONTAINER)
    assert await harness.work() == []
    assert await rows(harness, DOCUMENTS, CONTAINER) == []
    assert (await harness.examine()).clean


async def test_a_damaged_backup_fails_its_verification(harness: WorkerHarness) -> None:
    async with harness.stack.db.transaction() as conn:
        await request_export(conn, CONTAINER, ExportPayload(kept=True), principal=OWNER)
    assert await harness.work(JobKind.EXPORT) == []
    async with harness.stack.db.transaction() as conn:
        (one,) = await archives.listed(conn, ArchiveKind.BACKUP, [CONTAINER], 10)
        await request_export(
            conn, CONTAINER, ExportPayload(kept=True, verify=one.id), principal=OWNER
        )
    path = await harness.stack.blobs.own.local_copy(Sha256(one.sha256))
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-9])
    (trouble,) = await harness.work(JobKind.EXPORT)
    assert "truncated" in str(trouble)


async def test_what_came_due_is_enqueued_once_by_all_that_look_and_once_for_all_that_was_missed(
    harness: WorkerHarness,
) -> None:
    db = harness.stack.db
    await sql(
        db,
        "UPDATE containers SET manifest = jsonb_set(manifest, '{backup,cron}', '\"0 3 * * *\"'), etag = 'cron'",
    )

    async def look() -> int:
        async def one() -> int:
            async with db.transaction() as conn:
                return await scheduler.schedule_backups(conn)

        return sum(await asyncio.gather(*(one() for _ in range(4))))

    assert await look() == 0  # it begins now: nothing was missed before
    assert await look() == 0
    await sql(db, "UPDATE schedules SET last_at = last_at - interval '9 days'")
    assert await look() == 1
    assert await look() == 0
    (count,) = await sql(db, "SELECT count(*) AS jobs FROM jobs WHERE kind = 'export'")
    assert count["jobs"] == 1


async def test_the_summary_of_backups_shows_what_failed_and_what_is_overdue(
    harness: WorkerHarness,
) -> None:
    db = harness.stack.db

    async def summary() -> BackupSummary:
        async with db.reading() as conn:
            return await schedules.backups(conn)

    async def look() -> None:
        async with db.transaction() as conn:
            await scheduler.schedule_backups(conn)

    assert await summary() == BackupSummary(0, 0, 0.0, 0.0)
    await sql(
        db,
        "UPDATE containers SET manifest = jsonb_set(manifest, '{backup,cron}', '\"0 3 * * *\"'), etag = 'cron'",
    )
    await look()
    assert await summary() == BackupSummary(1, 0, 0.0, 0.0)

    await sql(db, "UPDATE schedules SET last_at = last_at - interval '9 days'")
    never_enqueued = await summary()
    assert 8 * DAY <= never_enqueued.overdue_seconds <= 9 * DAY, "from the first one missed"
    await look()
    await sql(db, "UPDATE jobs SET created_at = created_at - interval '3 hours'")
    assert (await summary()).overdue_seconds == pytest.approx(3 * HOUR, abs=60)

    await harness.work(JobKind.EXPORT)
    made = await summary()
    assert (made.scheduled, made.failed, made.overdue_seconds) == (1, 0, 0.0)
    assert made.oldest_success > 0

    for payload, failed in ((ExportPayload(kept=True, verify=1), 0), (ExportPayload(kept=True), 1)):
        async with db.transaction() as conn:
            await request_export(conn, CONTAINER, payload, principal="local:you")
        await sql(
            db,
            "UPDATE jobs SET state = 'failed', finished_at = clock_timestamp() WHERE state = 'queued'",
        )
        assert (await summary()).failed == failed
    async with db.transaction() as conn:
        await request_export(conn, CONTAINER, ExportPayload(kept=True), principal="local:you")
    await harness.work(JobKind.EXPORT)
    assert (await summary()).failed == 0, "a newer one was made"


async def test_documents_whose_time_is_over_are_deleted_and_those_found_unchanged_stay(
    harness: WorkerHarness,
) -> None:
    db = harness.stack.db
    await harness.add("old.md", b"# Old\n\nThe old lamp.\n")
    await harness.add("kept.md", b"# Kept\n\nThe lens.\n")
    await harness.add_corpus({"r1": "gulls", "r2": "terns"})
    assert await harness.work() == []
    async with db.transaction() as conn:
        found = await containers.get(conn, CONTAINER)
        assert found is not None
        brief = found.manifest.model_copy(update={"ingest": Ingest(ttl_days=7)})
        assert await containers.update_manifest(conn, brief, etag(brief), found.etag)
    await sql(db, "UPDATE documents SET fetched_at = now() - interval '8 days'")
    await harness.add("kept.md", b"# Kept\n\nThe lens.\n")
    assert await harness.work() == []
    assert await scheduler.delete_expired(db, lease_seconds=LEASE_SECONDS) == 2
    await harness.settle()
    assert [r["uri"] for r in await rows(harness, DOCUMENTS, CONTAINER)] == ["file:///kept.md"]
    assert await scheduler.delete_expired(db, lease_seconds=LEASE_SECONDS) == 0
    assert (await harness.examine()).clean


async def test_a_document_whose_new_version_is_queued_is_not_over(harness: WorkerHarness) -> None:
    db = harness.stack.db
    await harness.add("old.md", b"# Old\n\nThe old lamp.\n")
    assert await harness.work() == []
    await sql(
        db,
        "UPDATE containers SET manifest = jsonb_set(manifest, '{ingest,ttl_days}', '7'), etag = 'ttl'",
    )
    await sql(db, "UPDATE documents SET fetched_at = now() - interval '8 days'")
    await harness.add("old.md", b"# Old\n\nThe new lamp.\n")
    assert await scheduler.delete_expired(db, lease_seconds=LEASE_SECONDS) == 0
    assert await harness.work() == []
    assert [text.split()[-2] for text in await harness.texts()] == ["new"]


async def test_a_document_of_an_archived_container_waits_until_it_is_active_again(
    harness: WorkerHarness,
) -> None:
    async def state(value: str) -> None:
        await sql(harness.stack.db, f"UPDATE containers SET state = '{value}'")
        await sql(harness.stack.db, "UPDATE jobs SET run_at = now(), waits_for = NULL")

    await harness.add("a.md", b"# A\n\nThe lamp.\n")
    await harness.add_corpus({"r1": "gulls"})
    for _ in range(7):  # more often than a job is tried
        await state("archived")
        assert await harness.work() == []
    assert await harness.texts() == []
    await state("readonly")
    assert await harness.work() == []
    assert len(await harness.texts()) == 2


async def test_the_proof_of_a_deletion_names_the_archives_that_still_hold_the_content(
    harness: WorkerHarness,
) -> None:
    await harness.add("a.md", b"# A\n\nThe lamp.\n")
    assert await harness.work() == []
    await export(harness)
    async with harness.stack.db.transaction() as conn:
        await request_export(conn, CONTAINER, ExportPayload(kept=True), principal=OWNER)
    assert await harness.work(JobKind.EXPORT) == []
    for setup in ("hybrid", "lexical"):
        await sql(harness.stack.db, KEPT_RUN, container_id=CONTAINER, setup=setup)
    await delete(harness, CONTAINER)
    (job,) = await sql(
        harness.stack.db, "SELECT result, warnings FROM jobs WHERE kind = 'delete_container'"
    )
    kept = job["result"]["archives_kept"]
    assert [name.split()[0] for name in kept] == ["backup", "export"]
    assert all(name in job["warnings"][0]["message"] for name in kept)
    assert job["result"]["eval_runs"] == 2
    assert await sql(harness.stack.db, "SELECT 1 FROM eval_runs") == []
