"""Exports and imports on real stores: the same is found again, a merge follows its policy, a cut-off one goes on."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from latent_core.archive.verify import Verification
from latent_core.blobs.keeping import store
from latent_core.domain.errors import Conflict, Invalid, Unavailable
from latent_core.domain.ids import Sha256, document_id
from latent_core.domain.job import JobKind
from latent_core.domain.manifest import Manifest
from latent_core.generations import containers as founding, exporting
from latent_core.generations.delete import delete_container, enqueue_removal
from latent_core.generations.importing.payload import ImportPayload, Policy
from latent_core.generations.importing.publication import BlobsGone
from latent_core.generations.purge import purge_blobs
from latent_core.generations.transfers import (
    ExportPayload,
    request_backup,
    request_export,
    request_import,
)
from latent_core.queue.errors import LeaseLost
from latent_core.queue.reaper import reap
from latent_core.registry import archives, containers
from latent_core.registry.archives import ArchiveKind
from latent_core.registry.connection import Database
from latent_core.testing.queue import expire, sql
from latent_workers import scheduler
from latent_workers.jobs import import_steps
from latent_workers.testing.house import CONTAINER, DIMS, LEASE_SECONDS, House, open_house

OWNER: Final = "local:you"
WAIT_SECONDS: Final = 60.0
KEPT_RUN: Final = """
INSERT INTO eval_runs (container_id, dataset, setup, figures, passed, principal)
VALUES (%(container_id)s, 'golden', %(setup)s, '{}', true, 'local:you')
"""
WORDS: Final = ("lamp", "lens", "keeper", "fog", "horn", "gull", "tern", "rock", "light", "stair")
DOCUMENTS: Final = """
SELECT uri, title, meta, sha256, external_id, language, source_type, live_chunks, given_meta, created_at, fetched_at,
       first_fetched_at, source_modified_at, parent_id IS NOT NULL AS is_record
FROM documents WHERE container_id = %(id)s AND deleted_at IS NULL AND live_generation IS NOT NULL ORDER BY uri
"""
CHUNKS: Final = """
SELECT c.id, c.text, c.tsv::text, c.length, c.content_hash, c.page, c.heading_path, c.provenance, c.created_at, s.bits
FROM chunks c JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
JOIN signatures s ON s.container_id = c.container_id AND s.ord = c.ord
WHERE c.container_id = %(id)s ORDER BY c.ord
"""
LIKE: Final = """
SELECT c.id AS repeats, o.id AS original
FROM likenesses l JOIN chunks c ON c.container_id = l.container_id AND c.ord = l.ord
JOIN chunks o ON o.container_id = l.container_id AND o.ord = l.original
WHERE l.container_id = %(id)s ORDER BY 1
"""


@pytest.fixture
async def house(database: Database, tmp_path: Path) -> AsyncIterator[House]:
    async with open_house(database, tmp_path) as one:
        yield one


async def fill(house: House) -> None:
    """Documents of several kinds, some that repeat others, one with several chunks, and a corpus."""
    for n in range(7):
        words = " ".join(WORDS[(n * k) % len(WORDS)] for k in range(1, 9))
        await house.add(f"{n}.md", f"# Note {n}\n\n{words} number {n}.\n".encode(), meta={"n": n})
    await house.add("copy.md", b"# Note 3\n\nThe keeper of the lamp said nothing about fog.\n")
    await house.add("copy2.md", b"# Note 3\n\nThe keeper of the lamp said nothing about fog.\n")
    long = "\n\n".join(f"## Part {n}\n\n{'lamp lens horn rock ' * 60}{n}" for n in range(5))
    await house.add("long.md", long.encode())
    await house.add_corpus({f"r{n}": f"record {n} of the {WORDS[n]}" for n in range(6)})
    assert await house.work() == []
    await house.settle()


async def export(house: House, **options: bool) -> bytes:
    """The archive's bytes."""
    async with house.stack.db.transaction() as conn:
        job_id = await request_export(conn, CONTAINER, ExportPayload(**options), principal=OWNER)
    assert await house.work(JobKind.EXPORT) == []
    (job,) = await sql(house.stack.db, f"SELECT state, result FROM jobs WHERE id = {job_id}")
    assert job["state"] == "done"
    async with house.stack.db.transaction() as conn:
        found = await archives.get(conn, job["result"]["archive_id"], ArchiveKind.EXPORT)
    assert found is not None
    return await house.stack.blobs.get(Sha256(found.sha256))


