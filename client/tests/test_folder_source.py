"""Which source a folder is synced to, and what a sync never deletes unasked."""

from __future__ import annotations

import asyncio
import shutil
import sys
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given, strategies as st
from typing_extensions import override

from latent_client import AsyncClient, SyncConsent, folder_lock, plan_folder, sync_folder
from latent_client.source_registry import FILE, RegisteredSource, SourceRegistry
from latent_core.domain.errors import Conflict, Invalid, TimedOut
from latent_core.domain.source import is_same_folder, needs_consent
from latent_core.wire.sources import SourceMatch, SourceView
from tests.support.fake_gateway.gateway import TOKEN, FakeGateway

FILES = 25
"""More than a sync deletes unasked."""


def make(folder: Path, what: str, number: int = FILES) -> Path:
    folder.mkdir(parents=True)
    for n in range(number):
        (folder / f"{n:02}.md").write_text(f"{what} {n}", encoding="utf-8")
    return folder


def roots(gateway: FakeGateway) -> dict[str, int]:
    """Documents by root."""
    found: dict[str, int] = {}
    for document in gateway.documents.values():
        root = document.view.source_uri.removeprefix("file:///").partition("/")[0]
        found[root] = found.get(root, 0) + 1
    return found


def answering(yes: bool) -> tuple[list[str], Callable[[str], Awaitable[bool]]]:
    questions: list[str] = []

    async def confirm(question: str) -> bool:
        questions.append(question)
        return yes

    return questions, confirm


async def test_two_folders_of_one_name_are_two_sources(
    client: AsyncClient, gateway: FakeGateway, tmp_path: Path
) -> None:
    work, home = make(tmp_path / "work" / "notes", "work", 3), make(tmp_path / "notes", "home", 3)
    await sync_folder(client, "notes", work)
    second = await sync_folder(client, "notes", home)
    assert second.root == "notes~2"
    assert second.notice is not None
    assert f"file:///notes/ belongs to the folder {work}" in second.notice
    for folder in (work, home, work):
        again = await sync_folder(client, "notes", folder)
        assert (again.unchanged, again.added, again.deleted) == (3, [], [])
    assert roots(gateway) == {"notes": 3, "notes~2": 3}


async def test_nothing_is_written_into_a_synced_folder(client: AsyncClient, tmp_path: Path) -> None:
    folder = make(tmp_path / "notes", "home", 3)
    before = sorted(folder.iterdir())
    await sync_folder(client, "notes", folder)
    assert sorted(folder.iterdir()) == before


async def test_a_moved_folder_is_continued_only_with_consent(
    client: AsyncClient, gateway: FakeGateway, tmp_path: Path
) -> None:
    old = make(tmp_path / "old" / "notes", "home", 10)
    await sync_folder(client, "notes", old)
    new = tmp_path / "diary"
    shutil.move(old, new)
    (new / "00.md").write_text("edited after the move", encoding="utf-8")
    with pytest.raises(Conflict, match="To continue it from here, use --take-over") as refused:
        await sync_folder(client, "notes", new)
    assert f"was synced from {old} on " in refused.value.message
    assert roots(gateway) == {"notes": 10}
    questions, yes = answering(True)
    taken = await sync_folder(client, "notes", new, consent=SyncConsent(confirm=yes))
    assert len(questions) == 1
    assert (taken.root, taken.unchanged + len(taken.added), taken.deleted) == ("notes", 10, [])
    assert (await sync_folder(client, "notes", new)).notice is None


async def test_a_moved_folder_whose_takeover_is_declined_is_another_source(
    client: AsyncClient, gateway: FakeGateway, tmp_path: Path
) -> None:
    old = make(tmp_path / "old" / "notes", "home", 10)
    await sync_folder(client, "notes", old)
    shutil.move(old, tmp_path / "notes")
    _, no = answering(False)
    report = await sync_folder(client, "notes", tmp_path / "notes", consent=SyncConsent(confirm=no))
    assert report.root == "notes~2"
    assert roots(gateway) == {"notes": 10, "notes~2": 10}


