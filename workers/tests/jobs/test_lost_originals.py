"""Originals that are missing or damaged: the rest is saved all the same, and who adds them again brings them back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest

from latent_core.db import containers
from latent_core.db.connection import Database
from latent_core.db.documents import folder_listings
from latent_core.db.transfer import archives
from latent_core.doctor.repair import Repairer
from latent_core.domain.errors import DamagedBlob
from latent_core.domain.ids import Sha256
from latent_core.domain.job import ArchiveKind, JobKind
from latent_core.transfer.requests import ExportPayload, request_export
from tests.support.harness.transfers import OWNER, delete, export, take_in
from tests.support.harness.worker_harness import CONTAINER, WorkerHarness, open_harness
from tests.support.queue import sql

LAMP: Final = b"# Lamp\n\nThe lamp burns colza oil.\n"


@pytest.fixture
async def harness(database: Database, tmp_path: Path) -> AsyncIterator[WorkerHarness]:
    async with open_harness(database, tmp_path) as one:
        await one.add("horn.md", b"# Horn\n\nThe horn sounds twice.\n")
        yield one


async def original_of(harness: WorkerHarness, doc_id: UUID) -> Sha256:
    (row,) = await sql(
        harness.stack.db,
        f"SELECT sha256 FROM blob_refs WHERE doc_id = '{doc_id}' AND role = 'original'",
    )
    return Sha256(row["sha256"])


async def lose(harness: WorkerHarness, sha256: Sha256) -> None:
    await harness.stack.blobs.own.delete(sha256)


async def damage(harness: WorkerHarness, sha256: Sha256) -> None:
    path = await harness.stack.blobs.own.local_copy(sha256)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


async def damage_on_a_server(harness: WorkerHarness, sha256: Sha256) -> None:
    """What a server sends is hashed while it is copied."""
    store = harness.stack.blobs.own
    copy = store.local_copy

    async def local_copy(requested: Sha256) -> Path:
        if requested == sha256:
            raise DamagedBlob(f"blob {sha256} does not hold the bytes of its name")
        return await copy(requested)

    vars(store)["local_copy"] = local_copy


async def has_original(harness: WorkerHarness, doc_id: UUID) -> bool:
    async with harness.stack.db.transaction() as conn:
        return (await folder_listings.known(conn, [doc_id]))[doc_id].has_original


async def last(harness: WorkerHarness, kind: JobKind) -> dict[str, Any]:
    query = "SELECT state, result, warnings FROM jobs WHERE kind = '{}' ORDER BY id DESC LIMIT 1"
    (job,) = await sql(harness.stack.db, query.format(kind.value))
    return dict(job)


@pytest.mark.parametrize("spoil", [lose, damage, damage_on_a_server])
@pytest.mark.parametrize("kept", [False, True])
async def test_lost_blobs_are_skipped_by_an_archive_and_counted(
    harness: WorkerHarness, spoil: Any, kept: bool
) -> None:
    doc_id = await harness.add("lamp.md", LAMP)
    assert await harness.work() == []
    await spoil(harness, await original_of(harness, doc_id))
    async with harness.stack.db.transaction() as conn:
        await request_export(conn, CONTAINER, ExportPayload(kept=kept), principal=OWNER)
    assert await harness.work(JobKind.EXPORT) == []
    job = await last(harness, JobKind.EXPORT)
    assert (job["state"], job["result"]["documents"]) == ("done", 2)
    assert job["result"]["lacking_blobs"] == 1
    assert "1 originals or page images are missing or damaged" in job["warnings"][0]["message"]
    async with harness.stack.db.transaction() as conn:
        kind = ArchiveKind.BACKUP if kept else ArchiveKind.EXPORT
        (archive,) = await archives.listed(conn, kind, [CONTAINER], 10)
    assert archive.totals["lacking_blobs"] == 1
    data = await harness.stack.blobs.own.get(Sha256(archive.sha256))
    await delete(harness, CONTAINER)
    result = await take_in(harness, data, CONTAINER)
    assert (result["documents"], result["embedded"], result["lacking_blobs"]) == (2, 0, 1)


async def test_a_whole_archive_tells_of_nothing_that_it_lacks(harness: WorkerHarness) -> None:
    assert await harness.work() == []
    await export(harness)
    job = await last(harness, JobKind.EXPORT)
    assert "lacking_blobs" not in job["result"]
    assert job["warnings"] == []


async def test_a_listing_requests_a_lost_original_and_adding_it_stores_it(
    harness: WorkerHarness,
) -> None:
    doc_id = await harness.add("lamp.md", LAMP)
    assert await harness.work() == []
    embedded = harness.embedder.texts
    await lose(harness, await original_of(harness, doc_id))
    report = await harness.examine()
    (repair,) = await Repairer(
        harness.stack.db,
        harness.stack.vectors,
        harness.stack.blobs,
        principal=OWNER,
        lease_seconds=60.0,
        alone=True,
    ).repair(report)
    assert "Add file:///lamp.md again" in repair.message
    assert not await has_original(harness, doc_id)
    await harness.add("lamp.md", LAMP)
    assert await harness.work() == []
    assert await has_original(harness, doc_id)
    assert harness.embedder.texts == embedded
    assert (await harness.examine()).clean


async def test_a_damaged_original_never_replaces_what_is_live(harness: WorkerHarness) -> None:
    doc_id = await harness.add("lamp.md", LAMP)
    assert await harness.work() == []
    stack, texts = harness.stack, sorted(await harness.texts())
    await damage(harness, await original_of(harness, doc_id))
    async with stack.db.transaction() as conn:
        container = await containers.get(conn, CONTAINER)
    assert container is not None
    assert await stack.vectors.delete(container.space.collection(), doc_id) > 0
    repairer = Repairer(
        stack.db, stack.vectors, stack.blobs, principal=OWNER, lease_seconds=60.0, alone=True
    )
    repairs = await repairer.repair(await harness.examine())
    assert any("Add file:///lamp.md again" in one.message for one in repairs), repairs
    assert await harness.work() == []
    assert sorted(await harness.texts()) == texts
    assert not await has_original(harness, doc_id)


async def test_adding_a_file_brings_the_original_to_a_document_that_was_imported_without(
    harness: WorkerHarness,
) -> None:
    doc_id = await harness.add("lamp.md", LAMP)
    assert await harness.work() == []
    data = await export(harness, blobs=False)
    await delete(harness, CONTAINER)
    await harness.settle()
    assert (await take_in(harness, data, CONTAINER))["lacking_blobs"] > 0
    assert not await has_original(harness, doc_id)
    embedded = harness.embedder.texts
    await harness.add("lamp.md", LAMP)
    assert await harness.work() == []
    assert await has_original(harness, doc_id)
    assert harness.embedder.texts == embedded
    await harness.settle()
    assert await harness.stack.blobs.own.size(await original_of(harness, doc_id)) == len(LAMP)
