"""What a deletion's job tells: all that went, of records and across crashes, and where it may still be."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest

from latent_core.db.connection import Database
from latent_core.doctor.repair import Repairer
from latent_core.domain.findings import Remedy
from latent_core.domain.ids import Sha256
from latent_core.domain.job import JobKind
from latent_core.ingest import purge as purging
from latent_core.ingest.delete import (
    DeletionResult,
    delete_container,
    delete_documents,
    delete_records,
)
from latent_core.transfer.requests import ExportPayload, request_export
from latent_workers.jobs import purge as purge_job
from tests.support.harness.transfers import OWNER, export
from tests.support.harness.worker_harness import (
    CONTAINER,
    LEASE_SECONDS,
    TIME_PASSES,
    WorkerHarness,
    open_harness,
)
from tests.support.queue import sql

RECORDS: Final = 30
QUEUED_AGAIN: Final = "UPDATE jobs SET state = 'queued', claim_id = NULL WHERE state = 'running'"


@pytest.fixture
async def harness(database: Database, tmp_path: Path) -> AsyncIterator[WorkerHarness]:
    async with open_harness(database, tmp_path) as one:
        yield one


async def deleted(harness: WorkerHarness, doc_ids: Sequence[UUID]) -> DeletionResult:
    """As the gateway does it."""
    async with harness.stack.db.transaction() as conn:
        found = await delete_documents(
            conn, CONTAINER, doc_ids, principal=OWNER, lease_seconds=LEASE_SECONDS
        )
    assert found is not None
    await delete_records(
        harness.stack.db,
        CONTAINER,
        found.corpora,
        principal=OWNER,
        lease_seconds=LEASE_SECONDS,
        of=found.job_id,
    )
    return found


async def job(harness: WorkerHarness, job_id: int) -> dict[str, Any]:
    (found,) = await sql(
        harness.stack.db, f"SELECT state, result, warnings FROM jobs WHERE id = {job_id}"
    )
    return dict(found)


class Killed(BaseException):
    """As ``kill -9`` ends an attempt: nothing is cleaned up."""


def killer(point: str) -> Callable[[str], None]:
    def at(name: str) -> None:
        if name == point:
            raise Killed

    return at


async def test_the_job_of_a_deleted_corpus_ends_last_and_tells_of_all_its_records(
    harness: WorkerHarness,
) -> None:
    corpus = await harness.add_corpus({f"r{n}": f"record {n} of the gulls" for n in range(RECORDS)})
    assert await harness.work() == []
    counts = (await harness.examine()).containers[CONTAINER].counts
    assert (counts["chunks"], counts["points"]) == (RECORDS, RECORDS)
    answered = (await deleted(harness, [corpus])).job_id
    assert await harness.work() == []
    assert (await job(harness, answered))["state"] == "queued", "it waits for those of the records"
    await harness.settle()
    finished = await job(harness, answered)
    assert finished["state"] == "done"
    assert (finished["result"]["chunks"], finished["result"]["points"]) == (RECORDS, RECORDS)
    assert finished["result"]["postings"] > RECORDS
    assert len(finished["result"]["record_jobs"]) == 1
    await harness.settle()
    report = await harness.examine()
    assert report.clean, report


async def test_a_purge_of_records_that_fails_is_named_by_the_deletion(
    harness: WorkerHarness,
) -> None:
    corpus = await harness.add_corpus({"r1": "gulls"})
    assert await harness.work() == []
    answered = (await deleted(harness, [corpus])).job_id
    await sql(
        harness.stack.db,
        "UPDATE jobs SET state = 'failed' WHERE kind = 'purge' AND payload ->> 'of' IS NOT NULL",
    )
    assert await harness.work() == []
    finished = await job(harness, answered)
    assert finished["state"] == "done"
    assert "latent jobs requeue" in finished["warnings"][0]["message"]


async def test_a_purge_that_was_killed_tells_what_its_first_attempt_removed(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    doc_id = await harness.add("lamp.md", b"# Lamp\n\nThe lamp.\n\n## Lens\n\nThe lens.\n")
    assert await harness.work() == []
    points = (await harness.examine()).containers[CONTAINER].counts["points"]
    answered = (await deleted(harness, [doc_id])).job_id
    claimed = await harness.claim(JobKind.PURGE)
    assert claimed is not None
    with monkeypatch.context() as patch:
        patch.setattr(purge_job, "failpoint", killer("purge.after_points"))
        with pytest.raises(Killed):
            await harness.run(claimed)
    await sql(harness.stack.db, QUEUED_AGAIN)
    assert await harness.work() == []
    assert points > 0
    assert (await job(harness, answered))["result"]["points"] == points


async def test_the_deletion_of_a_container_that_was_killed_tells_all_that_was_there(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.add("lamp.md", b"# Lamp\n\nThe lamp.\n")
    assert await harness.work() == []
    async with harness.stack.db.transaction() as conn:
        answered = await delete_container(conn, CONTAINER, principal=OWNER)
    claimed = await harness.claim(JobKind.DELETE_CONTAINER)
    assert claimed is not None
    with monkeypatch.context() as patch:
        patch.setattr(purging, "failpoint", killer("drop.after_rows"))
        with pytest.raises(Killed):
            await harness.run(claimed)
    await sql(harness.stack.db, QUEUED_AGAIN)
    assert await harness.work() == []
    result = (await job(harness, answered or 0))["result"]
    assert (result["documents"], result["chunks"], result["points"]) == (1, 1, 1)
    assert result["blob_refs"] > 0


async def test_the_archives_that_may_still_hold_a_deleted_document_are_named(
    harness: WorkerHarness,
) -> None:
    first = await harness.add("lamp.md", b"# Lamp\n\nThe lamp.\n")
    assert await harness.work() == []
    await export(harness)
    second = await harness.add("lens.md", b"# Lens\n\nThe lens.\n")
    assert await harness.work() == []
    async with harness.stack.db.transaction() as conn:
        await request_export(conn, CONTAINER, ExportPayload(kept=True), principal=OWNER)
    assert await harness.work() == []
    for doc_id, kinds in ((first, ["backup", "export"]), (second, ["backup"])):
        answered = (await deleted(harness, [doc_id])).job_id
        assert await harness.work() == []
        finished = await job(harness, answered)
        kept = finished["result"]["archives_kept"]
        assert [name.split()[0] for name in kept] == kinds
        assert all(name in finished["warnings"][0]["message"] for name in kept)


async def test_pages_and_references_of_a_deleted_document_are_listed_and_removed_with_their_bytes(
    harness: WorkerHarness,
) -> None:
    stack = harness.stack
    doc_id = await harness.add("lamp.md", b"# Lamp\n\nThe lamp.\n")
    assert await harness.work() == []
    kept = [
        (table, await sql(stack.db, f"SELECT * FROM {table}")) for table in ("pages", "blob_refs")
    ]
    blobs = await harness.stored()
    assert all(found for _, found in kept)
    await deleted(harness, [doc_id])
    assert await harness.work() == []
    await sql(stack.db, "DELETE FROM jobs WHERE kind = 'purge'")
    for table, found in kept:  # as if the purge had not seen them
        for row in found:
            names, values = ", ".join(row), ", ".join(f"%({name})s" for name in row)
            await sql(stack.db, f"INSERT INTO {table} ({names}) VALUES ({values})", **row)
    await harness.settle()
    assert await harness.stored() == blobs, "what is referred to is kept"
    report = await harness.examine()
    (difference,) = report.containers[CONTAINER].differences
    assert (difference.kind, difference.repair) == ("row", Remedy.DROP)
    done = await Repairer(
        stack.db, stack.vectors, stack.blobs, principal=OWNER, lease_seconds=LEASE_SECONDS
    ).repair(report)
    assert [one.done for one in done] == [True]
    await harness.settle()
    await sql(stack.db, TIME_PASSES)
    await harness.settle()
    assert (await harness.examine()).clean
    assert not await stack.blobs.own.size(Sha256(sorted(blobs)[0]))
