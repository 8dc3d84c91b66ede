"""A folder is brought into a container: announced, then sent as far as it is new."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from typing_extensions import override

from latent_client import (
    AsyncClient,
    FolderProgress,
    SyncConsent,
    folder_listing,
    ingest_file,
    plan_folder,
    sync_folder,
)
from latent_client.files import read_blocks
from latent_client.folder import name_of
from latent_client.folder_listing import parts
from latent_client.uploads import READINGS
from latent_core.domain.errors import Conflict, Invalid, NotFound, OutOfSpace, RateLimited
from latent_core.domain.ids import content_hash
from latent_core.domain.job import JobState
from latent_core.wire.documents import ListedFile, UploadAnswer, UploadView
from tests.support.fake_gateway.gateway import MAX_UPLOAD, TOKEN, FakeGateway
from tests.support.fake_gateway.http import FakeResponse, failure

UPLOADS = "POST .*/uploads"
NOBODY = 65534
LONG_AGO = 1_700_000_000_123_456_789
"""No file system gives a file that changes now this time."""


@pytest.fixture
def museum(tmp_path: Path) -> Path:
    folder = tmp_path / "museum"
    (folder / "rooms").mkdir(parents=True)
    for name in ("index.md", "rooms/lamp.md", "rooms/lens.md"):
        (folder / name).write_text(f"about {name}", encoding="utf-8")
        os.utime(folder / name, ns=(LONG_AGO, LONG_AGO))
    return folder


def uris(gateway: FakeGateway) -> list[str]:
    return sorted(d.view.source_uri for d in gateway.documents.values())


async def test_the_documents_below_a_root_become_those_of_the_folder(
    client: AsyncClient, gateway: FakeGateway, museum: Path
) -> None:
    report = await sync_folder(client, "notes", museum)
    assert report.root == "museum"
    assert (report.files, report.unchanged, len(report.added)) == (3, 0, 3)
    assert uris(gateway) == [
        "file:///museum/index.md",
        "file:///museum/rooms/lamp.md",
        "file:///museum/rooms/lens.md",
    ]
    jobs = await client.wait(report.job_ids, timeout_seconds=10)
    assert [j.source_uri for j in jobs] == uris(gateway)


async def test_an_unchanged_folder_costs_one_call(
    client: AsyncClient, gateway: FakeGateway, museum: Path
) -> None:
    await sync_folder(client, "notes", museum)
    gateway.requests.clear()
    report = await sync_folder(client, "notes", museum)
    assert (report.unchanged, report.added, report.deleted) == (3, [], [])
    assert len(gateway.requests) == 1


async def test_a_file_that_was_only_touched_is_hashed_and_not_sent(
    client: AsyncClient, gateway: FakeGateway, museum: Path
) -> None:
    await sync_folder(client, "notes", museum)
    os.utime(museum / "index.md", ns=(1, 1))
    (museum / "rooms/lamp.md").write_text("another lamp", encoding="utf-8")
    gateway.requests.clear()
    report = await sync_folder(client, "notes", museum)
    assert report.unchanged == 2
    assert [a.source_uri for a in report.added] == ["file:///museum/rooms/lamp.md"]
    assert len(gateway.requests_to(UPLOADS)) == 1


async def test_what_vanished_is_deleted_unless_it_is_to_be_kept(
    client: AsyncClient, gateway: FakeGateway, museum: Path
) -> None:
    await sync_folder(client, "notes", museum)
    gateway.put("notes", "file:///other/a.md", b"text")
    (museum / "index.md").unlink()
    kept = await sync_folder(client, "notes", museum, delete_vanished=False)
    assert kept.deleted == []
    report = await sync_folder(client, "notes", museum)
    assert report.deleted == ["file:///museum/index.md"]
    assert len(report.delete_jobs) == 1
    assert "file:///other/a.md" in uris(gateway)
    assert len(gateway.documents) == 3


async def test_a_large_folder_is_announced_in_parts_that_together_cover_it(
    client: AsyncClient, gateway: FakeGateway, museum: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_listing, "LISTING_FILES", 2)
    old = [f"file:///museum/{name}" for name in ("a", "j", "k", "l", "rooms/lb.md", "z")]
    for uri in (*old, "file:///other/a.md", "file:///museumm/a.md"):
        gateway.put("notes", uri, b"text")
    consent = SyncConsent(take_over=True)
    report = await sync_folder(client, "notes", museum, consent=consent)
    assert sorted(report.deleted) == old
    assert len(report.added) == 3
    assert len(uris(gateway)) == 5
    # Both parts are counted before anything is deleted. The first one is repeated, since one listing deletes two.
    listings = [r.json() for r in gateway.requests_to("POST .*/listing")]
    assert [(one.get("through"), one["delete_vanished"]) for one in listings] == [
        ("rooms/lamp.md", False),
        (None, False),
        ("rooms/lamp.md", True),
        ("rooms/lamp.md", True),
        (None, True),
    ]


@given(st.sets(st.text("aä/𝄞z~", min_size=1, max_size=6), max_size=30), st.integers(1, 7))
def test_every_path_lies_in_exactly_one_part(paths: set[str], size: int) -> None:
    listed = [ListedFile(path=p, bytes=1, mtime_ns=1) for p in sorted(paths)]
    found = list(parts(listed, size))
    assert [f.path for part in found for f in part.files] == sorted(paths)
    assert (found[0].after, found[-1].through) == (None, None)
    for path in (*paths, "", "b", "zzz", "\U0010ffff"):
        deleting = [
            part
            for part in found
            if (part.after is None or path > part.after)
            and (part.through is None or path <= part.through)
        ]
        assert len(deleting) == 1


async def test_a_rebuild_sends_what_has_not_changed(
    client: AsyncClient, gateway: FakeGateway, museum: Path
) -> None:
    await sync_folder(client, "notes", museum)
    gateway.requests.clear()
    report = await sync_folder(client, "notes", museum, rebuild=True)
    assert (len(report.added), report.unchanged) == (3, 0)
    assert all(r.json()["rebuild"] for r in gateway.requests_to("POST .*/add"))


async def test_a_plan_tells_what_a_sync_would_do_and_does_nothing(
    client: AsyncClient, gateway: FakeGateway, museum: Path
) -> None:
    await sync_folder(client, "notes", museum)
    (museum / "index.md").unlink()
    (museum / "new.md").write_text("new", encoding="utf-8")
    (museum / "empty.md").touch()
    before = uris(gateway)
    plan = await plan_folder(client, "notes", museum)
    assert (plan.need, plan.vanished) == (frozenset({"new.md"}), 1)
    assert [f.path for f in plan.files] == ["new.md", "rooms/lamp.md", "rooms/lens.md"]
    assert [s.path for s in plan.skipped] == ["empty.md"]
    assert uris(gateway) == before


async def test_a_folder_is_up_to_date_when_its_jobs_are_done(
    client: AsyncClient, gateway: FakeGateway, museum: Path
) -> None:
    first = await client.ensure_index_up_to_date("notes", museum)
    assert first.up_to_date
    assert [job.state for job in first.jobs] == [JobState.DONE] * 3
    again = await client.ensure_index_up_to_date("notes", museum)
    assert (again.jobs, again.folder.unchanged, again.up_to_date) == ([], 3, True)
    (museum / "broken.pdf").write_text("%BROKEN", encoding="utf-8")
    broken = await client.ensure_index_up_to_date("notes", museum)
    assert [job.source_uri for job in broken.failed] == ["file:///museum/broken.pdf"]
    assert not broken.up_to_date


async def test_a_root_may_be_named(client: AsyncClient, gateway: FakeGateway, museum: Path) -> None:
    report = await sync_folder(client, "notes", museum, "haus am meer")
    assert report.root == "haus am meer"
    assert uris(gateway)[0] == "file:///haus am meer/index.md"


@pytest.mark.parametrize(("folder", "root"), [(Path("/"), None), (Path(), "a/b")])
async def test_a_root_without_a_usable_name_is_refused(
    folder: Path, root: str | None, client: AsyncClient
) -> None:
    with pytest.raises(Invalid, match="--root NAME"):
        await sync_folder(client, "notes", folder, root)


def test_a_folder_is_named_as_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    assert name_of(tmp_path / "link") == "link"
    monkeypatch.chdir(tmp_path / "real" / "inner")
    assert name_of(Path()) == "inner"
    assert name_of(Path("..")) == "real"


async def test_a_folder_without_a_readable_file_is_refused(
    client: AsyncClient, gateway: FakeGateway, tmp_path: Path
) -> None:
    (tmp_path / "empty.md").touch()
    (tmp_path / "icon.ico").write_bytes(b"x")
    with pytest.raises(Invalid, match=r"contains no readable document \(1 skipped, 1 ignored"):
        await sync_folder(client, "notes", tmp_path)
    assert not gateway.requests


@pytest.fixture
def as_nobody(data_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Root reads everything: a file that may not be read needs another user."""
    monkeypatch.setenv("LLC_DATA_DIR", str(data_root / ".latent"))
    if os.geteuid() != 0:
        yield
        return
    data_root.chmod(0o777)
    os.seteuid(NOBODY)
    yield
    os.seteuid(0)


