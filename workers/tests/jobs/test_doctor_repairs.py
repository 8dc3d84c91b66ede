"""Doctor on damaged stores: it says what is wrong, repairs it, and then nothing is left to repair."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

import numpy as np
import pytest

from latent_core.blobs.files import FileBlobStore
from latent_core.db import containers, tokens
from latent_core.db.connection import Database
from latent_core.db.tokens import NewToken
from latent_core.doctor.blobs import CLOCK_MARGIN
from latent_core.doctor.examine import Doctor
from latent_core.doctor.repair import Repairer
from latent_core.domain.errors import NotFound
from latent_core.domain.findings import DoctorReport, Remedy
from latent_core.domain.ids import Sha256, point_id
from latent_core.domain.job import JobKind
from latent_core.domain.manifest.model import Manifest
from latent_core.domain.token import Scope
from latent_core.ingest import containers as founding
from latent_core.ingest.delete import delete_container, delete_documents
from latent_core.transfer.requests import ExportPayload, request_export
from latent_core.vectors.port import Points
from tests.support.harness.transfers import export
from tests.support.harness.worker_harness import (
    CONTAINER,
    DIMS,
    TIME_PASSES,
    WorkerHarness,
    open_harness,
)
from tests.support.queue import sql

TEXT: Final = b"# Lamps\n\nThe lamp is lit at dusk.\n\n## Lens\n\nThe lens turns in mercury.\n"
RECORDS: Final = {"a": "gulls over the shore", "b": "terns on the rocks"}
Damage = Callable[[WorkerHarness], Awaitable[None]]


@pytest.fixture
async def harness(database: Database, tmp_path: Path) -> AsyncIterator[WorkerHarness]:
    async with open_harness(database, tmp_path) as opened:
        yield opened


async def collection(harness: WorkerHarness) -> str:
    async with harness.stack.db.transaction() as conn:
        container = await containers.get(conn, CONTAINER)
    assert container is not None
    return container.space.collection()


async def examine(
    harness: WorkerHarness, *, deep: bool = False, alone: bool = True
) -> DoctorReport:
    stack = harness.stack
    doctor = Doctor(
        stack.db, stack.vectors, stack.blobs, grace_seconds=600.0, deep=deep, alone=alone
    )
    return await doctor.examine(None)


async def repair(
    harness: WorkerHarness, report: DoctorReport, *, alone: bool = True
) -> list[Remedy]:
    """Repair, let the jobs do their part; the remedies that were used."""
    stack = harness.stack
    repairer = Repairer(
        stack.db, stack.vectors, stack.blobs, principal="local:you", lease_seconds=60.0, alone=alone
    )
    done = await repairer.repair(report)
    assert all(one.done for one in done), done
    assert await harness.work() == []
    return [one.repair for one in done]


async def one(harness: WorkerHarness, query: str) -> dict[str, object]:
    (row,) = await sql(harness.stack.db, query)
    return dict(row)


# What is done to the stores, and how doctor calls it.


async def lose_vectors(harness: WorkerHarness) -> None:
    row = await one(harness, "SELECT id FROM documents WHERE uri = 'file:///lamp.md'")
    assert isinstance(row["id"], UUID)
    assert await harness.stack.vectors.delete(await collection(harness), row["id"]) > 0


async def lose_vectors_of_a_record(harness: WorkerHarness) -> None:
    row = await one(harness, "SELECT id FROM documents WHERE external_id = 'a'")
    assert isinstance(row["id"], UUID)
    assert await harness.stack.vectors.delete(await collection(harness), row["id"]) == 1


async def store_stray_points(harness: WorkerHarness) -> None:
    doc_id, vectors = uuid4(), np.eye(2, DIMS, dtype=np.float32)
    points = Points(
        [point_id(uuid4(), 1, n) for n in range(2)], vectors, [doc_id] * 2, [1] * 2, [900, 901]
    )
    await harness.stack.vectors.upsert(await collection(harness), points)


async def store_a_point_too_many(harness: WorkerHarness) -> None:
    row = await one(
        harness,
        "SELECT c.doc_id, c.generation, c.chunk_no FROM chunks c JOIN documents d ON d.id = c.doc_id "
        "WHERE d.uri = 'file:///lamp.md' LIMIT 1",
    )
    stray = Points(
        [point_id(uuid4(), 1, 0)],
        np.eye(1, DIMS, dtype=np.float32),
        [row["doc_id"]],
        [row["generation"]],
        [row["chunk_no"]],
    )
    await harness.stack.vectors.upsert(await collection(harness), stray)


async def lose_a_chunk(harness: WorkerHarness) -> None:
    await sql(
        harness.stack.db,
        "DELETE FROM chunks WHERE position = 0 AND doc_id = (SELECT id FROM documents WHERE uri = 'file:///lamp.md')",
    )


async def leave_dead_rows(harness: WorkerHarness) -> None:
    await harness.add("lamp.md", TEXT + b"\nMore.\n")
    assert await harness.work(JobKind.INGEST, JobKind.RENDER, JobKind.DEDUP) == []
    await sql(harness.stack.db, "DELETE FROM jobs WHERE kind = 'purge'")


async def unpublish(harness: WorkerHarness) -> None:
    await sql(
        harness.stack.db,
        "UPDATE documents SET live_generation = NULL WHERE uri = 'file:///lamp.md'",
    )


async def unpublish_a_record(harness: WorkerHarness) -> None:
    await sql(
        harness.stack.db, "UPDATE documents SET live_generation = NULL WHERE external_id = 'a'"
    )


async def lose_postings(harness: WorkerHarness) -> None:
    await sql(
        harness.stack.db,
        "WITH loose AS (DELETE FROM unmerged_postings WHERE term = 'lamp') DELETE FROM postings WHERE term = 'lamp'",
    )


async def miscount(harness: WorkerHarness) -> None:
    await sql(harness.stack.db, "UPDATE keyword_stats SET live_chunks = live_chunks + 7")


async def wait_for_ever(harness: WorkerHarness) -> None:
    await harness.add("never.md", b"never")
    await sql(harness.stack.db, "DELETE FROM jobs WHERE kind = 'ingest' AND state = 'queued'")


async def lose_an_image(harness: WorkerHarness) -> None:
    row = await one(harness, "SELECT sha256 FROM blob_refs WHERE role = 'page_image' LIMIT 1")
    await harness.stack.blobs.own.delete(Sha256(str(row["sha256"])))


async def corrupt_an_image(harness: WorkerHarness) -> None:
    row = await one(harness, "SELECT sha256 FROM blob_refs WHERE role = 'page_image' LIMIT 1")
    path = await harness.stack.blobs.own.local_copy(Sha256(str(row["sha256"])))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


async def doubt_a_blob(harness: WorkerHarness) -> None:
    await sql(
        harness.stack.db,
        "UPDATE blobs SET state = 'intent' WHERE sha256 IN (SELECT sha256 FROM blob_refs)",
    )


async def store_bytes_without_a_row(harness: WorkerHarness) -> None:
    await harness.stack.blobs.own.put(b"nobody knows these")


async def forget_a_blob(harness: WorkerHarness) -> None:
    await sql(
        harness.stack.db,
        f"INSERT INTO blobs (sha256, bytes, state, touched_at) VALUES ('{'0' * 64}', 3, 'intent', now() - interval '1 day')",
    )


async def lose_an_export(harness: WorkerHarness) -> None:
    (await export_file(harness)).unlink()


async def cut_an_export_off(harness: WorkerHarness) -> None:
    path = await export_file(harness)
    path.write_bytes(path.read_bytes()[:2])


async def export_file(harness: WorkerHarness) -> Path:
    data = await export(harness)
    path = await harness.stack.blobs.own.local_copy(Sha256(hashlib.sha256(data).hexdigest()))
    path.chmod(0o600)
    return path


async def make_a_collection(harness: WorkerHarness) -> None:
    await harness.stack.vectors.create_collection("c_nobody", DIMS)


async def test_on_a_shared_server_only_collections_that_were_made_here_are_dropped(
    harness: WorkerHarness,
) -> None:
    vectors, db = harness.stack.vectors, harness.stack.db
    other = Manifest(id="art", name="Art", embedder="openai/test", dims=DIMS)
    made = await founding.create(
        db,
        vectors,
        harness.stack.blobs,
        harness.deps.stack.embedders,
        other,
        principal="local:you",
        request_id=None,
    )
    async with db.transaction() as conn:
        await delete_container(conn, "art", principal="local:you")
    await harness.settle()
    ours = made.space.collection()
    theirs = [f"c_art_text_{made.space.id + 1}", f"c_{CONTAINER}_text_99", "c_of-others_text_1"]
    for name in (ours, *theirs):
        await vectors.create_collection(name, DIMS)
    report = await examine(harness, alone=False)
    assert [(d.object, d.repair) for d in report.stores] == [(ours, Remedy.DROP)]
    assert {d.object for d in report.notes} == set(theirs)
    assert all("is not dropped" in d.message for d in report.notes)
    assert await repair(harness, report, alone=False) == [Remedy.DROP]
    assert set(theirs) < set(await vectors.collections())
    assert ours not in await vectors.collections()
    again = await examine(harness, alone=False)
    assert again.clean
    assert len(again.notes) == 3


async def mark_the_space(harness: WorkerHarness) -> None:
    await sql(harness.stack.db, "UPDATE spaces SET state = 'retired'")


async def tell_other_dims(harness: WorkerHarness) -> None:
    await sql(harness.stack.db, "UPDATE spaces SET dims = 100")


async def tell_another_etag(harness: WorkerHarness) -> None:
    await sql(harness.stack.db, "UPDATE containers SET etag = 'another'")


async def lose_languages(harness: WorkerHarness) -> None:
    gone = await sql(harness.stack.db, "DELETE FROM container_languages RETURNING language")
    assert gone


async def test_a_manifest_that_names_another_model_than_the_vectors_is_reported(
    harness: WorkerHarness,
) -> None:
    async with harness.stack.db.transaction() as conn:
        found = await containers.get(conn, CONTAINER)
        assert found is not None
        renamed = found.manifest.model_copy(update={"embedder": "openai/other", "dims": 99})
        assert await containers.update_manifest(conn, renamed, founding.etag(renamed), found.etag)
    (difference,) = (await examine(harness)).containers[CONTAINER].differences
    assert (difference.kind, difference.repair) == ("manifest", Remedy.NONE)
    assert "embedder openai/other, but it is openai/test" in difference.message
    assert f"dims 99, but it is {DIMS}" in difference.message


async def test_a_token_for_a_container_that_is_not_there_is_noted(harness: WorkerHarness) -> None:
    async with harness.stack.db.transaction() as conn:
        for name, opened in (("old", ("gone", CONTAINER)), ("fine", (CONTAINER,)), ("all", None)):
            new_token = NewToken("agent:local", name, frozenset({Scope.READ}), opened, None)
            await tokens.create(
                conn, new_token, hashlib.sha256(name.encode()).digest(), created_by="local:you"
            )
    report = await examine(harness)
    assert report.clean
    (note,) = report.notes
    assert note.kind == "token"
    assert "'old' of agent:local grants access to gone, which does not exist" in note.message
    assert f"latent token revoke {note.object}" in note.message


async def test_a_kept_second_space_is_named_with_its_missing_points(
    harness: WorkerHarness,
) -> None:
    await harness.add("lamp.md", TEXT)
    assert await harness.work() == []
    await sql(
        harness.stack.db,
        "INSERT INTO spaces (container_id, embedder, version, dims, state)"
        f" VALUES ('{CONTAINER}', 'openai/next', '2', {DIMS}, 'building')",
    )
    (note,) = (await examine(harness)).containers[CONTAINER].notes
    assert note.kind == "space"
    assert "building space of openai/next 2" in note.message
    assert "1 live documents have no points in it" in note.message
    assert "not compared one by one" in note.message


Case = tuple[Damage, str, Remedy]
DAMAGES: Final[dict[str, list[Case]]] = {
    "points": [
        (lose_vectors, "point", Remedy.REINGEST),
        (lose_vectors_of_a_record, "point", Remedy.REINGEST),
        (store_stray_points, "point", Remedy.DROP),
        (store_a_point_too_many, "orphan_point", Remedy.DROP),
    ],
    "rows": [
        (lose_a_chunk, "document", Remedy.REINGEST),
        (wait_for_ever, "document", Remedy.DROP),
        (unpublish, "document", Remedy.REINGEST),
        (unpublish_a_record, "document", Remedy.REINGEST),
        (mark_the_space, "state", Remedy.REBUILD),
        (tell_other_dims, "space", Remedy.REBUILD),
        (tell_another_etag, "manifest", Remedy.REBUILD),
        (lose_languages, "languages", Remedy.REBUILD),
        (lose_postings, "keywords", Remedy.REBUILD),
        (miscount, "keywords", Remedy.REBUILD),
        (leave_dead_rows, "chunk", Remedy.DROP),
    ],
    "bytes": [
        (lose_an_image, "blob", Remedy.REINGEST),
        (corrupt_an_image, "blob", Remedy.REINGEST),
        (doubt_a_blob, "blob", Remedy.REINGEST),
        (store_bytes_without_a_row, "blob", Remedy.DROP),
        (forget_a_blob, "blob", Remedy.DROP),
        (make_a_collection, "collection", Remedy.DROP),
        (lose_an_export, "export", Remedy.DROP),
        (cut_an_export_off, "export", Remedy.DROP),
    ],
}


@pytest.mark.parametrize("kind", DAMAGES)
async def test_damage_is_reported_repaired_and_then_gone(harness: WorkerHarness, kind: str) -> None:
    await harness.add("lamp.md", TEXT)
    await harness.add_corpus(RECORDS)
    assert await harness.work() == []
    assert (await examine(harness, deep=True)).clean
    for damage, named, remedy in DAMAGES[kind]:
        texts = set(await harness.texts())
        await damage(harness)
        if damage is corrupt_an_image:
            assert (await examine(harness)).clean, "only who reads the bytes can see it"
        report = await examine(harness, deep=damage is corrupt_an_image)
        found = [d for c in report.containers.values() for d in c.differences] + report.stores
        assert (named, remedy) in {(d.kind, d.repair) for d in found}, (damage, found)
        assert remedy in await repair(harness, report)
        await harness.settle()
        after = await examine(harness, deep=True)
        assert after.clean, (damage, after)
        assert await repair(harness, after) == []
        assert texts <= set(await harness.texts()) or damage is leave_dead_rows


async def test_bytes_that_an_adopted_dump_does_not_know_are_noted_and_not_removed(
    harness: WorkerHarness,
) -> None:
    """Originals that were uploaded between the dump and its adoption."""
    store = harness.stack.blobs.own
    before, after = await store.put(b"uploaded after the dump"), await store.put(b"of no use")
    await sql(
        harness.stack.db,
        "INSERT INTO installation (id, holder, adopted_at) VALUES ('0123456789ab', '1/2', now())",
    )
    assert isinstance(store, FileBlobStore)
    later = time.time() + 2 * CLOCK_MARGIN.total_seconds()
    os.utime(store._path(after), (later, later))
    report = await examine(harness)
    assert [(d.object, d.repair) for d in report.stores] == [(after, Remedy.DROP)]
    (note,) = report.notes
    assert (note.kind, note.object, note.repair) == ("blob", before, Remedy.NONE)
    assert "latent adopt" in note.message
    await repair(harness, report)
    await harness.settle()
    assert await harness.stored() == {before}
    report = await examine(harness)
    assert report.clean
    assert [d.object for d in report.notes] == [before]


async def test_a_lost_original_is_reported_and_restored_by_adding_the_file(
    harness: WorkerHarness,
) -> None:
    await harness.add("lamp.md", TEXT)
    assert await harness.work() == []
    row = await one(harness, "SELECT sha256 FROM blob_refs WHERE role = 'original'")
    await harness.stack.blobs.own.delete(Sha256(str(row["sha256"])))
    report = await examine(harness)
    stack = harness.stack
    (outcome,) = await Repairer(
        stack.db, stack.vectors, stack.blobs, principal="local:you", lease_seconds=60.0
    ).repair(report)
    assert not outcome.done
    assert "Add file:///lamp.md again" in outcome.message
    assert not (await examine(harness)).clean
    await harness.add("lamp.md", TEXT)
    assert await harness.work() == []
    assert (await examine(harness, deep=True)).clean


async def test_a_lost_or_truncated_backup_is_reported_with_and_without_its_container(
    harness: WorkerHarness,
) -> None:
    await harness.add("lamp.md", TEXT)
    assert await harness.work() == []
    for _ in range(2):
        async with harness.stack.db.transaction() as conn:
            await request_export(conn, CONTAINER, ExportPayload(kept=True), principal="local:you")
        assert await harness.work(JobKind.EXPORT) == []
    lost, cut = [
        r["sha256"] for r in await sql(harness.stack.db, "SELECT sha256 FROM archives ORDER BY id")
    ]
    assert (await examine(harness, deep=True)).clean
    await harness.stack.blobs.own.delete(Sha256(lost))
    path = await harness.stack.blobs.own.local_copy(Sha256(cut))
    path.chmod(0o600)
    data = path.read_bytes()
    path.write_bytes(data[:2])
    outcome = (await examine(harness)).containers[CONTAINER].differences
    assert [d.kind for d in outcome] == ["backup", "backup"]
    assert "is missing" in outcome[0].message
    assert "has 2 bytes" in outcome[1].message
    assert all("latent backup now notes" in d.message for d in outcome)
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert len((await examine(harness)).containers[CONTAINER].differences) == 1
    assert len((await examine(harness, deep=True)).containers[CONTAINER].differences) == 2
    async with harness.stack.db.transaction() as conn:
        await delete_container(conn, CONTAINER, principal="local:you")
    await harness.settle()
    report = await examine(harness)
    assert [(d.kind, d.repair) for d in report.stores] == [("backup", Remedy.NONE)]
    assert not report.clean


async def test_a_repaired_corpus_makes_only_its_damaged_record_again_and_no_deleted_one(
    harness: WorkerHarness,
) -> None:
    await harness.add_corpus(RECORDS | {"c": "puffins in the burrow"})
    assert await harness.work() == []
    (row,) = await sql(harness.stack.db, "SELECT id FROM documents WHERE external_id = 'b'")
    async with harness.stack.db.transaction() as conn:
        await delete_documents(
            conn, CONTAINER, [row["id"]], principal="local:you", lease_seconds=60.0
        )
    await harness.settle()
    query = "SELECT external_id, live_generation FROM documents WHERE parent_id IS NOT NULL"
    before = {r["external_id"]: r["live_generation"] for r in await sql(harness.stack.db, query)}
    texts, embedded = await harness.texts(), harness.embedder.texts
    await lose_vectors_of_a_record(harness)
    assert await repair(harness, await examine(harness)) == [Remedy.REINGEST]
    await harness.settle()
    after = {r["external_id"]: r["live_generation"] for r in await sql(harness.stack.db, query)}
    assert after == before | {"a": before["a"] + 1}
    assert sorted(await harness.texts()) == sorted(texts)
    assert harness.embedder.texts == embedded, "the vector came from the embedding cache"
    assert (await examine(harness, deep=True)).clean
    await harness.add_corpus(RECORDS)
    assert await harness.work() == []
    assert any("terns" in text for text in await harness.texts()), "who adds it again gets it again"


async def test_a_repair_may_be_done_twice_by_the_same_report(harness: WorkerHarness) -> None:
    await harness.add("lamp.md", TEXT)
    assert await harness.work() == []
    await lose_vectors(harness)
    await lose_postings(harness)
    await store_stray_points(harness)
    report = await examine(harness)
    first = await repair(harness, report)
    assert await repair(harness, report) == first
    await harness.settle()
    assert (await examine(harness, deep=True)).clean


async def test_dead_letters_are_noted_and_no_difference(harness: WorkerHarness) -> None:
    await harness.add("empty.md", b"")
    assert len(await harness.work()) == 1
    report = await examine(harness)
    assert report.clean
    (note,) = report.containers[CONTAINER].notes
    assert note.kind == "job"
    assert f"latent jobs requeue {note.object}" in note.message


async def test_the_proof_of_a_deletion_counts_what_went_from_each_store(
    harness: WorkerHarness,
) -> None:
    await harness.add("lamp.md", TEXT)
    await harness.add("copy.md", TEXT)
    assert await harness.work() == []
    counted = await one(
        harness,
        "SELECT count(*) AS chunks, sum(windows)::int AS points, sum(length(tsv))::int AS postings FROM chunks c "
        "JOIN documents d ON d.id = c.doc_id WHERE d.uri = 'file:///copy.md'",
    )
    row = await one(harness, "SELECT id FROM documents WHERE uri = 'file:///copy.md'")
    async with harness.stack.db.transaction() as conn:
        await delete_documents(
            conn, CONTAINER, [UUID(str(row["id"]))], principal="local:you", lease_seconds=60.0
        )
    assert await harness.work() == []
    (proof,) = [
        r["result"]
        for r in await sql(
            harness.stack.db, "SELECT result FROM jobs WHERE kind = 'purge' AND state = 'done'"
        )
    ]
    assert {name: proof[name] for name in counted} == counted
    assert proof["blobs_kept"] >= 1, "the original is shared with the other document"
    await sql(harness.stack.db, TIME_PASSES)
    await harness.work()
    (forgotten,) = await sql(
        harness.stack.db, f"SELECT result FROM jobs WHERE id = {proof['compaction_job']}"
    )
    assert forgotten["result"]["dropped_chunks"] == counted["chunks"]
    assert await sql(harness.stack.db, "SELECT 1 FROM dead_chunk_nos") == []
    await harness.settle()
    assert (await examine(harness, deep=True)).clean


async def test_a_container_that_goes_meanwhile_costs_the_report_of_no_other(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = harness.stack
    await harness.add("lamp.md", TEXT)
    assert await harness.work() == []
    second = Manifest(id="zz", name="Second", embedder="openai/test", dims=DIMS)
    await founding.create(
        stack.db,
        stack.vectors,
        stack.blobs,
        harness.embedder,
        second,
        principal="local:you",
        request_id=None,
    )
    doctor = Doctor(stack.db, stack.vectors, stack.blobs, grace_seconds=600.0)
    assert set((await doctor.examine(["never", "zz"])).containers) == {"zz"}

    scroll, first = stack.vectors.scroll, await collection(harness)

    async def gone(name: str, **words: Any) -> Any:
        if name == first:
            async with stack.db.transaction() as conn:
                await delete_container(conn, CONTAINER, principal="local:you")
            raise NotFound(f"collection {name} does not exist")
        return await scroll(name, **words)

    monkeypatch.setattr(stack.vectors, "scroll", gone)
    assert set((await doctor.examine([CONTAINER, "zz"])).containers) == {"zz"}
