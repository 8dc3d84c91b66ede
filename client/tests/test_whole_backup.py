"""The folder of a whole backup: what is refused before anything is restored."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from latent_client.whole_backup import verified
from latent_core.domain.errors import Invalid

pytestmark = pytest.mark.asyncio


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