@pytest.mark.usefixtures("as_nobody")
async def test_a_file_that_may_not_be_read_is_reported_and_its_document_stays(
    client: AsyncClient, gateway: FakeGateway, data_root: Path
) -> None:
    euid = os.geteuid()
    os.seteuid(os.getuid())
    for name in ("open.md", "closed.md", "known.md"):
        (data_root / name).write_text("text", encoding="utf-8")
        (data_root / name).chmod(0o644 if name == "open.md" else 0o000)
    os.seteuid(euid)
    gateway.put("notes", "file:///museum/known.md", b"other text")
    consent = SyncConsent(take_over=True)
    report = await sync_folder(client, "notes", data_root, "museum", consent=consent)
    assert [a.source_uri for a in report.added] == ["file:///museum/open.md"]
    assert [(s.path, s.reason) for s in report.skipped] == [
        ("closed.md", "cannot be read: permission denied"),
        ("known.md", "cannot be read: permission denied"),
    ]
    assert report.deleted == []
    assert "file:///museum/known.md" in uris(gateway)


@pytest.mark.usefixtures("as_nobody")
async def test_nothing_is_deleted_when_a_part_of_the_folder_could_not_be_seen(
    client: AsyncClient, gateway: FakeGateway, data_root: Path
) -> None:
    euid = os.geteuid()
    os.seteuid(os.getuid())
    (data_root / "open.md").write_text("text", encoding="utf-8")
    (data_root / "closed").mkdir(mode=0o000)
    os.seteuid(euid)
    gateway.put("notes", "file:///museum/closed/a.md", b"text")
    consent = SyncConsent(take_over=True)
    report = await sync_folder(client, "notes", data_root, "museum", consent=consent)
    assert report.kept == "parts of the folder could not be read"
    assert "file:///museum/closed/a.md" in uris(gateway)


