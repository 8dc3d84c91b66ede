"""The data directory has one owner, private folders, and a token."""

from __future__ import annotations

import errno
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from latent_core.domain.errors import Conflict, Invalid, OutOfSpace
from latent_core.runtime.data_directory import DataDirectory, owner_of, storage_errors

HOLDER = """
import sys
from pathlib import Path
from latent_core.runtime.data_directory import DataDirectory
directory = DataDirectory(Path(sys.argv[1]))
directory.acquire()
print("held", flush=True)
sys.stdin.read()
"""
FOLDERS = ("postgres", "vectors", "blobs", "models", "tmp", "log", "manifests")


def hold(path: Path) -> subprocess.Popen[str]:
    """Another process that owns the directory until its standard input closes."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def end(process: subprocess.Popen[str], signum: int) -> None:
    process.send_signal(signum)
    process.communicate(timeout=20)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_acquiring_makes_the_tree_private(tmp_path: Path) -> None:
    with DataDirectory(tmp_path / "data") as directory:
        # As root others may pass through, to the folder of the user that runs Postgres; not look.
        assert mode(directory.path) == (0o711 if os.geteuid() == 0 else 0o700)
        for name in FOLDERS:
            assert getattr(directory, name) == directory.path / name
            assert mode(directory.path / name) == 0o700
        assert mode(directory.path / "owner.lock") == 0o600


def test_acquiring_again_keeps_what_is_there_and_empties_tmp(tmp_path: Path) -> None:
    with DataDirectory(tmp_path / "data") as directory:
        (directory.blobs / "kept").write_text("x")
        (directory.tmp / "deep").mkdir()
        (directory.tmp / "deep" / "half").write_text("x")
    with DataDirectory(tmp_path / "data") as directory:
        assert (directory.blobs / "kept").read_text() == "x"
        assert list(directory.tmp.iterdir()) == []


def test_a_second_owner_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    holder = hold(tmp_path / "data")
    try:
        with pytest.raises(Conflict, match=rf"process {holder.pid}\b.*LLC_DATA_DIR") as caught:
            DataDirectory(tmp_path / "data").acquire()
        assert caught.value.details == {"pid": holder.pid}
        owner = owner_of(tmp_path / "data")
        assert owner is not None
        assert owner.pid == holder.pid
    finally:
        end(holder, signal.SIGTERM)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_the_lock_of_a_killed_owner_is_free(tmp_path: Path, signum: int) -> None:
    end(hold(tmp_path / "data"), signum)
    assert owner_of(tmp_path / "data") is None
    with DataDirectory(tmp_path / "data"):
        owner = owner_of(tmp_path / "data")
        assert owner is not None
        assert owner.pid == os.getpid()


def test_releasing_lets_the_next_one_in(tmp_path: Path) -> None:
    first, second = DataDirectory(tmp_path / "data"), DataDirectory(tmp_path / "data")
    first.acquire()
    with pytest.raises(Conflict):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


def test_a_child_process_does_not_inherit_the_lock(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "data")
    directory.acquire()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True)
    try:
        directory.release()
        assert owner_of(directory.path) is None
    finally:
        end(child, signal.SIGKILL)


def test_nobody_owns_a_directory_that_is_not_there(tmp_path: Path) -> None:
    assert owner_of(tmp_path / "nothing") is None


def test_the_token_is_made_once_secret_and_long(tmp_path: Path) -> None:
    with DataDirectory(tmp_path / "data") as directory:
        token = directory.token()
        assert re.fullmatch(r"llc_[A-Za-z0-9_-]{43}", token)
        assert mode(directory.path / "token") == 0o600
        assert directory.token() == token
    with DataDirectory(tmp_path / "other") as other:
        assert other.token() != token
    assert [p.name for p in directory.path.glob("token*")] == ["token"]


def test_a_token_that_others_could_read_is_made_private(tmp_path: Path) -> None:
    with DataDirectory(tmp_path / "data") as directory:
        token = directory.token()
        (directory.path / "token").chmod(0o644)
        assert directory.token() == token
        assert mode(directory.path / "token") == 0o600


def test_an_empty_token_file_is_replaced(tmp_path: Path) -> None:
    with DataDirectory(tmp_path / "data") as directory:
        (directory.path / "token").touch()
        assert directory.token().startswith("llc_")


def test_a_parent_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"absent does not exist.*LLC_DATA_DIR"):
        DataDirectory(tmp_path / "absent" / "data").acquire()


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x")
    with pytest.raises(Invalid, match="not a folder"):
        DataDirectory(tmp_path / "data").acquire()
    with pytest.raises(Invalid, match="not a folder"):
        DataDirectory(tmp_path / "data" / "below").acquire()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that refuses root too")
def test_a_parent_that_refuses_is_named() -> None:
    with pytest.raises(Invalid, match="cannot be used as data directory"):
        DataDirectory(Path("/proc/self/data")).acquire()


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOSPC, OutOfSpace),
        (errno.EDQUOT, OutOfSpace),
        (errno.EACCES, Invalid),
        (errno.EROFS, Invalid),
        (errno.ENOLCK, Invalid),
        (errno.EIO, Invalid),
    ],
)
def test_an_error_of_the_disk_names_the_path(
    tmp_path: Path, number: int, expected: type[Exception]
) -> None:
    with pytest.raises(expected, match=re.escape(str(tmp_path))), storage_errors(tmp_path):
        raise OSError(number, os.strerror(number), str(tmp_path / "file"))
