"""This process: the event loop that it runs on (libuv's where it is installed), and the processors it may use."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar

from latent_core.runtime.imports import remember_absent

T = TypeVar("T")
_MANY: Final = 1 << 20
"""More processors than any machine has."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Like ``asyncio.run``. We exchange many small messages, which cost less on libuv's loop."""
    remember_absent()
    with asyncio.Runner(loop_factory=_factory()) as runner:
        return runner.run(main)


def _factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # on Windows, or without the extra for servers
        return None
    return uvloop.new_event_loop


def cores(root: Path = Path("/")) -> int:
    """The processors that this process may use: those of its CPU affinity, and at most the quota of its control
    groups (Docker's ``--cpus``, systemd's ``CPUQuota``); at least one. ``root``: of the system's files."""
    usable = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return max(1, min(usable, int(_quota(root))))


def part(limit: int, processes: int) -> int:
    """Of a limit of all processes, for each of them: at least one."""
    return -(-limit // processes)


def _quota(root: Path) -> float:
    """Processors per second of the tightest control group of this process; infinite without one."""
    mount = root / "sys/fs/cgroup"
    quotas = [float(_MANY)]
    for line in _text_of(root / "proc/self/cgroup").splitlines():
        _, _, place = line.partition(":")
        kinds, _, path = place.partition(":")
        base = mount if not kinds else mount / kinds
        if kinds and "cpu" not in kinds.split(","):
            continue
        group = base / path.lstrip("/")
        # Inside of a container, the path may be that of the host: then only the mount itself exists.
        for folder in {group, *(g for g in group.parents if g.is_relative_to(base)), base}:
            quotas += _quota_of(folder)
    return min(quotas)


def _quota_of(folder: Path) -> list[float]:
    limit = _text_of(folder / "cpu.max").split()
    if len(limit) != 2:
        limit = [_text_of(folder / f"cpu.cfs_{part}_us").strip() for part in ("quota", "period")]
    if not all(part.isdigit() for part in limit) or int(limit[1]) == 0:  # max, -1 or missing
        return []
    return [int(limit[0]) / int(limit[1])]


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, ValueError):
        return ""