async def test_a_file_that_is_refused_is_reported_and_the_others_go_on(
    client: AsyncClient, museum: Path
) -> None:
    (museum / "huge.txt").write_bytes(b"x" * (MAX_UPLOAD + 1))
    report = await sync_folder(client, "notes", museum)
    assert len(report.added) == 3
    assert [(s.path, s.reason) for s in report.skipped] == [
        ("huge.txt", f"an upload has at most {MAX_UPLOAD} bytes")
    ]


@pytest.mark.parametrize("error", [OutOfSpace("full"), Conflict("the container is readonly")])
async def test_what_concerns_all_files_ends_the_run(
    error: OutOfSpace | Conflict, client: AsyncClient, gateway: FakeGateway, museum: Path
) -> None:
    gateway.failures = [(UPLOADS, failure(error))]
    with pytest.raises(type(error)):
        await sync_folder(client, "notes", museum)


async def test_an_unknown_container_is_reported_before_anything_is_sent(
    client: AsyncClient, gateway: FakeGateway, museum: Path
) -> None:
    with pytest.raises(NotFound):
        await sync_folder(client, "nothing", museum)
    assert not gateway.requests_to(UPLOADS)


async def test_a_rate_limit_is_waited_out(
    client: AsyncClient, gateway: FakeGateway, museum: Path
) -> None:
    limited = FakeResponse(429, b'{"issues": []}', headers={"retry-after": "0.01"})
    gateway.failures = [(UPLOADS, limited), ("POST .*/add", limited), (UPLOADS, limited)]
    report = await sync_folder(client, "notes", museum)
    assert len(report.added) == 3


async def test_a_rate_limit_without_end_is_an_error(
    client: AsyncClient, gateway: FakeGateway, museum: Path
) -> None:
    limited = FakeResponse(429, b'{"issues": []}', headers={"retry-after": "0"})
    gateway.failures = [(UPLOADS, limited)] * 50
    with pytest.raises(RateLimited):
        await sync_folder(client, "notes", museum)


async def test_progress_is_reported_by_stage(
    client: AsyncClient, gateway: FakeGateway, museum: Path
) -> None:
    reports: list[FolderProgress] = []
    await sync_folder(client, "notes", museum, on_progress=reports.append)
    os.utime(museum / "index.md", ns=(1, 1))
    await sync_folder(client, "notes", museum, on_progress=reports.append)
    assert [(p.stage, p.done, p.total) for p in reports] == [
        ("list", 3, 3),
        ("upload", 1, 3),
        ("upload", 2, 3),
        ("upload", 3, 3),
        ("list", 3, 3),
        ("hash", 1, 1),
        ("list", 1, 1),
    ]


