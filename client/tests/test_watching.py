"""A folder that is watched stays in step with its container."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from latent_client import AsyncClient, folder_changes, retry
from latent_client.folder_watch import (
    WatchChange,
    WatchEvent,
    WatchTarget,
    WatchTimings,
    watch_folder,
)
from latent_core.domain.errors import Invalid, NotFound, Unavailable
from tests.support.fake_gateway.gateway import FakeGateway
from tests.support.fake_gateway.http import failure

PACE = WatchTimings(
    debounce_ms=200, quiet_ms=20, tick_ms=50, first_pause=0.02, longest_pause=0.05, poll_seconds=0.1
)


class IssueSummary:
    """What a watch has told so far."""

    def __init__(self) -> None:
        self.events: list[WatchEvent] = []
        self._news = asyncio.Event()

    def __call__(self, event: WatchEvent) -> None:
        self.events.append(event)
        self._news.set()

    async def until(self, holds: Callable[[list[WatchEvent]], bool]) -> None:
        async with asyncio.timeout(20):
            while not holds(self.events):
                self._news.clear()
                await self._news.wait()

    def paths(self, change: WatchChange) -> list[str | None]:
        return [event.path for event in self.events if event.change is change]


def has(
    change: WatchChange, path: str | None = None, times: int = 1
) -> Callable[[list[WatchEvent]], bool]:
    return lambda events: (
        sum(e.change is change and (path is None or e.path == path) for e in events) >= times
    )


@pytest.fixture
def museum(tmp_path: Path) -> Path:
    folder = tmp_path / "museum"
    (folder / "rooms").mkdir(parents=True)
    (folder / "lamp.md").write_text("The lamp", encoding="utf-8")
    (folder / "rooms" / "lens.md").write_text("The lens", encoding="utf-8")
    return folder


@asynccontextmanager
async def watching(client: AsyncClient, folder: Path) -> AsyncIterator[IssueSummary]:
    """A watch that has made its first sync, and that ends without an error."""
    recorded, stop = IssueSummary(), asyncio.Event()
    task = asyncio.create_task(
        watch_folder(client, WatchTarget("notes", folder), recorded, stop, pace=PACE)
    )
    try:
        await recorded.until(has(WatchChange.SYNCED))
        yield recorded
    finally:
        stop.set()
        async with asyncio.timeout(20):
            await task


def uris(gateway: FakeGateway) -> set[str]:
    return {d.view.source_uri for d in gateway.documents.values()}


async def test_changes_follow_the_first_sync(
    client: AsyncClient, gateway: FakeGateway, museum: Path
) -> None:
    async with watching(client, museum) as recorded:
        assert len(uris(gateway)) == 2
        (museum / "new.md").write_text("new", encoding="utf-8")
        await recorded.until(has(WatchChange.SENT, "new.md"))
        (museum / "lamp.md").write_text("another lamp", encoding="utf-8")
        await recorded.until(has(WatchChange.SENT, "lamp.md"))
        (museum / "new.md").rename(museum / "rooms" / "old.md")
        await recorded.until(has(WatchChange.DELETED, "new.md"))
        await recorded.until(has(WatchChange.SENT, "rooms/old.md"))
        shutil.rmtree(museum / "rooms")
        await recorded.until(has(WatchChange.DELETED, "rooms/lens.md"))
        await recorded.until(has(WatchChange.INDEXED, times=3))
    assert uris(gateway) == {"file:///museum/lamp.md"}


async def test_what_is_ignored_disturbs_nobody_until_the_rules_change(
    client: AsyncClient, gateway: FakeGateway, museum: Path
) -> None:
    async with watching(client, museum) as recorded:
        before = len(gateway.requests)
        (museum / "node_modules").mkdir()
        (museum / "node_modules" / "a.md").write_text("x", encoding="utf-8")
        (museum / "noise.log").write_text("x", encoding="utf-8")
        (museum / "mark.md").write_text("the end of the noise", encoding="utf-8")
        await recorded.until(has(WatchChange.INDEXED, times=2))
        assert len(gateway.requests_to("POST .*/listing")) <= 1 + before
        (museum / ".latentignore").write_text("!*.log\nlamp.md\n", encoding="utf-8")
        await recorded.until(has(WatchChange.SENT, "noise.log"))
        await recorded.until(has(WatchChange.DELETED, "lamp.md"))
    assert "file:///museum/node_modules/a.md" not in uris(gateway)


async def test_a_watch_waits_for_an_unreachable_gateway(
    client: AsyncClient, gateway: FakeGateway, museum: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "MAX_ATTEMPTS", 1)
    async with watching(client, museum) as recorded:
        gateway.failures = [("POST .*/listing", failure(Unavailable("restarting")))] * 3
        (museum / "new.md").write_text("new", encoding="utf-8")
        await recorded.until(has(WatchChange.SENT, "new.md"))
    changes = [event.change for event in recorded.events]
    assert changes.count(WatchChange.UNREACHABLE) == changes.count(WatchChange.BACK) == 1
    assert "file:///museum/new.md" in uris(gateway)


async def test_failures_and_skipped_files_are_reported_once(
    client: AsyncClient, gateway: FakeGateway, museum: Path
) -> None:
    (museum / "empty.md").touch()
    async with watching(client, museum) as recorded:
        (museum / "broken.pdf").write_text("%BROKEN", encoding="utf-8")
        await recorded.until(has(WatchChange.FAILED, "broken.pdf"))
        (museum / "new.md").write_text("new", encoding="utf-8")
        await recorded.until(has(WatchChange.SENT, "new.md"))
    assert recorded.paths(WatchChange.SKIPPED) == ["empty.md"]
    [failed] = [event for event in recorded.events if event.change is WatchChange.FAILED]
    assert failed.message == "the file is damaged; save it again"


async def test_a_folder_that_cannot_be_synced_as_it_is_deletes_nothing_and_is_tried_again(
    client: AsyncClient, gateway: FakeGateway, museum: Path
) -> None:
    async with watching(client, museum) as recorded:
        shutil.rmtree(museum / "rooms")
        (museum / "lamp.md").unlink()
        await recorded.until(has(WatchChange.TROUBLE))
        assert uris(gateway)
        (museum / "new.md").write_text("new", encoding="utf-8")
        await recorded.until(has(WatchChange.SENT, "new.md"))
    assert uris(gateway) == {"file:///museum/new.md"}


@pytest.mark.parametrize(
    ("error", "setting"),
    [
        (OSError('OS file watch limit reached. about ["/f"]'), "fs.inotify.max_user_watches"),
        (
            RuntimeError("Error creating recommended watcher: Too many open files (os error 24)"),
            "fs.inotify.max_user_instances",
        ),
    ],
)
async def test_at_the_limit_of_watches_the_setting_is_named_and_the_folder_is_polled(
    error: Exception,
    setting: str,
    client: AsyncClient,
    gateway: FakeGateway,
    museum: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def limited(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(folder_changes, "awatch", limited)
    async with watching(client, museum) as recorded:
        [polling] = [event for event in recorded.events if event.change is WatchChange.POLLING]
        assert f"the limit {setting} is reached; `sudo sysctl {setting}=" in (polling.message or "")
        (museum / "new.md").write_text("new", encoding="utf-8")
        await recorded.until(has(WatchChange.SENT, "new.md"))
        (museum / "new.md").unlink()
        await recorded.until(has(WatchChange.DELETED, "new.md"))


async def test_a_folder_on_a_network_mount_is_polled(
    client: AsyncClient, museum: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/a / ext4 rw 0 0\nserver:/x {museum} nfs4 rw 0 0\n", encoding="utf-8")
    monkeypatch.setattr(folder_changes, "MOUNTS", mounts)
    async with watching(client, museum) as recorded:
        [polling] = [event for event in recorded.events if event.change is WatchChange.POLLING]
        assert "nfs4 is a network file system" in (polling.message or "")
        (museum / "lamp.md.meta.yaml").write_text("city: Kiel\n", encoding="utf-8")
        await recorded.until(has(WatchChange.SENT, "lamp.md"))


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        ("/dev/a / ext4 rw", None),
        ("/dev/a / ext4 rw\n//s/x /data cifs rw", "cifs"),
        ("//s/x / cifs rw\n/dev/b /data/notes ext4 rw", None),
        ("/dev/a / ext4 rw\nu@h:/ /data/notes/far fuse.sshfs rw", "fuse.sshfs"),
        ("/dev/a / ext4 rw\nh:/ /data/notes2 nfs rw", None),
        ("/dev/a / ext4 rw\nh:/ /data/my\\040notes nfs rw", None),
        ("/dev/a / ext4 rw\nx /data 9p rw\n/dev/b /data ext4 rw", None),
        ("", None),
    ],
)
def test_the_nearest_mount_tells_whether_a_folder_is_on_a_network(
    mounts: str, expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mounts").write_text(mounts, encoding="utf-8")
    monkeypatch.setattr(folder_changes, "MOUNTS", tmp_path / "mounts")
    assert folder_changes.network_type(Path("/data/notes")) == expected


async def test_a_watch_withholds_many_deletions_and_keeps_adding(
    client: AsyncClient, gateway: FakeGateway, museum: Path
) -> None:
    for n in range(25):
        (museum / f"{n}.md").write_text(f"buoy {n}", encoding="utf-8")
    async with watching(client, museum) as recorded:
        for n in range(15):
            (museum / f"{n}.md").unlink()
        await recorded.until(has(WatchChange.DELETED, times=15))
        for n in range(15, 25):  # few by themselves, but too many with those before
            (museum / f"{n}.md").unlink()
        await recorded.until(has(WatchChange.TROUBLE))
        (museum / "new.md").write_text("new", encoding="utf-8")
        await recorded.until(has(WatchChange.SENT, "new.md"))
    trouble = [e.message or "" for e in recorded.events if e.change is WatchChange.TROUBLE]
    assert all("--allow-deletions" in message for message in trouble)
    assert len(uris(gateway)) > 27 - 21


async def test_what_concerns_the_whole_watch_ends_it(
    client: AsyncClient, gateway: FakeGateway, museum: Path
) -> None:
    with pytest.raises(Invalid, match="only a folder can be watched"):
        await watch_folder(
            client,
            WatchTarget("notes", museum / "lamp.md"),
            IssueSummary(),
            asyncio.Event(),
            pace=PACE,
        )
    with pytest.raises(NotFound):
        await watch_folder(
            client, WatchTarget("nothing", museum), IssueSummary(), asyncio.Event(), pace=PACE
        )
    recorded = IssueSummary()
    task = asyncio.create_task(
        watch_folder(client, WatchTarget("notes", museum), recorded, asyncio.Event(), pace=PACE)
    )
    await recorded.until(has(WatchChange.SYNCED))
    shutil.rmtree(museum)
    async with asyncio.timeout(20):
        with pytest.raises(Invalid, match="no longer exists"):
            await task
