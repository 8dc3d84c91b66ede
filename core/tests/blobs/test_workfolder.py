"""The folder of a process whose stores are all servers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from latent_core.runtime.data_directory import YOUNG_SECONDS, WorkFolder

HOLDER = """
import sys, time
from pathlib import Path
from latent_core.runtime.data_directory import WorkFolder
with WorkFolder(Path(sys.argv[1])) as folder:
    (folder.tmp / "half").write_text("x")
    print(folder.tmp, flush=True)
    sys.stdin.read()
"""


def grown_old(folder: Path) -> None:
    """As if it had been made long ago."""
    then = folder.stat().st_mtime - 2 * YOUNG_SECONDS
    os.utime(folder, (then, then))


def test_each_has_files_on_their_way_of_its_own_and_all_share_models_and_token(
    tmp_path: Path,
) -> None:
    with WorkFolder(tmp_path) as one, WorkFolder(tmp_path) as two:
        assert one.tmp != two.tmp
        assert one.tmp.is_dir()
        assert one.models == two.models
        assert one.token() == two.token()
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.parametrize("killed", [True, False])
def test_what_a_killed_process_left_is_removed_but_not_what_one_uses_that_runs(
    tmp_path: Path, killed: bool
) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        tmp = Path(holder.stdout.readline().decode().strip())
        if killed:
            holder.send_signal(signal.SIGKILL)
            holder.wait(30)
        grown_old(tmp.parent)
        with WorkFolder(tmp_path):
            assert (tmp / "half").exists() is not killed
    finally:
        holder.kill()
        holder.communicate()
