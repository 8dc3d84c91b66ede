"""Memory of `latent up`: the proportional set size of its whole tree of processes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

import psutil

from benchmarks import corpus
from benchmarks.installation import MEGABYTE, BenchmarkInstallation, add, create, ended, quiet
from latent_core.domain.manifest.model import SearchMode
from latent_core.wire.search import SearchRequest

SETTLE_SECONDS: Final = 5.0
"""What the start leaves behind is given back to the system by then."""
CONTAINER: Final = "memory"
NAMES: Final = (
    ("latent_core.vectors.edge.child", "vector engine"),
    ("latent_core.runtime.guardian", "guardian"),
    ("latent_workers.sandbox", "parser"),
    ("latent_gateway.further", "further gateway process"),
    ("postgres", "postgres"),
    ("latent_cli", "gateway and worker"),
)


@dataclass(frozen=True, slots=True)
class MemoryUsage:
    """PSS in MB: all of it, and by what the processes are."""

    when: str
    total_mb: float
    by_process: dict[str, float]


async def measure(installation: BenchmarkInstallation) -> list[MemoryUsage]:
    """On a fresh installation: idle, and after a first ingest and a first search (both models are loaded then)."""
    await asyncio.sleep(SETTLE_SECONDS)
    usages = [usage(installation, "idle after start")]
    await _use(installation)
    await asyncio.sleep(SETTLE_SECONDS)
    usages.append(usage(installation, "after one ingest and one search"))
    return usages


async def _use(installation: BenchmarkInstallation) -> None:
    passages = list(corpus.PassageWriter(4).full_passages(3))
    file = corpus.write_text(installation.folder / "memory.txt", passages)
    async with installation.client() as client:
        await create(client, CONTAINER)
        await ended(client, [await add(client, CONTAINER, file)])
        await quiet(client, CONTAINER)
        query = corpus.queries(passages, 1)[0]
        await client.search(
            SearchRequest(containers=[CONTAINER], query=query, top_k=10, mode=SearchMode.HYBRID)
        )


def usage(installation: BenchmarkInstallation, when: str) -> MemoryUsage:
    by_process: dict[str, float] = {}
    for process in installation.tree():
        try:
            command = " ".join(process.cmdline())
            size = process.memory_full_info().pss / MEGABYTE
        except psutil.NoSuchProcess:
            continue
        name = _name(process, command)
        by_process[name] = round(by_process.get(name, 0.0) + size, 1)
    return MemoryUsage(when, round(sum(by_process.values()), 1), by_process)


def _name(process: psutil.Process, command: str) -> str:
    for mark, name in NAMES:
        if mark in command:
            return name
    return str(process.name())