class ChangingClient(AsyncClient):
    """While it sends a file, another program writes the next version."""

    versions: list[str]

    @override
    async def upload(
        self,
        container_id: str,
        file: Path,
        *,
        filename: str | None = None,
        mime: str = "application/octet-stream",
    ) -> UploadView:
        async def blocks() -> AsyncIterator[bytes]:
            async for block in read_blocks(file):
                half = len(block) // 2
                yield block[:half]
                if self.versions:
                    await asyncio.to_thread(file.write_text, self.versions.pop(0), "utf-8")
                yield (await asyncio.to_thread(file.read_bytes))[half:]

        answer = await self._transport.ask(
            UploadAnswer,
            "POST",
            f"/v1/containers/{container_id}/uploads",
            query={"filename": filename or file.name},
            headers={"Content-Type": mime},
            body=blocks,
            repeatable=False,
        )
        return answer.upload


@pytest.fixture
async def changing(gateway: FakeGateway) -> AsyncIterator[ChangingClient]:
    async with ChangingClient(gateway.url, TOKEN, timeout_seconds=10) as client:
        yield client


def texts(gateway: FakeGateway) -> list[str]:
    return [document.text for document in gateway.documents.values()]


async def test_a_file_that_changes_while_it_is_read_is_read_again(
    changing: ChangingClient, gateway: FakeGateway, tmp_path: Path
) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "a.md").write_text("old old old", encoding="utf-8")
    os.utime(tmp_path / "log" / "a.md", ns=(LONG_AGO, LONG_AGO))
    changing.versions = ["new new new"]
    await sync_folder(changing, "notes", tmp_path / "log")
    assert texts(gateway) == ["new new new"]
    assert len(gateway.requests_to(UPLOADS)) == 2
    assert (await sync_folder(changing, "notes", tmp_path / "log")).unchanged == 1


async def test_a_file_that_never_stops_changing_is_stored_as_read_and_seen_by_the_next_sync(
    changing: ChangingClient, gateway: FakeGateway, tmp_path: Path
) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "a.md").write_text("aaaaaaaa", encoding="utf-8")
    changing.versions = ["bbbbbbbb", "cccccccc", "dddddddd"]
    await sync_folder(changing, "notes", tmp_path / "log")
    [stored] = gateway.documents.values()
    assert (stored.text, stored.view.sha256) == ("ccccdddd", content_hash("ccccdddd"))
    assert len(gateway.requests_to(UPLOADS)) == READINGS
    assert len((await sync_folder(changing, "notes", tmp_path / "log")).added) == 1
    assert texts(gateway) == ["dddddddd"]


@pytest.mark.parametrize("coarse", [True, False])
async def test_a_change_within_the_same_tick_of_the_file_systems_clock_is_seen(
    client: AsyncClient, gateway: FakeGateway, tmp_path: Path, coarse: bool
) -> None:
    """It has the same size and time. FAT counts in steps of two seconds."""
    now = time.time_ns() + 10**9  # what is written during this test
    tick = now // 10**9 * 10**9 if coarse else now
    folder, file = tmp_path / "stick", tmp_path / "stick" / "a.md"
    folder.mkdir()
    for step, text in enumerate(("one", "two", "one", "one", "six")):
        file.write_text(text, encoding="utf-8")
        os.utime(file, ns=(tick, tick))
        report = await sync_folder(client, "notes", folder)
        assert (texts(gateway), len(report.added)) == ([text], int(step != 3))


async def test_a_file_whose_time_has_settled_is_hashed_once_and_then_never_again(
    client: AsyncClient, gateway: FakeGateway, museum: Path
) -> None:
    file = museum / "index.md"
    ahead = time.time_ns() + 10**12
    os.utime(file, ns=(ahead, ahead))
    await sync_folder(client, "notes", museum)
    gateway.requests.clear()
    await sync_folder(client, "notes", museum)
    assert [len(r.json()["files"]) for r in gateway.requests_to("POST .*/listing")] == [3, 1]
    os.utime(file, ns=(LONG_AGO, LONG_AGO))
    await sync_folder(client, "notes", museum)
    gateway.requests.clear()
    assert (await sync_folder(client, "notes", museum)).unchanged == 3
    assert len(gateway.requests) == 1


async def test_a_single_file_has_its_name_or_the_given_uri(
    client: AsyncClient, gateway: FakeGateway, museum: Path
) -> None:
    await ingest_file(client, "notes", museum / "index.md")
    await ingest_file(client, "notes", museum / "index.md", "file:///start")
    assert uris(gateway) == ["file:///index.md", "file:///start"]
    assert [document.mtime_ns for document in gateway.documents.values()] == [LONG_AGO, LONG_AGO]


@pytest.mark.parametrize("name", ["nothing.md", "rooms"])
async def test_a_file_that_is_none_is_refused(name: str, client: AsyncClient, museum: Path) -> None:
    with pytest.raises(Invalid, match=f"{name} is not a file"):
        await ingest_file(client, "notes", museum / name)
