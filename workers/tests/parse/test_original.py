"""A file of the server is copied only while it is the one that its owner allowed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from latent_core.domain.errors import IngestFailed, TooLarge
from latent_workers.ingest.original import _copy

LIMIT = 1000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder.resolve()


@pytest.fixture
def tmp(tmp_path: Path) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    return folder


def test_a_file_below_a_root_is_copied(root: Path, tmp: Path) -> None:
    (root / "a.txt").write_text("words")
    copy, _, status = _copy(root / "a.txt", (root,), tmp, LIMIT)
    assert copy.read_text() == "words"
    assert status.st_size == 5


def test_a_link_that_leads_out_of_the_root_is_refused(root: Path, tmp: Path) -> None:
    outside = root.parent / "secret.txt"
    outside.write_text("secret")
    (root / "a.txt").symlink_to(outside)
    with pytest.raises(IngestFailed, match="no longer below"):
        _copy(root / "a.txt", (root,), tmp, LIMIT)
    assert list(tmp.iterdir()) == []


def test_a_pipe_is_refused_without_waiting_for_its_writer(root: Path, tmp: Path) -> None:
    os.mkfifo(root / "a.txt")
    with pytest.raises(IngestFailed, match="no file"):
        _copy(root / "a.txt", (root,), tmp, LIMIT)


def test_a_file_that_grows_over_the_limit_while_it_is_read_is_not_copied_on(
    root: Path, tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "a.txt").write_bytes(b"x" * (LIMIT - 1))
    fstat = os.fstat

    def grown(fd: int) -> os.stat_result:
        status = fstat(fd)
        with (root / "a.txt").open("ab") as file:
            file.write(b"x" * LIMIT)
        return status

    monkeypatch.setattr("latent_workers.ingest.original.os.fstat", grown)
    with pytest.raises(TooLarge):
        _copy(root / "a.txt", (root,), tmp, LIMIT)
    assert list(tmp.iterdir()) == []
