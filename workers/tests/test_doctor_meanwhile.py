"""Doctor beside an import that merges: what is in motion is neither told nor touched, nor lost by an old report."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from latent_core.doctor.context import IN_MOTION
from latent_core.doctor.repair import Repairer
from latent_core.domain.errors import Conflict
from latent_core.domain.findings import ContainerReport, Difference, DoctorReport, Remedy
from latent_core.domain.ids import document_id
from latent_core.domain.job import JobKind
from latent_core.domain.manifest import Manifest
from latent_core.ingest import containers as founding
from latent_core.ingest.delete import delete_documents
from latent_core.registry.connection import Database
from latent_core.testing.queue import sql
from latent_core.transfer.requests import Policy
from latent_workers import tidy
from latent_workers.testing.house import CONTAINER, DIMS, LEASE_SECONDS, House, open_house
from latent_workers.testing.transfers import OWNER, begin, delete, export, take_in
from latent_workers.transfer import import_steps

LAMP: Final = "file:///lamp.md"
GENERATIONS: Final = "SELECT id AS doc_id, next_generation - 1 AS generation FROM documents"


@pytest.fixture
async def house(database: Database, tmp_path: Path) -> AsyncIterator[House]:
    async with open_house(database, tmp_path) as one:
        await one.add("lamp.md", b"# Lamp\n\nThe lamp is lit.\n")
        await one.add("lens.md", b"# Lens\n\nThe lens turns.\n")
        assert await one.work() == []
        yield one


async def mend(house: House, report: DoctorReport) -> list[str]:
    """What became of each difference, when the jobs that were asked for are done."""
    stack = house.stack
    repairer = Repairer(
        stack.db,
        stack.vectors,
        stack.blobs,
        principal=OWNER,
        lease_seconds=LEASE_SECONDS,
        alone=True,
    )
    done = await repairer.repair(report)
    assert await house.work(JobKind.PURGE) == []
    return [one.message for one in done]


def told(*differences: Difference) -> DoctorReport:
    """A report that somebody has had for a while."""
    return DoctorReport(
        clean=False, containers={CONTAINER: ContainerReport(differences=list(differences))}
    )


async def orphans(house: House, kind: str) -> DoctorReport:
    found = await sql(house.stack.db, GENERATIONS)
    return told(
        *(
            Difference(kind=kind, object=str(r["doc_id"]), message="", repair=Remedy.DROP, **r)
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


async def anew(house: House) -> None:
    """The container, empty: what is merged into it never had a job."""
    await delete(house, CONTAINER)
    manifest = Manifest(id=CONTAINER, name="Notes", embedder="openai/test", dims=DIMS)
    stack = house.stack
    await founding.create(
        stack.db, stack.vectors, house.embedder, manifest, principal=OWNER, request_id=None
    )


async def whole(house: House, chunks: int) -> None:
    """All of the archive is there, with its vectors."""
    await house.settle()
    report = await house.examine()
    assert report.clean, report
    counts = report.containers[CONTAINER].counts
    assert (counts["chunks"], counts["points"]) == (chunks, chunks)


async def test_what_a_merge_has_staged_is_no_difference_and_is_not_purged(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, chunks = await export(house), len(await house.texts())
    reports: list[DoctorReport] = []

    async def examined() -> None:
        reports.append(await house.examine())
        await mend(house, reports[-1])
        assert set(await mend(house, await orphans(house, "point"))) == {IN_MOTION}

    after_staging(monkeypatch, examined)
    result = await take_in(house, data, CONTAINER, merge=True, policy=Policy.REPLACE)
    assert [report.clean for report in reports] == [True], reports
    assert result["documents"] == 2
    await whole(house, chunks)


async def test_what_a_merge_has_accepted_is_not_taken_back_while_it_runs(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, chunks = await export(house), len(await house.texts())
    await anew(house)
    reports: list[DoctorReport] = []

    async def examined() -> None:
        reports.append(await house.examine())
        await mend(house, reports[-1])
        await mend(house, await orphans(house, "document"))

    after_staging(monkeypatch, examined)
    result = await take_in(house, data, CONTAINER, merge=True)
    assert [report.clean for report in reports] == [True], reports
    assert (result["documents"], result["skipped"], result["overtaken"]) == (2, 0, 0)
    await whole(house, chunks)


async def test_a_document_that_is_deleted_under_a_merge_is_told_as_overtaken(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = await export(house)

    async def deleted() -> None:
        async with house.stack.db.transaction() as conn:
            await delete_documents(
                conn,
                CONTAINER,
                [document_id(CONTAINER, LAMP)],
                principal=OWNER,
                lease_seconds=LEASE_SECONDS,
            )

    after_staging(monkeypatch, deleted)
    result = await take_in(house, data, CONTAINER, merge=True, policy=Policy.REPLACE)
    assert (result["documents"], result["skipped"], result["overtaken"]) == (1, 0, 1)
    (job,) = await sql(house.stack.db, "SELECT warnings FROM jobs WHERE kind = 'import'")
    assert "1 documents of the archive were not taken in" in job["warnings"][0]["message"]
    await house.settle()
    assert (await house.examine()).clean


async def test_a_document_that_was_added_again_since_the_report_is_not_taken_back(
    house: House,
) -> None:
    await house.add("new.md", b"# New\n\nThe new horn.\n")
    await sql(house.stack.db, "DELETE FROM jobs WHERE kind = 'ingest' AND state = 'queued'")
    report = await house.examine()
    assert [d.repair for d in report.containers[CONTAINER].differences] == [Remedy.DROP]
    await house.add("new.md", b"# New\n\nThe new horn.\n")
    await mend(house, report)
    assert await house.work() == []
    assert any("horn" in text for text in await house.texts())


async def test_a_new_version_that_is_queued_is_not_replaced_by_a_repair_from_the_old_original(
    house: House,
) -> None:
    await sql(house.stack.db, "DELETE FROM chunks WHERE strpos(text, 'lens') > 0")
    report = await house.examine()
    assert Remedy.REINGEST in {d.repair for d in report.containers[CONTAINER].differences}
    await house.add("lens.md", b"# Lens\n\nThe lens is cracked.\n")
    assert IN_MOTION in await mend(house, report)
    assert await house.work() == []
    assert any("cracked" in text for text in await house.texts())
    await house.settle()
    assert (await house.examine()).clean


@pytest.mark.parametrize("killed", [False, True])
async def test_a_merge_that_is_given_up_takes_back_what_it_has_accepted(
    house: House, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    data = await export(house)
    async with house.stack.db.transaction() as conn:
        await delete_documents(
            conn,
            CONTAINER,
            [document_id(CONTAINER, LAMP)],
            principal=OWNER,
            lease_seconds=LEASE_SECONDS,
        )
    await house.settle()

    async def ended() -> None:
        raise Killed if killed else Conflict("the test ends it")

    after_staging(monkeypatch, ended)
    await begin(house, data, CONTAINER, merge=True, policy=Policy.REPLACE)
    if killed:
        job = await house.claim(JobKind.IMPORT)
        assert job is not None
        with pytest.raises(Killed):
            await house.run(job)
        await sql(house.stack.db, f"UPDATE jobs SET state = 'cancelled' WHERE id = {job.id}")
        await tidy.look(house.deps.settings, house.stack)
    else:
        (trouble,) = await house.work(JobKind.IMPORT)
        assert "the test ends it" in str(trouble)
    (lamp,) = await sql(
        house.stack.db, f"SELECT deleted_at, live_generation FROM documents WHERE uri = '{LAMP}'"
    )
    assert lamp["deleted_at"] is not None, "it was deleted before the merge, and is again"
    assert [text.split()[-1] for text in await house.texts()] == ["turns."]
    await house.settle()
    report = await house.examine()
    assert report.clean, report
    assert report.containers[CONTAINER].counts["pending_documents"] == 0


async def test_what_waits_since_a_merge_ended_is_told_though_it_once_had_jobs(house: House) -> None:
    await sql(
        house.stack.db,
        "UPDATE documents SET live_generation = NULL, sha256 = NULL, floor_generation = next_generation",
    )
    differences = (await house.examine()).containers[CONTAINER].differences
    assert {d.repair for d in differences if d.kind == "document"} == {Remedy.DROP}


class Killed(BaseException):
    """As ``kill -9`` ends an attempt: nothing is cleaned up."""


async def test_a_generation_that_was_purged_never_becomes_live_and_the_next_one_does(
    house: House,
) -> None:
    doc_id = document_id(CONTAINER, LAMP)
    stray = Difference(
        kind="point", object="p", message="", repair=Remedy.DROP, doc_id=doc_id, generation=10**6
    )
    await mend(house, told(stray))
    await house.add("lamp.md", b"# Lamp\n\nThe lamp is out.\n")
    assert await house.work() == []
    assert any("out" in text for text in await house.texts())
