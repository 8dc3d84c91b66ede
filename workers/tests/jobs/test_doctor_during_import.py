"""Doctor beside an import that merges: what is in motion is neither told nor touched, nor lost by an old report."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from latent_core.db.connection import Database
from latent_core.doctor.context import IN_MOTION
from latent_core.doctor.repair import Repairer
from latent_core.domain.errors import Conflict
from latent_core.domain.findings import ContainerReport, DoctorReport, Remedy, StoreDifference
from latent_core.domain.ids import document_id
from latent_core.domain.job import JobKind
from latent_core.domain.manifest.model import Manifest
from latent_core.ingest import containers as founding
from latent_core.ingest.delete import delete_documents
from latent_core.transfer.requests import ImportPolicy
from latent_workers import maintenance
from latent_workers.transfer import import_steps
from tests.support.harness.transfers import OWNER, begin, delete, export, take_in
from tests.support.harness.worker_harness import (
    CONTAINER,
    DIMS,
    LEASE_SECONDS,
    WorkerHarness,
    open_harness,
)
from tests.support.queue import sql

LAMP: Final = "file:///lamp.md"
GENERATIONS: Final = "SELECT id AS doc_id, next_generation - 1 AS generation FROM documents"


@pytest.fixture
async def harness(database: Database, tmp_path: Path) -> AsyncIterator[WorkerHarness]:
    async with open_harness(database, tmp_path) as one:
        await one.add("lamp.md", b"# Lamp\n\nThe lamp is lit.\n")
        await one.add("lens.md", b"# Lens\n\nThe lens turns.\n")
        assert await one.work() == []
        yield one


async def mend(harness: WorkerHarness, report: DoctorReport) -> list[str]:
    """What became of each difference, when the jobs that were asked for are done."""
    stack = harness.stack
    repairer = Repairer(
        stack.db,
        stack.vectors,
        stack.blobs,
        principal=OWNER,
        lease_seconds=LEASE_SECONDS,
        alone=True,
    )
    done = await repairer.repair(report)
    assert await harness.work(JobKind.PURGE) == []
    return [one.message for one in done]


def report_of(*differences: StoreDifference) -> DoctorReport:
    """A report that somebody has had for a while."""
    return DoctorReport(
        clean=False, containers={CONTAINER: ContainerReport(differences=list(differences))}
    )


async def orphans(harness: WorkerHarness, kind: str) -> DoctorReport:
    found = await sql(harness.stack.db, GENERATIONS)
    return report_of(
        *(
            StoreDifference(kind=kind, object=str(r["doc_id"]), message="", repair=Remedy.DROP, **r)
            for r in found
        )
    )


def after_staging(monkeypatch: pytest.MonkeyPatch, then: Callable[[], Awaitable[None]]) -> None:
    """Between the vectors of an import's step and its commit."""
    stage = import_steps.import_commit.stage

    async def staged(*args: Any) -> None:
        await stage(*args)
        await then()

    monkeypatch.setattr(import_steps.import_commit, "stage", staged)


async def anew(harness: WorkerHarness) -> None:
    """The container, empty: what is merged into it never had a job."""
    await delete(harness, CONTAINER)
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


async def whole(harness: WorkerHarness, chunks: int) -> None:
    """All of the archive is there, with its vectors."""
    await harness.settle()
    report = await harness.examine()
    assert report.clean, report
    counts = report.containers[CONTAINER].counts
    assert (counts["chunks"], counts["points"]) == (chunks, chunks)