async def begin(house: House, data: bytes, target: str, **options: Any) -> int:
    sha256 = await store(house.stack.db, house.stack.blobs, data)
    payload = ImportPayload(sha256=sha256, filename="a.latent.tar.zst", target=target, **options)
    async with house.stack.db.transaction() as conn:
        return await request_import(conn, payload, size=len(data), principal=OWNER)


async def take_in(house: House, data: bytes, target: str, **options: Any) -> dict[str, Any]:
    """The result of an import that succeeds."""
    job_id = await begin(house, data, target, **options)
    assert await house.work(JobKind.IMPORT) == []
    (job,) = await sql(house.stack.db, f"SELECT state, result FROM jobs WHERE id = {job_id}")
    assert job["state"] == "done"
    result: dict[str, Any] = job["result"]
    return result


async def delete(house: House, container_id: str) -> None:
    async with house.stack.db.transaction() as conn:
        await delete_container(conn, container_id, principal=OWNER)
    await house.settle()


async def rows(house: House, query: str, container_id: str) -> list[dict[str, Any]]:
    async with house.stack.db.transaction() as conn:
        return await (await conn.execute(query.encode(), {"id": container_id})).fetchall()


async def found(house: House, container_id: str) -> list[Any]:
    """What both channels answer, as (chunk, score), best first."""
    stack = house.stack
    async with stack.db.transaction() as conn:
        container = await containers.get(conn, container_id)
        assert container is not None
        cursor = await conn.execute(
            "SELECT ord, id FROM chunks WHERE container_id = %(id)s", {"id": container_id}
        )
        names = {r["ord"]: r["id"] for r in await cursor.fetchall()}
    answers: list[Any] = []
    for n, word in enumerate(WORDS):
        terms = [word, WORDS[n - 1]]
        hits = await stack.keywords.search(container_id, terms, 20, timeout_seconds=5)
        vector = await house.embedder.embed_query(" ".join(terms))
        near = await stack.vectors.search(container.space.collection(), vector, 20)
        answers.append(
            [(names[o], s) for o, s in zip(hits.ords.tolist(), hits.scores, strict=True)]
        )
        near_hits = zip(near.ords.tolist(), near.scores.round(5).tolist(), strict=True)
        answers.append(sorted((-s, names[o]) for o, s in near_hits if o in names))
    return answers


async def everything(house: House, container_id: str) -> list[Any]:
    return [await rows(house, query, container_id) for query in (DOCUMENTS, CHUNKS, LIKE)]


async def test_a_restored_container_is_the_same_to_every_reader(house: House) -> None:
    await fill(house)
    before, answers = await everything(house, CONTAINER), await found(house, CONTAINER)
    assert before[2], "nothing repeats anything: the test would prove little"
    blobs, embedded = await house.stored(), house.embedder.texts
    data = await export(house)
    await delete(house, CONTAINER)
    assert not await rows(house, CHUNKS, CONTAINER)
    result = await take_in(house, data, CONTAINER)
    assert (result["embedded"], result["lacking_blobs"]) == (0, 0)
    await house.settle()
    assert await everything(house, CONTAINER) == before
    assert await found(house, CONTAINER) == answers
    assert house.embedder.texts == embedded
    assert blobs <= await house.stored()
    report = await house.examine()
    assert report.clean, report


async def test_under_another_id_the_texts_are_the_same_and_both_are_found_apart(
    house: House,
) -> None:
    await fill(house)
    data = await export(house)
    assert (await take_in(house, data, "copy"))["embedded"] == 0
    texts = [[r["text"] for r in await rows(house, CHUNKS, c)] for c in (CONTAINER, "copy")]
    assert texts[0] == texts[1]
    ids = [{r["id"] for r in await rows(house, CHUNKS, c)} for c in (CONTAINER, "copy")]
    assert ids[0].isdisjoint(ids[1])
    await house.settle()
    assert (await house.examine()).clean


