"""Hybrid searches per second by LLC_GATEWAY_PROCESSES: one installation per number, on copies of the same data, asked
in turns of a few seconds, so that a disturbance falls on all of them.

    python -m benchmarks.processes --chunks 10000 --work FOLDER
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks import memory
from benchmarks.installation import BenchmarkInstallation, running
from benchmarks.search import container_of, prepare, until_warm
from benchmarks.serving import LoadFigures, fresh_queries, load

PROCESSES: Final = (1, 2, 3)
CLIENTS: Final = (1, 8)
WARM_SECONDS: Final = 5.0
READY_SECONDS: Final = 60.0
READY: Final = b"gateway_process_ready"
Figures = dict[tuple[int, int], list[LoadFigures]]
"""By number of clients and of processes, one per round."""


async def run(chunks: int, work: Path, counts: Sequence[int], rounds: int, seconds: float) -> None:
    await _fill(work, chunks, counts)
    fresh = fresh_queries(chunks)
    figures: Figures = defaultdict(list)
    async with AsyncExitStack() as started:
        installations: dict[int, BenchmarkInstallation] = {}
        for count in counts:
            settings = {"LLC_GATEWAY_PROCESSES": str(count)}
            one = await started.enter_async_context(running(_folder(work, count), settings))
            await _all_ready(one, count)
            await until_warm(one, container_of(chunks))
            await asyncio.to_thread(load, one, chunks, max(CLIENTS), fresh, WARM_SECONDS)
            installations[count] = one
        for _ in range(rounds):
            for clients in CLIENTS:
                for count, one in installations.items():
                    found = await asyncio.to_thread(load, one, chunks, clients, fresh, seconds)
                    figures[clients, count].append(found)
            print(f"  load {os.getloadavg()[0]:.1f}", flush=True)
        for count, one in installations.items():
            used = await asyncio.to_thread(memory.usage, one, "searched")
            print(f"{count} processes: {used.total_mb:.0f} MB", flush=True)
    _show(figures, counts)


def _show(figures: Figures, counts: Sequence[int]) -> None:
    for clients in CLIENTS:
        base = figures[clients, counts[0]]
        for count in counts:
            found = figures[clients, count]
            ratios = [
                one.per_second / first.per_second for one, first in zip(found, base, strict=True)
            ]
            print(
                f"{clients} clients, {count} processes: {median(ratios):.2f} times as many searches as with "
                f"{counts[0]} ({min(ratios):.2f} to {max(ratios):.2f}), "
                f"{median(one.per_second for one in found):.1f} per second (at best "
                f"{max(one.per_second for one in found):.1f}), p50/p95 "
                f"{median(one.spread.p50_ms for one in found):.1f}/"
                f"{median(one.spread.p95_ms for one in found):.1f} ms",
                flush=True,
            )


def _folder(work: Path, count: int) -> Path:
    return work / f"processes-{count}"


async def _fill(work: Path, chunks: int, counts: Sequence[int]) -> None:
    """The first installation is filled, the others are copies."""
    first = _folder(work, counts[0])
    async with running(first) as installation:
        await prepare(installation, chunks)
    for count in counts[1:]:
        if not _folder(work, count).exists():
            await asyncio.to_thread(shutil.copytree, first, _folder(work, count))
    for count in counts:
        (_folder(work, count) / "latent.log").unlink(missing_ok=True)


async def _all_ready(installation: BenchmarkInstallation, processes: int) -> None:
    async with asyncio.timeout(READY_SECONDS):
        while installation.log.read_bytes().count(READY) < processes - 1:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--chunks", type=int, default=10_000)
    parser.add_argument("--processes", type=int, nargs="+", default=PROCESSES)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--work", type=Path, help="keeps the containers")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        work = given.work or Path(scratch)
        asyncio.run(run(given.chunks, work, given.processes, given.rounds, given.seconds))


if __name__ == "__main__":
    main()