async def test_what_a_merge_has_staged_is_no_difference_and_is_not_purged(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, chunks = await export(harness), len(await harness.texts())
    reports: list[DoctorReport] = []

    async def examined() -> None:
        reports.append(await harness.examine())
        await mend(harness, reports[-1])
        assert set(await mend(harness, await orphans(harness, "point"))) == {IN_MOTION}

    after_staging(monkeypatch, examined)
    result = await take_in(harness, data, CONTAINER, merge=True, policy=ImportPolicy.REPLACE)
    assert [report.clean for report in reports] == [True], reports
    assert result["documents"] == 2
    await whole(harness, chunks)


async def test_what_a_merge_has_accepted_is_not_taken_back_while_it_runs(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, chunks = await export(harness), len(await harness.texts())
    await anew(harness)
    reports: list[DoctorReport] = []

    async def examined() -> None:
        reports.append(await harness.examine())
        await mend(harness, reports[-1])
        await mend(harness, await orphans(harness, "document"))

    after_staging(monkeypatch, examined)
    result = await take_in(harness, data, CONTAINER, merge=True)
    assert [report.clean for report in reports] == [True], reports
    assert (result["documents"], result["skipped"], result["overtaken"]) == (2, 0, 0)
    await whole(harness, chunks)


async def test_a_document_deleted_during_a_merge_is_reported_as_overtaken(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = await export(harness)

    async def deleted() -> None:
        async with harness.stack.db.transaction() as conn:
            await delete_documents(
                conn,
                CONTAINER,
                [document_id(CONTAINER, LAMP)],
                principal=OWNER,
                lease_seconds=LEASE_SECONDS,
            )

    after_staging(monkeypatch, deleted)
    result = await take_in(harness, data, CONTAINER, merge=True, policy=ImportPolicy.REPLACE)
    assert (result["documents"], result["skipped"], result["overtaken"]) == (1, 0, 1)
    (job,) = await sql(harness.stack.db, "SELECT warnings FROM jobs WHERE kind = 'import'")
    assert "1 documents of the archive were skipped" in job["warnings"][0]["message"]
    await harness.settle()
    assert (await harness.examine()).clean


async def test_a_document_that_was_added_again_since_the_report_is_not_taken_back(
    harness: WorkerHarness,
) -> None:
    await harness.add("new.md", b"# New\n\nThe new horn.\n")
    await sql(harness.stack.db, "DELETE FROM jobs WHERE kind = 'ingest' AND state = 'queued'")
    report = await harness.examine()
    assert [d.repair for d in report.containers[CONTAINER].differences] == [Remedy.DROP]
    await harness.add("new.md", b"# New\n\nThe new horn.\n")
    await mend(harness, report)
    assert await harness.work() == []
    assert any("horn" in text for text in await harness.texts())


async def test_a_new_version_that_is_queued_is_not_replaced_by_a_repair_from_the_old_original(
    harness: WorkerHarness,
) -> None:
    await sql(harness.stack.db, "DELETE FROM chunks WHERE strpos(text, 'lens') > 0")
    report = await harness.examine()
    assert Remedy.REINGEST in {d.repair for d in report.containers[CONTAINER].differences}
    await harness.add("lens.md", b"# Lens\n\nThe lens is cracked.\n")
    assert IN_MOTION in await mend(harness, report)
    assert await harness.work() == []
    assert any("cracked" in text for text in await harness.texts())
    await harness.settle()
    assert (await harness.examine()).clean


@pytest.mark.parametrize("killed", [False, True])
async def test_a_merge_that_is_given_up_takes_back_what_it_has_accepted(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    data = await export(harness)
    async with harness.stack.db.transaction() as conn:
        await delete_documents(
            conn,
            CONTAINER,
            [document_id(CONTAINER, LAMP)],
            principal=OWNER,
            lease_seconds=LEASE_SECONDS,
        )
    await harness.settle()

    async def ended() -> None:
        raise Killed if killed else Conflict("the test ends it")

    after_staging(monkeypatch, ended)
    await begin(harness, data, CONTAINER, merge=True, policy=ImportPolicy.REPLACE)
    if killed:
        job = await harness.claim(JobKind.IMPORT)
        assert job is not None
        with pytest.raises(Killed):
            await harness.run(job)
        await sql(harness.stack.db, f"UPDATE jobs SET state = 'cancelled' WHERE id = {job.id}")
        await maintenance.look(harness.deps.settings, harness.stack)
    else:
        (trouble,) = await harness.work(JobKind.IMPORT)
        assert "the test ends it" in str(trouble)
    (lamp,) = await sql(
        harness.stack.db, f"SELECT deleted_at, live_generation FROM documents WHERE uri = '{LAMP}'"
    )
    assert lamp["deleted_at"] is not None, "it was deleted before the merge, and is again"
    assert [text.split()[-1] for text in await harness.texts()] == ["turns."]
    await harness.settle()
    report = await harness.examine()
    assert report.clean, report
    assert report.containers[CONTAINER].counts["pending_documents"] == 0


async def test_documents_left_waiting_by_an_ended_merge_are_reported(
    harness: WorkerHarness,
) -> None:
    await sql(
        harness.stack.db,
        "UPDATE documents SET live_generation = NULL, sha256 = NULL, floor_generation = next_generation",
    )
    differences = (await harness.examine()).containers[CONTAINER].differences
    assert {d.repair for d in differences if d.kind == "document"} == {Remedy.DROP}


class Killed(BaseException):
    """As ``kill -9`` ends an attempt: nothing is cleaned up."""


async def test_a_generation_that_was_purged_never_becomes_live_and_the_next_one_does(
    harness: WorkerHarness,
) -> None:
    doc_id = document_id(CONTAINER, LAMP)
    stray = StoreDifference(
        kind="point", object="p", message="", repair=Remedy.DROP, doc_id=doc_id, generation=10**6
    )
    await mend(harness, report_of(stray))
    await harness.add("lamp.md", b"# Lamp\n\nThe lamp is out.\n")
    assert await harness.work() == []
    assert any("out" in text for text in await harness.texts())
