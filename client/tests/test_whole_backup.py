"""The folder of a whole backup: what is refused before anything is restored."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast
from unittest.mock import MagicMock
from uuid import UUID, uuid4

import pytest

from latent_client import AsyncClient, whole_backup
from latent_client.source_registry import RegisteredSource, SourceRegistry, machine_id
from latent_client.whole_backup import LINES, OnBackup, restore_all, verified
from latent_core.domain.errors import Invalid
from latent_core.domain.job import JobState
from latent_core.wire.access import AuditLine
from latent_core.wire.installation import (
    AuditRecord,
    ContainerStanding,
    InstallationRecords,
    RestoreRecordsBody,
)

pytestmark = pytest.mark.asyncio

CREATED: Final = datetime(2026, 1, 1, tzinfo=UTC)


def backup(folder: Path, **changed: Any) -> Path:
    """A backup with one container, of files without real content."""
    (folder / "containers").mkdir(parents=True)
    files = []
    for name in ("containers/art.latent.tar.zst", "installation.json", "audit.jsonl"):
        (folder / name).write_bytes(name.encode())
        digest = hashlib.sha256(name.encode()).hexdigest()
        files.append({"name": name, "bytes": len(name), "sha256": digest})
    index = {
        "format": "latent-installation",
        "format_version": 1,
        "created_at": "2026-01-01T00:00:00Z",
        "containers": ["art"],
        "missing": [],
        "files": files,
    }
    (folder / "backup.json").write_text(json.dumps(index | changed))
    return folder


async def test_a_complete_backup_is_accepted(tmp_path: Path) -> None:
    assert (await verified(backup(tmp_path / "b"))).containers == ["art"]


async def test_a_folder_without_its_index_is_incomplete(tmp_path: Path) -> None:
    (backup(tmp_path / "b") / "backup.json").unlink()
    with pytest.raises(Invalid, match="no complete backup"):
        await verified(tmp_path / "b")


async def test_a_changed_byte_or_a_missing_file_is_named(tmp_path: Path) -> None:
    folder = backup(tmp_path / "b")
    (folder / "audit.jsonl").write_bytes(b"audit.jsonX")
    with pytest.raises(Invalid, match=r"audit\.jsonl is damaged"):
        await verified(folder)
    (folder / "audit.jsonl").unlink()
    with pytest.raises(Invalid, match=r"audit\.jsonl is missing"):
        await verified(folder)


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        ({"format": "other"}, "is of format other"),
        ({"format_version": 2}, "use the release that wrote it"),
        ({"containers": ["../art"]}, "a container that cannot exist"),
        ({"containers": ["art", "sea"]}, "does not list all of its files"),
        ({"files": "none"}, "cannot be read"),
    ],
)
async def test_an_index_that_is_not_ours_is_refused(
    tmp_path: Path, changed: dict[str, Any], cause: str
) -> None:
    with pytest.raises(Invalid, match=cause):
        await verified(backup(tmp_path / "b", **changed))


async def test_no_file_outside_the_folder_is_read(tmp_path: Path) -> None:
    folder = backup(tmp_path / "b")
    index = json.loads((folder / "backup.json").read_text())
    index["files"].append({"name": "../secret", "bytes": 1, "sha256": "0" * 64})
    (folder / "backup.json").write_text(json.dumps(index))
    with pytest.raises(Invalid, match="outside its folder"):
        await verified(folder)


class InterruptedGateway:
    """Imports one container, and is gone at the second import."""

    def __init__(self) -> None:
        self.containers: dict[str, str] = {}
        self.standing: dict[str, datetime] = {}

    async def installation(self) -> InstallationRecords:
        return InstallationRecords(request_id="r", at=CREATED, containers=[], tokens=[])

    async def import_archive(self, archive: Path) -> Any:
        if self.containers:
            raise asyncio.CancelledError
        self.containers[archive.name.partition(".")[0]] = "now"
        return SimpleNamespace(job_id=1)

    async def wait(self, *_: Any, **__: Any) -> list[Any]:
        return [SimpleNamespace(state=JobState.DONE)]

    async def restore_installation(self, body: RestoreRecordsBody) -> Any:
        self.standing |= {one.id: one.created_at for one in body.containers}
        return SimpleNamespace(
            tokens=len(body.tokens),
            saved_searches=len(body.saved_searches),
            audit=len(body.audit),
        )


async def test_an_interrupted_restore_has_the_time_of_creation_of_what_it_imported(
    tmp_path: Path,
) -> None:
    """A second call skips these containers, and tokens reach only containers that are older than they."""
    names = ["art", "bay"]
    folder = tmp_path / "b"
    records = InstallationRecords(
        request_id="r",
        at=CREATED,
        containers=[ContainerStanding(id=one, state="active", created_at=CREATED) for one in names],
        tokens=[],
    )
    contents = {
        "installation.json": records.model_dump_json(exclude={"request_id"}),
        "audit.jsonl": "",
        **{f"containers/{one}.latent.tar.zst": "" for one in names},
    }
    listed = [
        {"name": name, "bytes": len(text), "sha256": hashlib.sha256(text.encode()).hexdigest()}
        for name, text in contents.items()
    ]
    backup(folder, containers=names, files=listed)
    for name, text in contents.items():
        (folder / name).write_text(text)
    gateway = InterruptedGateway()
    with pytest.raises(asyncio.CancelledError):
        await restore_all(cast(AsyncClient, gateway), folder, cast(OnBackup, MagicMock()))
    assert gateway.standing == {"art": CREATED}


class AuditGateway:
    """An audit trail, newest first, as the gateway sends it."""

    async def audit(self) -> AsyncIterator[AuditLine]:
        for number in range(LINES * 2 + 3, 0, -1):
            yield AuditLine(
                id=number,
                at=CREATED,
                principal="p",
                action="a",
                container_id=None,
                object=f"{number}",
                request_id=None,
            )


async def test_the_audit_trail_is_written_oldest_first_in_parts(tmp_path: Path) -> None:
    file = await whole_backup._trail(cast(AsyncClient, AuditGateway()), tmp_path)
    content = (tmp_path / "audit.jsonl").read_bytes()
    objects = [AuditRecord.model_validate_json(line).object for line in content.splitlines()]
    assert objects == [f"{number}" for number in range(1, LINES * 2 + 4)]
    assert file.sha256 == hashlib.sha256(content).hexdigest()
    assert os.listdir(tmp_path) == ["audit.jsonl"]


async def test_a_restore_adds_only_missing_folders_of_this_computer(tmp_path: Path) -> None:
    old, new = SourceRegistry(tmp_path / "old"), SourceRegistry(tmp_path / "new")
    known: list[UUID] = []
    for name in ("gone", "kept", "known", "unknown"):
        folder = tmp_path / name
        if name != "gone":
            folder.mkdir()
        one = RegisteredSource(
            source_id=uuid4(),
            gateway="g",
            container_id="c",
            folder=str(folder),
            name=name,
            root=name,
        )
        old.put(one)
        known += [one.source_id] if name != "unknown" else []
    mine = RegisteredSource(
        source_id=uuid4(),
        gateway="g",
        container_id="c",
        folder=str(tmp_path / "known"),
        name="mine",
        root="mine",
    )
    new.put(mine)
    assert new.add_missing(old.copy_of(["other"]), known) == 0
    copy = old.copy_of(["c"])
    elsewhere = copy.replace(f'"machine": "{machine_id()}"', '"machine": "another"')
    assert new.add_missing(elsewhere, known) == 0
    assert new.add_missing(copy, known) == 1
    assert new.add_missing(copy, known) == 0
    assert new.here() == {
        known[1]: tmp_path / "kept",
        mine.source_id: tmp_path / "known",
    }
