"""How many processors this process may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from latent_core.runtime.process import cores


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


def write(root: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content, encoding="ascii")


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 8),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 8),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "250000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        (
            {
                "proc/self/cgroup": "0::/user.slice/latent.service\n",
                "sys/fs/cgroup/user.slice/latent.service/cpu.max": "max 100000\n",
                "sys/fs/cgroup/user.slice/cpu.max": "300000 100000\n",
            },
            3,
        ),
        ({"proc/self/cgroup": "0::/of/the/host\n", "sys/fs/cgroup/cpu.max": "400000 100000"}, 4),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/docker/x\n2:memory:/docker/x\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "200000\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            2,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            8,
        ),
    ],
)
def test_the_quota_of_control_groups_limits_the_processors(
    tmp_path: Path, files: dict[str, str], expected: int
) -> None:
    write(tmp_path, files)
    assert cores(tmp_path) == expected


@pytest.mark.usefixtures("eight")
def test_a_damaged_quota_is_ignored(tmp_path: Path) -> None:
    write(tmp_path, {"proc/self/cgroup": "nonsense\n0::/\n", "sys/fs/cgroup/cpu.max": "a b c\n"})
    assert cores(tmp_path) == 8