async def test_a_copy_of_an_existing_folder_is_another_source_without_a_question(
    client: AsyncClient, gateway: FakeGateway, tmp_path: Path
) -> None:
    original = make(tmp_path / "repository", "code", 10)
    await sync_folder(client, "notes", original)
    for n in range(3):
        shutil.copytree(original, tmp_path / f"tree{n}" / "repository")
        await sync_folder(client, "notes", tmp_path / f"tree{n}" / "repository")
    assert roots(gateway) == {
        "repository": 10,
        "repository~2": 10,
        "repository~3": 10,
        "repository~4": 10,
    }


async def test_of_two_clients_only_the_one_that_took_a_source_over_syncs_it(
    client: AsyncClient, gateway: FakeGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = make(tmp_path / "here" / "notes", "home", 10)
    await sync_folder(client, "notes", here)
    there = tmp_path / "there" / "notes"
    shutil.copytree(here, there)
    (there / "00.md").unlink()
    monkeypatch.setattr("platform.node", lambda: "another-computer")
    async with AsyncClient(gateway.url, TOKEN, data_dir=tmp_path / "another") as other:
        with pytest.raises(Conflict, match="--take-over"):
            await sync_folder(other, "notes", there)
        taken = await sync_folder(other, "notes", there, consent=SyncConsent(take_over=True))
        assert (taken.root, len(taken.deleted)) == ("notes", 1)
    monkeypatch.undo()
    with pytest.raises(Conflict, match=r"synced from .*there/notes on another-computer"):
        await sync_folder(client, "notes", here)
    assert roots(gateway) == {"notes": 9}


async def test_a_lost_data_directory_makes_a_person_decide(
    client: AsyncClient, gateway: FakeGateway, tmp_path: Path
) -> None:
    folder = make(tmp_path / "notes", "home", 10)
    await sync_folder(client, "notes", folder)
    for file in folder.iterdir():
        file.write_text("everything was edited meanwhile: " + file.name, encoding="utf-8")
    async with AsyncClient(gateway.url, TOKEN, data_dir=tmp_path / "fresh") as fresh:
        with pytest.raises(Conflict, match="--take-over"):
            await sync_folder(fresh, "notes", folder)
        report = await sync_folder(fresh, "notes", folder, consent=SyncConsent(take_over=True))
    assert (report.root, len(report.added)) == ("notes", 10)


async def test_documents_of_an_older_version_are_adopted_by_the_folder_that_has_them(
    client: AsyncClient, gateway: FakeGateway, tmp_path: Path
) -> None:
    folder = make(tmp_path / "notes", "home", 5)
    for n in range(5):
        gateway.put("notes", f"file:///notes/{n:02}.md", f"home {n}".encode(), 1)
    other = await sync_folder(client, "notes", make(tmp_path / "other" / "notes", "work", 5))
    assert (other.root, other.deleted) == ("notes~2", [])
    own = await sync_folder(client, "notes", folder)
    assert (own.root, own.unchanged, own.added) == ("notes", 5, [])


async def test_a_source_outlives_a_change_of_the_gateways_address(
    gateway: FakeGateway, tmp_path: Path
) -> None:
    folder = make(tmp_path / "notes", "home", 5)
    for url in (gateway.url, gateway.url.replace("127.0.0.1", "localhost"), gateway.url):
        async with AsyncClient(url, TOKEN, data_dir=tmp_path / "data") as client:
            report = await sync_folder(client, "notes", folder)
            assert (report.root, report.notice) == ("notes", None)


async def test_a_container_that_was_created_again_gets_the_folder_anew(
    client: AsyncClient, gateway: FakeGateway, tmp_path: Path
) -> None:
    folder = make(tmp_path / "notes", "home", 5)
    await sync_folder(client, "notes", folder)
    gateway.documents.clear()
    gateway.sources.clear()
    report = await sync_folder(client, "notes", folder)
    assert (report.root, len(report.added)) == ("notes", 5)


async def test_many_deletions_are_withheld_and_new_files_are_sent(
    client: AsyncClient, gateway: FakeGateway, tmp_path: Path
) -> None:
    folder = make(tmp_path / "notes", "home")
    await sync_folder(client, "notes", folder)
    for n in range(21):
        (folder / f"{n:02}.md").unlink()
    (folder / "new.md").write_text("new", encoding="utf-8")
    plan = await plan_folder(client, "notes", folder)
    report = await sync_folder(client, "notes", folder)
    assert report.kept is not None
    assert report.kept == plan.kept
    assert report.kept.startswith("21 of 25 documents would be deleted")
    assert "--allow-deletions" in report.kept
    assert (report.withheld, report.deleted, len(report.added)) == (21, [], 1)
    questions, no = answering(False)
    declined = await sync_folder(client, "notes", folder, consent=SyncConsent(confirm=no))
    assert (declined.withheld, len(questions)) == (21, 1)
    assert roots(gateway) == {"notes": 26}
    allowed = await sync_folder(client, "notes", folder, consent=SyncConsent(allow_deletions=True))
    assert (len(allowed.deleted), allowed.kept, roots(gateway)) == (21, None, {"notes": 5})


async def test_an_empty_folder_deletes_nothing_unless_it_is_allowed_to(
    client: AsyncClient, gateway: FakeGateway, tmp_path: Path
) -> None:
    folder = make(tmp_path / "mount", "home", 3)
    await sync_folder(client, "notes", folder)
    shutil.rmtree(folder)
    with pytest.raises(Invalid, match="cannot be read"):
        await sync_folder(client, "notes", folder, consent=SyncConsent(allow_deletions=True))
    folder.mkdir()
    with pytest.raises(Invalid, match="contains no readable document"):
        await sync_folder(client, "notes", folder)
    assert roots(gateway) == {"mount": 3}
    await sync_folder(client, "notes", folder, consent=SyncConsent(allow_deletions=True))
    assert roots(gateway) == {}


async def test_another_folder_at_the_place_of_a_known_one_deletes_nothing_unasked(
    client: AsyncClient, gateway: FakeGateway, tmp_path: Path
) -> None:
    place = make(tmp_path / "mount", "the right disk")
    await sync_folder(client, "notes", place)
    shutil.rmtree(place)
    place.mkdir()
    (place / "other.md").write_text("the wrong disk", encoding="utf-8")
    report = await sync_folder(client, "notes", place)
    assert (report.withheld, report.deleted) == (25, [])
    assert roots(gateway) == {"mount": 26}


async def test_a_registry_that_cannot_be_read_stops_the_sync(
    gateway: FakeGateway, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / FILE).write_text("{", encoding="utf-8")
    async with AsyncClient(gateway.url, TOKEN, data_dir=data) as client:
        with pytest.raises(Invalid, match="it is damaged"):
            await sync_folder(client, "notes", make(tmp_path / "notes", "home", 1))
    assert not gateway.documents


class SlowClient(AsyncClient):
    """Creates a source only after another client has looked for one, or could not."""

    other_came: asyncio.Event

    @override
    async def create_source(
        self, container_id: str, root: str, *, host: str, folder: str, adopt: bool = False
    ) -> SourceView:
        async with asyncio.timeout(30):
            await self.other_came.wait()
        return await super().create_source(
            container_id, root, host=host, folder=folder, adopt=adopt
        )


class SecondClient(SlowClient):
    @override
    async def match_sources(
        self, container_id: str, root: str, sha256: Sequence[str]
    ) -> list[SourceMatch]:
        found = await super().match_sources(container_id, root, sha256)
        self.other_came.set()
        return found


async def test_two_first_syncs_of_a_folder_at_the_same_time_create_one_source(
    gateway: FakeGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, data = make(tmp_path / "notes", "home", 5), tmp_path / "data"
    other_came, lock = asyncio.Event(), folder_lock._locked

    def locked(file: int) -> bool:
        taken = lock(file)
        if not taken:
            other_came.set()
        return taken

    monkeypatch.setattr(folder_lock, "_locked", locked)
    async with (
        SlowClient(gateway.url, TOKEN, data_dir=data) as first,
        SecondClient(gateway.url, TOKEN, data_dir=data) as second,
    ):
        first.other_came = second.other_came = other_came
        reports = await asyncio.gather(
            sync_folder(first, "notes", folder), sync_folder(second, "notes", folder)
        )
    assert [report.root for report in reports] == ["notes", "notes"]
    assert roots(gateway) == {"notes": 5}
    assert sorted(path.name for path in data.iterdir()) == [FILE, f"{FILE}.lock"]


HOLD = """
import fcntl, os, sys
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print(os.getpid(), file=lock, end="", flush=True)
print("held", flush=True)
sys.stdin.read()
"""


async def test_a_lock_on_a_folder_is_waited_for_with_a_deadline_and_ends_with_its_process(
    client: AsyncClient, gateway: FakeGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, other = make(tmp_path / "notes", "home", 5), make(tmp_path / "other", "other", 5)
    monkeypatch.setattr(folder_lock, "WAIT_SECONDS", 0.0)
    client.data_dir.mkdir(parents=True, exist_ok=True)
    path = folder_lock.path_of(client.data_dir, "notes", folder)
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLD, str(path), stdin=PIPE, stdout=PIPE
    )
    try:
        assert holder.stdout is not None
        async with asyncio.timeout(30):
            assert await holder.stdout.readline() == b"held\n"
        with pytest.raises(TimedOut, match=f"process {holder.pid} still decides which source"):
            await sync_folder(client, "notes", folder)
        await sync_folder(client, "notes", other)
        assert roots(gateway) == {"other": 5}
    finally:
        holder.kill()
        await holder.wait()
    assert path.exists()
    await sync_folder(client, "notes", folder)
    assert roots(gateway) == {"notes": 5, "other": 5}
    assert not path.exists()


def test_the_registry_has_one_source_per_gateway_folder_and_name(tmp_path: Path) -> None:
    registry = SourceRegistry(tmp_path / "new" / "data")
    for gateway, root in (("http://a", "f"), ("http://b", "f"), ("http://a", "f~2")):
        source = RegisteredSource(
            source_id=uuid4(), gateway=gateway, container_id="c", folder="/f", name="f", root=root
        )
        registry.put(source)
    found = registry.find("c", Path("/f"))
    assert [(one.gateway, one.root) for one in found] == [("http://a", "f~2"), ("http://b", "f")]
    assert registry.find("d", Path("/f")) == []


async def test_computers_that_share_a_home_directory_do_not_share_sources(
    client: AsyncClient, gateway: FakeGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = make(tmp_path / "scratch", "first node", 5)
    await sync_folder(client, "notes", scratch)
    shutil.rmtree(scratch)
    make(scratch, "second node", 5)
    (tmp_path / "machine-id").write_text("another", encoding="utf-8")
    monkeypatch.setattr("latent_client.source_registry.MACHINE_ID", tmp_path / "machine-id")
    monkeypatch.setattr("platform.node", lambda: "second-node")
    report = await sync_folder(client, "notes", scratch)
    assert (report.root, report.deleted) == ("scratch~2", [])
    assert roots(gateway) == {"scratch": 5, "scratch~2": 5}


@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_consent_is_needed_above_both_limits_alone(vanished: int, documents: int) -> None:
    expected = vanished >= 21 and vanished * 10 > documents * 3
    assert needs_consent(vanished, documents) == expected


@pytest.mark.parametrize(
    ("same", "sample", "files", "documents", "expected"),
    [
        (8, 10, 10, 10, True),
        (7, 10, 10, 10, False),
        (10, 10, 10, 13, False),
        (10, 10, 13, 13, True),
        (800, 1_000, 100_000, 100_000, True),
        (0, 0, 0, 0, False),
        (10, 10, 10, 0, False),
    ],
)
def test_a_folder_is_the_same_from_four_fifths_of_the_larger_side(
    same: int, sample: int, files: int, documents: int, expected: bool
) -> None:
    assert is_same_folder(same, sample, files, documents) == expected