async def test_without_vectors_it_embeds_and_finds_the_same(house: House) -> None:
    await fill(house)
    answers = await found(house, CONTAINER)
    data = await export(house, vectors=False)
    await delete(house, CONTAINER)
    await sql(house.stack.db, "DELETE FROM embedding_cache")
    before = house.embedder.texts
    result = await take_in(house, data, CONTAINER)
    chunks = await rows(house, CHUNKS, CONTAINER)
    assert result["embedded"] == len(chunks)
    assert before < house.embedder.texts <= before + len(chunks)
    assert await found(house, CONTAINER) == answers


async def test_vectors_of_another_model_are_not_taken(house: House) -> None:
    await fill(house)
    data = await export(house)
    house.embedder.model = type(house.embedder.model)("openai/test", "2", DIMS, 128)
    result = await take_in(house, data, "newer")
    chunks = await rows(house, CHUNKS, "newer")
    assert result["embedded"] == len(chunks)
    assert {c["provenance"]["embedder_version"] for c in chunks} == {"2"}


async def test_without_blobs_what_is_not_stored_here_is_said_and_left_out(house: House) -> None:
    await fill(house)
    data = await export(house, blobs=False)
    assert (await take_in(house, data, "beside"))["lacking_blobs"] == 0  # they are stored here
    for one in (CONTAINER, "beside"):
        await delete(house, one)
    await house.settle()
    result = await take_in(house, data, CONTAINER)
    assert result["lacking_blobs"] > 0
    await house.settle()
    report = await house.examine()
    assert report.clean, report


