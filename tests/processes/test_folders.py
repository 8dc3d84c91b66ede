"""Folders in a running installation: what changed is sent, what vanished is gone, what is the same costs nothing."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from latent_client import AsyncClient, SyncConsent, ingest_file, plan_folder, sync_folder
from latent_client.folder import FolderReport
from latent_client.folder_listing import parts
from latent_client.folder_watch import (
    WatchChange,
    WatchEvent,
    WatchTarget,
    WatchTimings,
    watch_folder,
)
from latent_core.domain.errors import Conflict, Invalid, NotFound
from latent_core.domain.job import JobState
from latent_core.domain.manifest.model import SearchMode
from latent_core.wire.documents import ListedFile
from tests.http.test_http_surface import add, ingest, manifest, search
from tests.support.harness.installation import LATENT, Installation, eventually
from tests.support.servers.embedding_server import EmbeddingServer

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def museum(tmp_path: Path) -> Path:
    folder = tmp_path / "museum"
    write(folder, "lamp.md", "# Lamp\n\nThe lamp burns colza oil.\n")
    write(folder, "rooms/lens.md", "# Lens\n\nA Fresnel lens of the first order.\n")
    write(folder, "rooms/horn.txt", "The fog horn sounds twice a minute.\n")
    return folder


def write(folder: Path, name: str, text: str) -> None:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def age(folder: Path) -> None:
    """A file that changed just now is compared by its hash."""
    for file in folder.rglob("*.*"):
        os.utime(file, (1_700_000_000, 1_700_000_000))


async def synced(client: AsyncClient, container: str, folder: Path, **more: Any) -> FolderReport:
    """Sync, and wait until all jobs are done."""
    report = await sync_folder(client, container, folder, **more)
    jobs = await client.wait(report.job_ids, timeout_seconds=60)
    assert [j for j in jobs if j.state is not JobState.DONE] == []
    return report


async def embedded(client: AsyncClient) -> float:
    """Texts that were embedded so far, not counting those the cache had."""
    lines = (await client.metrics()).splitlines()
    return sum(
        float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith("latent_embedded_texts_total")
    )


async def stored(client: AsyncClient, container: str) -> dict[str, dict[str, Any]]:
    """Source uri below the root to meta, of all documents but records."""
    return {
        d.source_uri.removeprefix("file:///museum/"): d.meta
        async for d in client.documents(container)
        if d.parent_id is None
    }


async def test_a_folder_is_kept_in_step_and_a_rename_embeds_nothing(
    client: AsyncClient, museum: Path
) -> None:
    await client.create(manifest("steps"))
    first = await synced(client, "steps", museum)
    assert len(first.added) == 3
    before = await embedded(client)
    (museum / "rooms" / "lens.md").rename(museum / "optics.md")
    os.utime(museum / "lamp.md", ns=(1, 1))
    second = await synced(client, "steps", museum)
    assert [a.source_uri for a in second.added] == ["file:///museum/optics.md"]
    assert second.deleted == ["file:///museum/rooms/lens.md"]
    assert second.unchanged == 2
    assert await embedded(client) == before
    assert set(await stored(client, "steps")) == {"lamp.md", "optics.md", "rooms/horn.txt"}
    answer = await search(client, "steps", "Fresnel lens", mode=SearchMode.LEXICAL)
    assert [hit.source_uri for hit in answer.hits] == ["file:///museum/optics.md"]


async def test_two_folders_of_one_name_never_touch_each_others_documents(
    client: AsyncClient, http: httpx.AsyncClient, museum: Path, tmp_path: Path
) -> None:
    await client.create(manifest("namesakes"))
    await synced(client, "namesakes", museum)
    other = tmp_path / "other" / "museum"
    write(other, "buoy.md", "# Buoy\n\nThe bell buoy rings.\n")
    second = await synced(client, "namesakes", other)
    assert (second.root, second.deleted) == ("museum~2", [])
    for folder in (museum, other):
        again = await sync_folder(client, "namesakes", folder)
        assert (again.added, again.deleted) == ([], [])
    found = {s.root: (s.folder, s.synced_at) for s in await client.sources("namesakes")}
    assert {root: folder for root, (folder, _) in found.items()} == {
        "museum": str(museum),
        "museum~2": str(other),
    }
    assert all(at is not None for _, at in found.values())
    # A client that knows no sources can add to a synced folder but deletes nothing of it.
    listing = {"root": "museum", "files": [], "delete_vanished": True}
    refused = await http.post("/v1/containers/namesakes/listing", json=listing)
    assert refused.status_code == 409
    assert "does not name its source" in refused.json()["issues"][0]["message"]
    listing["delete_vanished"] = False
    assert (await http.post("/v1/containers/namesakes/listing", json=listing)).status_code == 200
    uris = [d.source_uri async for d in client.documents("namesakes")]
    assert len(uris) == 4


async def test_a_moved_folder_and_a_second_client_need_consent(
    client: AsyncClient, http: httpx.AsyncClient, museum: Path, tmp_path: Path
) -> None:
    await client.create(manifest("moved"))
    await synced(client, "moved", museum)
    await asyncio.to_thread(museum.rename, tmp_path / "renamed")
    with pytest.raises(Conflict, match="--take-over"):
        await sync_folder(client, "moved", tmp_path / "renamed")
    taken = await sync_folder(
        client, "moved", tmp_path / "renamed", consent=SyncConsent(take_over=True)
    )
    assert (taken.root, taken.unchanged, taken.added) == ("museum", 3, [])
    # The place that it was taken from no longer syncs it.
    write(museum, "lamp.md", "# Lamp\n\nAnother lamp.\n")
    left = await sync_folder(client, "moved", museum)
    assert (left.root, left.deleted) == ("museum~2", [])
    audited = (await http.get("/v1/audit?container_id=moved&action=source.")).json()["audit"]
    assert [(line["action"], line["object"]) for line in audited] == [
        ("source.create", "museum~2"),
        ("source.take_over", "museum"),
        ("source.create", "museum"),
    ]


async def test_a_listing_that_would_delete_a_third_deletes_nothing_unless_it_says_so(
    client: AsyncClient, http: httpx.AsyncClient, museum: Path
) -> None:
    await client.create(manifest("withheld"))
    for n in range(30):
        write(museum, f"many/{n:02}.txt", f"Buoy {n} rings.\n")
    await synced(client, "withheld", museum)
    for n in range(25):
        (museum / "many" / f"{n:02}.txt").unlink()
    report = await sync_folder(client, "withheld", museum)
    assert (report.withheld, report.deleted) == (25, [])
    [source] = await client.sources("withheld")
    listing = {"root": "museum", "files": [], "source": str(source.source_id)}
    raw = (await http.post("/v1/containers/withheld/listing", json=listing)).json()
    assert (raw["vanished"], raw["documents"], raw["deleted"]) == (33, 33, [])
    assert raw["issues"][0]["code"] == "POLICY"
    assert "Send allow_deletions: true" in raw["issues"][0]["message"]
    consent = SyncConsent(allow_deletions=True)
    assert len((await sync_folder(client, "withheld", museum, consent=consent)).deleted) == 25


async def test_a_forgotten_source_leaves_its_documents_unless_they_are_to_be_deleted(
    client: AsyncClient, http: httpx.AsyncClient, museum: Path
) -> None:
    await client.create(manifest("forgotten"))
    await synced(client, "forgotten", museum)
    [source] = await client.sources("forgotten")
    assert source.documents == 3
    first = await client.forget_source("forgotten", source.source_id)
    assert (first.documents, first.deleted, first.partial) == (3, 0, False)
    assert await client.sources("forgotten") == []
    assert len(await stored(client, "forgotten")) == 3
    # Synced again, the folder continues its documents under the same root.
    again = await sync_folder(client, "forgotten", museum)
    assert (again.root, again.unchanged, again.added) == ("museum", 3, [])
    [source] = await client.sources("forgotten")
    await ingest(
        client, "forgotten", "a.md", b"# A\n\nAnother one.\n", source_uri="file:///museum too/a.md"
    )
    gone = await client.forget_source("forgotten", source.source_id, delete_documents=True)
    assert (gone.documents, gone.deleted, gone.partial) == (0, 3, False)
    left = [d.source_uri async for d in client.documents("forgotten")]
    assert left == ["file:///museum too/a.md"]
    with pytest.raises(NotFound, match="has no source"):
        await client.forget_source("forgotten", source.source_id)
    audited = (await http.get("/v1/audit?container_id=forgotten&action=source.forget")).json()
    assert [line["object"] for line in audited["audit"]] == ["museum", "museum"]


async def test_ten_worktrees_embed_no_text_twice(
    client: AsyncClient, museum: Path, tmp_path: Path
) -> None:
    await client.create(manifest("worktrees"))
    for n in range(5):
        write(museum, f"code/{n}.py", f"def beacon_{n}():\n    return 'worktree {n}'\n")
    trees = [tmp_path / f"tree{n}" / "museum" for n in range(10)]
    for tree in trees:
        shutil.copytree(museum, tree)
    before = await embedded(client)
    reports = await asyncio.gather(*(sync_folder(client, "worktrees", tree) for tree in trees))
    assert len({report.root for report in reports}) == 10
    for report in reports:
        jobs = await client.wait(report.job_ids, timeout_seconds=120)
        assert {job.state for job in jobs} == {JobState.DONE}
    first = await embedded(client) - before
    texts = {c.text async for c in client.chunks("worktrees")}
    assert 0 < first <= len(texts)


async def test_sources_travel_with_an_export(
    client: AsyncClient, museum: Path, tmp_path: Path
) -> None:
    await client.create(manifest("travelling"))
    await synced(client, "travelling", museum)
    queued = await client.export("travelling")
    assert queued.job_id is not None
    [job] = await client.wait([queued.job_id], timeout_seconds=60)
    assert job.result is not None
    finished = await client.exported(int(job.result["archive_id"]))
    await client.download(finished, tmp_path / "travelling.tar.zst")
    before = await client.sources("travelling")
    await client.wait([(await client.delete("travelling")).job_id], timeout_seconds=60)
    imported = await client.import_archive(tmp_path / "travelling.tar.zst")
    await client.wait([imported.job_id], timeout_seconds=60)
    assert await client.sources("travelling") == before
    again = await sync_folder(client, "travelling", museum)
    assert (again.root, again.notice, again.deleted) == ("museum", None, [])


async def test_files_whose_recipe_changed_are_requested_again(
    client: AsyncClient, museum: Path
) -> None:
    await client.create(manifest("settings"))
    await synced(client, "settings", museum)
    assert (await sync_folder(client, "settings", museum)).added == []
    described = await client.describe("settings")
    await client.update(manifest("settings", chunker={"size": 32}), if_match=described.etag)
    assert len((await synced(client, "settings", museum)).added) == 3
    assert (await sync_folder(client, "settings", museum)).added == []


async def test_a_rebuild_makes_a_new_generation_without_embedding_and_without_a_gap(
    client: AsyncClient, museum: Path
) -> None:
    await client.create(manifest("rebuilt"))
    await synced(client, "rebuilt", museum)
    before = await embedded(client)
    generations = {d.source_uri: d.generation async for d in client.documents("rebuilt")}
    report = await sync_folder(client, "rebuilt", museum, rebuild=True)

    async def still_there() -> bool:
        found = await search(client, "rebuilt", "colza", mode=SearchMode.LEXICAL)
        assert found.partial or [hit.source_uri for hit in found.hits] == ["file:///museum/lamp.md"]
        states = [(await client.job(job)).state for job in report.job_ids]
        return all(state is JobState.DONE for state in states)

    await eventually(still_there, what="the rebuild")
    after = {d.source_uri: d.generation async for d in client.documents("rebuilt")}
    assert all((after[uri] or 0) > (generations[uri] or 0) for uri in generations)
    assert await embedded(client) == before


async def test_meta_comes_from_flags_sidecar_path_and_front_matter_in_this_order(
    client: AsyncClient, museum: Path
) -> None:
    schema = {"year": "integer", "kind": ["print", "oil"]}
    await client.create(
        manifest(
            "metas",
            metadata={"custom_schema": schema},
            ingest={"meta_from_path": "{year}/{city}.md"},
        )
    )
    write(
        museum, "1905/dresden.md", "---\nyear: 1800\nauthor: Kirchner\nkind: oil\n---\n\nBridge\n"
    )
    write(museum, "1905/dresden.md.meta.yaml", "kind: print\nlang: de\n")
    await synced(client, "metas", museum, meta={"lang": "en"})
    meta = (await stored(client, "metas"))["1905/dresden.md"]
    expected = {
        "year": 1905,
        "city": "dresden",
        "author": "Kirchner",
        "kind": "print",
        "lang": "en",
    }
    assert {key: meta.get(key) for key in expected} == expected
    assert "1905/dresden.md.meta.yaml" not in await stored(client, "metas")


async def test_meta_that_the_schema_does_not_allow_is_refused_or_fails_by_its_field(
    client: AsyncClient, museum: Path
) -> None:
    await client.create(
        manifest("strict", metadata={"custom_schema": {"year": {"type": "integer"}}})
    )
    with pytest.raises(Invalid, match=r"meta\.year must be a whole number, not 'old'"):
        await ingest_file(client, "strict", museum / "lamp.md", meta={"year": "old"})
    write(museum, "bad.md", "---\nyear: old\n---\n\nText\n")
    write(
        museum,
        "records.jsonl",
        '{"_id": "a", "text": "one", "year": 1}\n{"_id": "b", "text": "two", "year": "x"}\n',
    )
    report = await sync_folder(client, "strict", museum)
    jobs = await client.wait(report.job_ids, timeout_seconds=60)
    failed = [j for j in jobs if j.state is JobState.FAILED]
    assert [(j.source_uri, j.cause and j.cause.message) for j in failed] == [
        (
            "file:///museum/bad.md",
            "meta.year must be a whole number, not 'old'; see metadata.custom_schema",
        )
    ]
    [corpus] = [j for j in jobs if j.source_uri == "file:///museum/records.jsonl"]
    assert "line 2: meta.year must be a whole number, not 'x'" in corpus.warnings[0].message
    records = [d.external_id async for d in client.documents("strict") if d.parent_id]
    assert records == ["a"]


async def test_a_refused_file_is_reported_and_not_sent_again_until_it_changes(
    client: AsyncClient, museum: Path
) -> None:
    await client.create(manifest("refused"))
    write(museum, "blank.txt", " \n \n")
    first = await sync_folder(client, "refused", museum)
    await client.wait(first.job_ids, timeout_seconds=60)
    second = await sync_folder(client, "refused", museum)
    assert second.added == []
    [skipped] = second.skipped
    assert skipped.path == "blank.txt"
    assert "is empty (unchanged since it failed" in skipped.reason
    write(museum, "blank.txt", "now it says something\n")
    assert len((await synced(client, "refused", museum)).added) == 1


async def test_what_is_under_way_is_not_sent_twice_and_is_waited_for(
    client: AsyncClient, museum: Path
) -> None:
    await client.create(manifest("underway"))
    for n in range(40):
        write(museum, f"many/{n}.txt", f"Buoy number {n} rings its bell.\n")
    first = await sync_folder(client, "underway", museum)
    second = await client.ensure_index_up_to_date("underway", museum, timeout_seconds=60)
    assert second.folder.added == []
    assert second.up_to_date
    assert set(second.folder.open_jobs) <= set(first.job_ids)
    states = [(await client.job(job)).state for job in first.job_ids]
    assert states == [JobState.DONE] * 43


async def test_a_part_of_a_listing_deletes_in_its_range_alone(
    client: AsyncClient, http: httpx.AsyncClient, museum: Path
) -> None:
    await client.create(manifest("ranges"))
    for name in ("a", "b", "ä", "𝄞", "z"):
        write(museum, f"{name}.txt", f"Note {name} is sung.\n")
    await synced(client, "ranges", museum)
    listing = "/v1/containers/ranges/listing"
    [source] = await client.sources("ranges")
    body = {"root": "museum", "files": [], "after": "b.txt", "through": "ä.txt"}
    body["source"] = str(source.source_id)
    counted = await http.post(
        listing, json={**body, "delete_vanished": False, "count_vanished": True}
    )
    assert (counted.json()["vanished"], counted.json()["deleted"]) == (5, [])
    gone = (await http.post(listing, json=body)).json()
    assert sorted(uri.rpartition("/")[2] for uri in gone["deleted"]) == [
        "horn.txt",
        "lamp.md",
        "lens.md",
        "z.txt",
        "ä.txt",
    ]
    assert set(await stored(client, "ranges")) == {"a.txt", "b.txt", "𝄞.txt"}
    outside = {"path": "a.txt", "bytes": 1, "mtime_ns": 1}
    refused = await http.post(listing, json={**body, "files": [outside]})
    assert refused.status_code == 400
    assert "'a.txt' is outside of the listed part" in refused.json()["issues"][0]["message"]


async def test_a_folder_sent_in_parts_loses_what_vanished_between_them(
    client: AsyncClient, museum: Path
) -> None:
    await client.create(manifest("parted"))
    for n in range(12):
        write(museum, f"many/{n:02}.txt", f"Buoy {n} rings.\n")
    age(museum)
    await synced(client, "parted", museum)
    (museum / "many" / "05.txt").unlink()
    kept = [f"many/{n:02}.txt" for n in range(12) if n != 5]
    listed = [
        ListedFile(
            path=p, bytes=(museum / p).stat().st_size, mtime_ns=(museum / p).stat().st_mtime_ns
        )
        for p in ["lamp.md", *kept, "rooms/horn.txt", "rooms/lens.md"]
    ]
    deleted: list[str] = []
    [source] = await client.sources("parted")
    for part in parts(listed, 4):
        answer = await client.listing(
            "parted",
            "museum",
            part.files,
            after=part.after,
            through=part.through,
            delete_vanished=True,
            source=source.source_id,
        )
        assert answer.unchanged == len(part.files)
        deleted += answer.deleted
    assert deleted == ["file:///museum/many/05.txt"]


async def test_the_senders_time_counts_for_a_file_below_an_ingest_root(
    client: AsyncClient, installation: Installation
) -> None:
    await client.create(manifest("times"))
    inbox = Path(installation.environment()["LLC_INGEST_ROOTS"])
    (inbox / "dated.txt").write_text("The log of 1905.", encoding="utf-8")
    queued = await client.add(
        "times", file_ref="dated.txt", modified_at=datetime(1905, 6, 7, tzinfo=UTC)
    )
    await client.wait([queued.job_id], timeout_seconds=60)
    document = await client.document("times", queued.doc_id)
    assert document.modified_at == datetime(1905, 6, 7, tzinfo=UTC)


async def test_a_dry_run_tells_figures_and_changes_nothing(
    client: AsyncClient, installation: Installation, museum: Path
) -> None:
    await client.create(manifest("rehearsal"))
    await synced(client, "rehearsal", museum)
    write(museum, "table.md", "# T\n\n| a | b |\n|---|---|\n| 1 | 2 |\n")
    write(museum, "blank.txt", "   \n")
    write(museum, "two.jsonl", '{"_id": 1, "text": "one"}\n{"_id": 2, "text": "two"}\n')
    write(museum, "skipped.md", "")
    (museum / "lamp.md").unlink()
    before = await stored(client, "rehearsal")
    code, out, err = await installation.cli(
        "ingest", str(museum), "-c", "rehearsal", "--dry-run", "--json"
    )
    assert code == 0, err
    given_report = json.loads(out)
    assert (given_report["to_send"], given_report["unchanged"], given_report["would_delete"]) == (
        3,
        2,
        1,
    )
    assert given_report["types"]["markdown"]["tables"] == 1
    assert (
        given_report["types"]["jsonl"]["files"],
        given_report["types"]["jsonl"]["documents"],
    ) == (1, 2)
    total = given_report["total"]
    assert sum(bar["chunks"] for bar in total["histogram"]) == total["chunks"] >= 5
    assert total["tokens_min"] <= total["tokens_avg"] <= total["tokens_max"]
    assert [one["path"] for one in given_report["would_fail"]] == ["museum/blank.txt"]
    assert [one["path"] for one in given_report["skipped"]] == ["skipped.md"]
    assert "LLC_EMBED_RATE_LIMIT_PER_MIN" in given_report["estimate"]["basis"]
    assert await stored(client, "rehearsal") == before
    shown = await installation.cli("ingest", str(museum), "-c", "rehearsal", "--dry-run")
    assert "3 files would be sent, 2 unchanged, 1 documents deleted" in shown[1]


@pytest.mark.slow
async def test_a_watch_survives_a_restart_of_the_gateway(
    install_root: Path, embedding_server: EmbeddingServer, museum: Path
) -> None:
    one = Installation(
        install_root / "restarted",
        {
            "LLC_EMBED_BASE_URL": embedding_server.base_url,
            "LLC_EMBED_RATE_LIMIT_PER_MIN": "100000000",
            "LLC_MCP_TOKEN": "of-the-test",
            "LLC_PORT": str(_free_port()),
        },
    )
    await one.start()
    events: list[WatchEvent] = []
    stop = asyncio.Event()
    pace = WatchTimings(
        debounce_ms=200, quiet_ms=20, tick_ms=50, first_pause=0.1, longest_pause=0.5
    )
    try:
        async with AsyncClient(one.url, "of-the-test") as client:
            await client.create(manifest("watched"))
            watch = asyncio.create_task(
                watch_folder(client, WatchTarget("watched", museum), events.append, stop, pace=pace)
            )
            await eventually(lambda: _has_event(events, WatchChange.INDEXED), what="the first sync")
            await one.stop()
            write(museum, "new.md", "# New\n\nA bell buoy.\n")
            await eventually(
                lambda: _has_event(events, WatchChange.UNREACHABLE), what="the gateway to be missed"
            )
            await one.start()
            await eventually(lambda: _has_event(events, WatchChange.INDEXED, 2), what="the change")
            assert [e.path for e in events if e.change is WatchChange.SENT] == ["new.md"]
            stop.set()
            await watch
    finally:
        stop.set()
        await one.stop()


JOBS_AT_ONCE = 4
"""Of a worker, by default."""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _has_event(events: list[WatchEvent], change: WatchChange, times: int = 1) -> bool:
    return sum(event.change is change for event in events) >= times


async def test_an_interrupted_watch_ends_cleanly(
    client: AsyncClient, installation: Installation, museum: Path
) -> None:
    await client.create(manifest("interrupted"))
    process = await asyncio.create_subprocess_exec(
        str(LATENT),
        *("ingest", str(museum), "-c", "interrupted", "--watch", "--json"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=installation.environment(),
    )
    assert process.stdout is not None
    assert process.stderr is not None
    async with asyncio.timeout(60):
        while (await process.stdout.readline()).find(b'"indexed"') < 0:
            pass
        write(museum, "new.md", "# New\n\nA bell buoy.\n")
        line = await process.stdout.readline()
        assert json.loads(line)["change"] == "sent"
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0
        assert await process.stderr.read() == b""


async def test_a_large_folder_does_not_starve_another_containers_single_file(
    client: AsyncClient, museum: Path
) -> None:
    for name in ("crowd", "single"):
        await client.create(manifest(name))
    for n in range(60):
        write(museum, f"many/{n}.txt", f"Buoy number {n} rings its bell.\n")
    report = await sync_folder(client, "crowd", museum)
    added = await add(client, "single", "one.txt", b"One lamp for another house.")
    (one,) = await client.wait([added.job_id], timeout_seconds=60)
    crowd = await client.wait(report.job_ids, timeout_seconds=120)
    ended = [j.finished_at for j in crowd if j.finished_at is not None]
    assert one.finished_at is not None
    still_open = [at for at in ended if at > one.created_at]
    # Those that run already end in any order; a fast worker may leave no others.
    waiting = len(still_open) > 3 * JOBS_AT_ONCE
    assert not waiting or one.finished_at < max(still_open), "it waited for all before it"


async def test_a_plan_counts_what_a_rebuild_would_send(client: AsyncClient, museum: Path) -> None:
    await client.create(manifest("planned"))
    await synced(client, "planned", museum)
    assert (await plan_folder(client, "planned", museum)).need == frozenset()
    assert len((await plan_folder(client, "planned", museum, rebuild=True)).need) == 3