async def test_until_its_last_step_nothing_of_an_import_is_seen_and_a_failed_one_leaves_nothing(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(house)
    data = await export(house)
    monkeypatch.setattr(exporting, "CHUNKS_A_PART", 4)
    data = await export_again(house)
    monkeypatch.setattr(import_steps, "CHUNKS_A_STEP", 4)
    seen: list[bool] = []

    def look(name: str) -> None:
        if name == "import.after_commit":
            seen.append(True)
            if len(seen) == 3:
                raise Conflict("the test ends it")

    monkeypatch.setattr(import_steps, "crash_point", look)
    await begin(house, data, "hidden")
    (trouble,) = await house.work(JobKind.IMPORT)
    assert "the test ends it" in str(trouble)
    async with house.stack.db.transaction() as conn:
        assert await containers.get(conn, "hidden") is None
    await house.settle()
    left = await sql(
        house.stack.db, "SELECT id FROM containers UNION SELECT container_id FROM chunks"
    )
    assert [r["id"] for r in left] == [CONTAINER]
    assert (await house.examine()).clean


async def export_again(house: House) -> bytes:
    """After something that an archive holds has changed, so that it is made anew."""
    await house.add("more.md", b"# More\n\nOne more lamp.\n")
    assert await house.work() == []
    return await export(house)


class Killed(BaseException):
    """As ``kill -9`` ends an attempt: nothing is cleaned up."""


@pytest.mark.parametrize("merge", [False, True])
async def test_a_killed_import_goes_on_where_it_was_and_ends_as_if_nothing_had_happened(
    house: House, monkeypatch: pytest.MonkeyPatch, merge: bool
) -> None:
    await fill(house)
    monkeypatch.setattr(exporting, "CHUNKS_A_PART", 3)
    data = await export_again(house)
    before, answers = await everything(house, CONTAINER), await found(house, CONTAINER)
    await delete(house, CONTAINER)
    if merge:
        manifest = Manifest(id=CONTAINER, name="Notes", embedder="openai/test", dims=DIMS)
        stack = house.stack
        await founding.create(
            stack.db, stack.vectors, house.embedder, manifest, principal=OWNER, request_id=None
        )
    monkeypatch.setattr(import_steps, "CHUNKS_A_STEP", 3)
    embedded = house.embedder.texts
    await begin(house, data, CONTAINER, merge=merge)
    points = ("import.after_vectors", "import.before_commit", "import.after_commit")
    for point in (*points, "import.before_vectors", "import.before_finish"):
        job = await house.claim(JobKind.IMPORT)
        assert job is not None, point
        with monkeypatch.context() as patch:
            patch.setattr(import_steps, "crash_point", killer(point, skip=1))
            with pytest.raises(Killed):
                await house.run(job)
        await sql(
            house.stack.db,
            "UPDATE jobs SET state = 'queued', claim_id = NULL WHERE kind = 'import'",
        )
    assert await house.work(JobKind.IMPORT) == []
    await house.settle()
    after = await everything(house, CONTAINER)
    assert after[:2] == before[:2]
    assert await found(house, CONTAINER) == answers
    assert house.embedder.texts == embedded
    report = await house.examine()
    assert report.clean, report


def killer(point: str, *, skip: int) -> Callable[[str], None]:
    """Ends an attempt when it comes to ``point`` for the time after ``skip`` others, or at the last one there is."""
    left = 0 if point.endswith("finish") else skip

    def at(name: str) -> None:
        nonlocal left
        if name == point:
            if left == 0:
                raise Killed
            left -= 1

    return at


async def test_vectors_of_a_step_are_stored_while_the_step_before_is_committed(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(house)
    monkeypatch.setattr(exporting, "CHUNKS_A_PART", 4)
    data = await export_again(house)
    await delete(house, CONTAINER)
    monkeypatch.setattr(import_steps, "CHUNKS_A_STEP", 4)
    stored = asyncio.Queue[None]()
    committed: list[bool] = []
    stage, commit = import_steps.vectors.stage, import_steps.publication.commit

    async def staged(*args: Any) -> None:
        await stage(*args)
        stored.put_nowait(None)

    async def waiting(*args: Any) -> Any:
        if not committed:  # its own vectors, and those of the step that follows
            await stored.get()
            await stored.get()
        committed.append(True)
        return await commit(*args)

    monkeypatch.setattr(import_steps.vectors, "stage", staged)
    monkeypatch.setattr(import_steps.publication, "commit", waiting)
    async with asyncio.timeout(WAIT_SECONDS):
        await take_in(house, data, CONTAINER)
    assert len(committed) > 1


@pytest.mark.parametrize("policy", list(Policy))
async def test_a_merge_takes_what_its_policy_says(house: House, policy: Policy) -> None:
    await house.add("old.md", b"# Old\n\nThe old lamp.\n")
    await house.add("new.md", b"# New\n\nThe old lens.\n")
    await house.add("gone.md", b"# Gone\n\nThe gull.\n")
    assert await house.work() == []
    await sql(
        house.stack.db,
        "UPDATE documents SET source_modified_at = '2026-01-02' WHERE uri IN ('file:///old.md', 'file:///new.md')",
    )
    data = await export(house)
    await house.add("old.md", b"# Old\n\nThe changed lamp.\n")
    await house.add("new.md", b"# New\n\nThe changed lens.\n")
    assert await house.work() == []
    moments = {"old.md": "2026-01-01", "new.md": "2026-01-03"}
    for name, at in moments.items():
        await sql(
            house.stack.db,
            f"UPDATE documents SET source_modified_at = '{at}' WHERE uri = 'file:///{name}'",
        )
    await remove(house, "gone.md")
    result = await take_in(house, data, CONTAINER, merge=True, policy=policy)
    texts = {
        r["text"].split()[-1] + r["text"].split()[-2] for r in await rows(house, CHUNKS, CONTAINER)
    }
    wanted = {
        Policy.SKIP: {"lamp.changed", "lens.changed"},
        Policy.REPLACE: {"lamp.old", "lens.old"},
        Policy.NEWEST: {"lamp.old", "lens.changed"},
    }[policy]
    assert texts == wanted | {"gull.The"}
    assert result["documents"] == {Policy.SKIP: 1, Policy.REPLACE: 3, Policy.NEWEST: 2}[policy]
    await house.settle()
    report = await house.examine()
    assert report.clean, report


async def remove(house: House, name: str) -> None:
    from latent_core.generations.delete import delete_documents

    async with house.stack.db.transaction() as conn:
        doc_id = document_id(CONTAINER, f"file:///{name}")
        await delete_documents(
            conn, CONTAINER, [doc_id], principal=OWNER, lease_seconds=LEASE_SECONDS
        )
    await house.work()


async def test_a_damaged_archive_is_refused_with_the_place_and_nothing_is_made(
    house: House,
) -> None:
    await fill(house)
    data = bytearray(await export(house))
    data[len(data) // 2] ^= 1
    await begin(house, bytes(data), "damaged")
    (trouble,) = await house.work(JobKind.IMPORT)
    assert isinstance(trouble, Invalid)
    assert "cannot be imported" in trouble.message
    left = await sql(house.stack.db, "SELECT id FROM containers")
    assert [r["id"] for r in left] == [CONTAINER]


async def test_searches_see_whole_documents_while_an_import_replaces_them_all(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(house)
    data = await export(house)
    monkeypatch.setattr(import_steps, "CHUNKS_A_STEP", 5)
    done = asyncio.Event()
    counts: list[int] = []
    lamps = (await house.stack.keywords.search(CONTAINER, ["lamp"], 50, timeout_seconds=5)).matched

    async def search() -> None:
        while not done.is_set():
            hits = await house.stack.keywords.search(CONTAINER, ["lamp"], 50, timeout_seconds=5)
            assert hits.matched == lamps
            counts.append(len(await house.texts()))

    searching = asyncio.create_task(search())
    try:
        await take_in(house, data, CONTAINER, merge=True, policy=Policy.REPLACE)
    finally:
        done.set()
        await searching
    assert counts
    assert set(counts) == {len(await house.texts())}


async def test_documents_that_change_while_they_are_exported_are_whole_and_in_once(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(house)
    monkeypatch.setattr(exporting, "CHUNKS_A_PART", 1)
    monkeypatch.setattr(exporting, "DOCUMENTS_A_LOOK", 2)
    changed: list[str] = []
    told = exporting.Export._write_batch

    async def disturbed(self: Any, writer: Any, some: Any) -> None:
        if len(changed) < 3:
            changed.append(f"{6 - len(changed)}.md")
            await house.add(
                changed[-1], b"# Changed\n\nThe lamp was changed while it was copied.\n"
            )
            await house.work(JobKind.INGEST)
        await told(self, writer, some)

    monkeypatch.setattr(exporting.Export, "_write_batch", disturbed)
    data = await export(house)
    monkeypatch.undo()
    *_, contents = Verification(io.BytesIO(data)).steps()
    assert contents is not None
    live = await rows(house, DOCUMENTS, CONTAINER)
    assert contents.totals.documents == len(live)
    await take_in(house, data, "copy")
    copied = await rows(house, DOCUMENTS, "copy")
    assert [d["uri"] for d in copied] == [d["uri"] for d in live]
    assert [d["sha256"] for d in copied] == [d["sha256"] for d in live]


async def test_backups_are_kept_by_number_verified_and_restored(house: House) -> None:
    manifest = Manifest(
        id=CONTAINER, name="Notes", embedder="openai/test", dims=DIMS, backup={"keep": 2}
    )
    await sql(
        house.stack.db,
        f"UPDATE containers SET manifest = '{manifest.model_dump_json()}', etag = 'kept'",
    )
    await fill(house)
    before = await everything(house, CONTAINER)
    for _ in range(3):
        async with house.stack.db.transaction() as conn:
            await request_backup(conn, CONTAINER, principal=OWNER)
        assert await house.work(JobKind.BACKUP) == []
    async with house.stack.db.transaction() as conn:
        kept = await archives.listed(conn, ArchiveKind.BACKUP, [CONTAINER], 10)
        assert len(kept) == 2
        await request_backup(conn, CONTAINER, verify=kept[0].id, principal=OWNER)
    assert await house.work(JobKind.BACKUP) == []
    await delete(house, CONTAINER)
    await house.settle()
    async with house.stack.db.transaction() as conn:
        (newest, _) = await archives.listed(conn, ArchiveKind.BACKUP, [CONTAINER], 10)
        assert newest.verified_at is not None
    data = await house.stack.blobs.get(Sha256(newest.sha256))  # outlived its container
    await take_in(house, data, CONTAINER)
    assert await everything(house, CONTAINER) == before


async def test_a_container_is_restored_only_when_its_deletion_has_ended(house: House) -> None:
    await fill(house)
    before = await everything(house, CONTAINER)
    data = await export(house)
    async with house.stack.db.transaction() as conn:
        await delete_container(conn, CONTAINER, principal=OWNER)
    await begin(house, data, CONTAINER)
    (refused,) = await house.work(JobKind.IMPORT)
    assert isinstance(refused, Conflict)
    assert "still being deleted; try again when its job is done" in refused.message
    await house.settle()
    await take_in(house, data, CONTAINER)
    assert await everything(house, CONTAINER) == before
    assert (await house.examine()).clean


async def test_a_deletion_that_was_frozen_takes_nothing_of_what_was_restored_meanwhile(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(house)
    before = await everything(house, CONTAINER)
    data = await export(house)
    async with house.stack.db.transaction() as conn:
        await delete_container(conn, CONTAINER, principal=OWNER)
    frozen = await house.claim(JobKind.DELETE_CONTAINER)
    assert frozen is not None
    drop = house.stack.vectors.drop_collection

    async def meanwhile(name: str) -> None:
        monkeypatch.undo()
        await drop(name)
        await expire(house.stack.db, frozen.id)
        await reap(house.stack.db)
        assert await house.work(JobKind.DELETE_CONTAINER) == []
        await take_in(house, data, CONTAINER)

    monkeypatch.setattr(house.stack.vectors, "drop_collection", meanwhile)
    with pytest.raises(LeaseLost):
        await house.run(frozen)
    await house.settle()
    assert await everything(house, CONTAINER) == before
    assert (await house.examine()).clean


async def test_a_deletion_of_what_is_there_again_removes_nothing(house: House) -> None:
    await fill(house)
    before = await everything(house, CONTAINER)
    async with house.stack.db.transaction() as conn:
        await enqueue_removal(conn, CONTAINER, principal=OWNER)
    (refused,) = await house.work(JobKind.DELETE_CONTAINER)
    assert isinstance(refused, Conflict)
    assert await everything(house, CONTAINER) == before


async def test_a_merge_into_a_container_that_is_deleted_meanwhile_leaves_nothing(
    house: House,
) -> None:
    await fill(house)
    data = await export(house)
    await begin(house, data, CONTAINER, merge=True)
    await delete(house, CONTAINER)
    assert await house.work() == []
    assert await rows(house, DOCUMENTS, CONTAINER) == []
    assert (await house.examine()).clean


async def test_a_damaged_backup_fails_its_verification(house: House) -> None:
    async with house.stack.db.transaction() as conn:
        await request_backup(conn, CONTAINER, principal=OWNER)
    assert await house.work(JobKind.BACKUP) == []
    async with house.stack.db.transaction() as conn:
        (one,) = await archives.listed(conn, ArchiveKind.BACKUP, [CONTAINER], 10)
        await request_backup(conn, CONTAINER, verify=one.id, principal=OWNER)
    path = await house.stack.blobs.local_copy(Sha256(one.sha256))
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-9])
    (trouble,) = await house.work(JobKind.BACKUP)
    assert "truncated" in str(trouble)


async def test_what_came_due_is_enqueued_once_by_all_that_look_and_once_for_all_that_was_missed(
    house: House,
) -> None:
    db = house.stack.db
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
    (count,) = await sql(db, "SELECT count(*) AS jobs FROM jobs WHERE kind = 'backup'")
    assert count["jobs"] == 1


async def test_documents_whose_time_is_over_are_deleted_and_those_found_unchanged_stay(
    house: House,
) -> None:
    db = house.stack.db
    await house.add("old.md", b"# Old\n\nThe old lamp.\n")
    await house.add("kept.md", b"# Kept\n\nThe lens.\n")
    await house.add_corpus({"r1": "gulls", "r2": "terns"})
    assert await house.work() == []
    await sql(
        db,
        "UPDATE containers SET manifest = jsonb_set(manifest, '{ingest,ttl_days}', '7'), etag = 'ttl'",
    )
    await sql(db, "UPDATE documents SET fetched_at = now() - interval '8 days'")
    await house.add("kept.md", b"# Kept\n\nThe lens.\n")
    assert await house.work() == []
    assert await scheduler.delete_expired(db, lease_seconds=LEASE_SECONDS) == 2
    await house.settle()
    assert [r["uri"] for r in await rows(house, DOCUMENTS, CONTAINER)] == ["file:///kept.md"]
    assert await scheduler.delete_expired(db, lease_seconds=LEASE_SECONDS) == 0
    assert (await house.examine()).clean


async def test_what_is_not_offered_here_is_left_out_of_the_manifest_and_told(house: House) -> None:
    asks = "UPDATE containers SET manifest = jsonb_set(manifest, '{summaries,enabled}', 'true'), etag = 'asks'"
    await sql(house.stack.db, asks)
    data = await export(house)
    await take_in(house, data, "other")
    async with house.stack.db.transaction() as conn:
        made = await containers.get(conn, "other")
    assert made is not None
    assert not made.manifest.summaries.enabled
    (job,) = await sql(
        house.stack.db, "SELECT warnings FROM jobs WHERE kind = 'import' ORDER BY id DESC LIMIT 1"
    )
    assert "summaries.enabled" in job["warnings"][0]["message"]


async def test_golden_queries_go_along(house: House) -> None:
    golden = {"queries": [{"q": "lamp", "expect": ["lamp"]}]}
    folder = house.deps.settings.manifests / CONTAINER
    folder.mkdir(parents=True)
    (folder / "eval.json").write_bytes(orjson.dumps(golden))
    await house.add("a.md", b"# A\n\nThe lamp.\n")
    assert await house.work() == []
    data = await export(house)
    await take_in(house, data, "other")
    written = house.deps.settings.manifests / "other" / "eval.json"
    assert orjson.loads(written.read_bytes()) == golden


AGES = """
WITH older AS (UPDATE jobs SET started_at = started_at - interval '10 minutes' WHERE state = 'running')
UPDATE blobs SET touched_at = touched_at - interval '10 minutes'
"""


@pytest.mark.parametrize("killed", [False, True])
async def test_what_an_import_brings_outlives_a_collection_of_garbage_until_it_is_referred_to(
    house: House, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    await fill(house)
    data = await export(house)
    blobs = {r["sha256"] for r in await sql(house.stack.db, "SELECT sha256 FROM blob_refs")}
    await delete(house, CONTAINER)
    await house.settle()
    seen: list[str] = []

    async def collect() -> None:
        await sql(house.stack.db, AGES)
        await purge_blobs(
            house.stack.db,
            house.stack.blobs,
            older_than_seconds=2 * LEASE_SECONDS,
            checkpoint=no_pause,
        )

    async def staged(*args: Any) -> None:
        await stage(*args)
        await collect()
        seen.append("collected")
        if killed and len(seen) == 1:
            raise Unavailable("the attempt ends here")

    stage = import_steps.vectors.stage
    monkeypatch.setattr(import_steps.vectors, "stage", staged)
    job_id = await begin(house, data, CONTAINER)
    assert len(await house.work(JobKind.IMPORT)) == killed
    if killed:  # nobody runs: what it brought may go, and is brought again
        await collect()
        assert not blobs & (await house.stored())
        await sql(house.stack.db, "UPDATE jobs SET run_at = now(), lane = 'ready'")
        assert await house.work(JobKind.IMPORT) == []
    (job,) = await sql(
        house.stack.db, f"SELECT state, result, warnings FROM jobs WHERE id = {job_id}"
    )
    assert (job["state"], job["result"]["lacking_blobs"], job["warnings"]) == ("done", 0, [])
    assert seen
    assert blobs <= await house.stored()


async def no_pause() -> None:
    """Nothing has to be asked between two blobs."""


async def test_an_import_whose_bytes_vanish_before_its_commit_repeats_the_step(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(house)
    data = await export(house)
    await delete(house, CONTAINER)
    await house.settle()
    stage = import_steps.vectors.stage
    lost: list[str] = []

    async def staged(*args: Any) -> None:
        await stage(*args)
        if not lost:
            held = "SELECT sha256 FROM archives"
            query = f"DELETE FROM blobs WHERE sha256 NOT IN ({held}) RETURNING sha256"
            lost.extend(row["sha256"] for row in await sql(house.stack.db, query))

    monkeypatch.setattr(import_steps.vectors, "stage", staged)
    job_id = await begin(house, data, CONTAINER)
    (trouble,) = await house.work(JobKind.IMPORT)
    assert isinstance(trouble, BlobsGone)
    assert lost
    await sql(house.stack.db, "UPDATE jobs SET run_at = now(), lane = 'ready'")
    assert await house.work(JobKind.IMPORT) == []
    (job,) = await sql(house.stack.db, f"SELECT result, warnings FROM jobs WHERE id = {job_id}")
    assert (job["result"]["lacking_blobs"], job["warnings"]) == (0, [])


@pytest.mark.parametrize("policy", list(Policy))
async def test_a_merge_gives_way_to_what_was_accepted_before_it_unless_it_replaces(
    house: House, policy: Policy
) -> None:
    await house.add("live.md", b"# Live\n\nThe archived lamp.\n")
    await house.add("gone.md", b"# Gone\n\nThe archived lens.\n")
    assert await house.work() == []
    await sql(house.stack.db, "UPDATE documents SET source_modified_at = '2026-01-02'")
    data = await export(house)
    await remove(house, "gone.md")
    await sql(house.stack.db, "UPDATE documents SET source_modified_at = '2026-01-01'")
    await house.add("live.md", b"# Live\n\nThe accepted lamp.\n")
    await house.add("gone.md", b"# Gone\n\nThe accepted lens.\n")
    await take_in(house, data, CONTAINER, merge=True, policy=policy)
    assert await house.work() == []
    told = {r["text"].split()[-2] for r in await rows(house, CHUNKS, CONTAINER)}
    assert told == ({"archived"} if policy is Policy.REPLACE else {"accepted"})


async def test_a_document_whose_new_version_is_queued_is_not_over(house: House) -> None:
    db = house.stack.db
    await house.add("old.md", b"# Old\n\nThe old lamp.\n")
    assert await house.work() == []
    await sql(
        db,
        "UPDATE containers SET manifest = jsonb_set(manifest, '{ingest,ttl_days}', '7'), etag = 'ttl'",
    )
    await sql(db, "UPDATE documents SET fetched_at = now() - interval '8 days'")
    await house.add("old.md", b"# Old\n\nThe new lamp.\n")
    assert await scheduler.delete_expired(db, lease_seconds=LEASE_SECONDS) == 0
    assert await house.work() == []
    assert [text.split()[-2] for text in await house.texts()] == ["new"]


async def test_a_document_of_an_archived_container_waits_until_it_is_active_again(
    house: House,
) -> None:
    async def state(value: str) -> None:
        await sql(house.stack.db, f"UPDATE containers SET state = '{value}'")
        await sql(house.stack.db, "UPDATE jobs SET run_at = now(), lane = 'ready'")

    await house.add("a.md", b"# A\n\nThe lamp.\n")
    await house.add_corpus({"r1": "gulls"})
    for _ in range(7):  # more often than a job is tried
        await state("archived")
        assert await house.work() == []
    assert await house.texts() == []
    await state("readonly")
    assert await house.work() == []
    assert len(await house.texts()) == 2


async def test_the_proof_of_a_deletion_names_the_archives_that_still_hold_the_content(
    house: House,
) -> None:
    await house.add("a.md", b"# A\n\nThe lamp.\n")
    assert await house.work() == []
    await export(house)
    async with house.stack.db.transaction() as conn:
        await request_backup(conn, CONTAINER, principal=OWNER)
    assert await house.work(JobKind.BACKUP) == []
    for setup in ("hybrid", "lexical"):
        await sql(house.stack.db, KEPT_RUN, container_id=CONTAINER, setup=setup)
    await delete(house, CONTAINER)
    (job,) = await sql(
        house.stack.db, "SELECT result, warnings FROM jobs WHERE kind = 'delete_container'"
    )
    kept = job["result"]["archives_kept"]
    assert [name.split()[0] for name in kept] == ["backup", "export"]
    assert all(name in job["warnings"][0]["message"] for name in kept)
    assert job["result"]["eval_runs"] == 2
    assert await sql(house.stack.db, "SELECT 1 FROM eval_runs") == []
