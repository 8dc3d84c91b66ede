"""Disk and latency after many small writes: notes that are written, overwritten and deleted while 1,000 stay alive.

    python -m benchmarks.small_writes --operations 100000

Nobody runs a command meanwhile. The same live notes, written once into a fresh installation, are what disk and latency
are compared with (bars: at most twice the disk, at most 1.2 times the p95). The embedder is the stand-in of the tests.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final
from uuid import UUID

import numpy as np

from benchmarks import corpus
from benchmarks.installation import (
    MEGABYTE,
    BenchmarkInstallation,
    create,
    idle,
    running,
    work_folder,
)
from benchmarks.search import Asker, Spread
from latent_client import AsyncClient
from tests.support.servers.embedding_server import EmbeddingServer

OPERATIONS: Final = 100_000
LIVE: Final = 1_000
AT_ONCE: Final = 8
WAIT_SECONDS: Final = 5.0
"""For the job of a note; a later one is done before the disk is read."""
REPORTED: Final = 2_000
"""Operations between two lines of progress."""
SETTLE_SECONDS: Final = 120.0
"""For what the database and the workers do by themselves."""
DIMS: Final = 64
CONTAINER: Final = "notes"
QUERIES: Final = 300
SEED: Final = 53
WORDS: Final = 60


@dataclass
class LiveNotes:
    """What each live note says, by its name, and its document."""

    texts: dict[str, str] = field(default_factory=dict)
    documents: dict[str, UUID] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DiskUse:
    """MB, in all and by store."""

    total: float
    by_store: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class WriteFigures:
    operations: int
    per_second: float
    at_once: DiskUse
    """Directly after the last write."""
    settled: DiskUse
    fresh: DiskUse
    search: Spread
    search_fresh: Spread

    @property
    def disk_ratio(self) -> float:
        return round(self.settled.total / self.fresh.total, 2)

    @property
    def p95_ratio(self) -> float:
        return round(self.search.p95_ms / self.search_fresh.p95_ms, 2)


async def measure(
    operations: int = OPERATIONS, settle_seconds: float = SETTLE_SECONDS
) -> WriteFigures:
    async with AsyncExitStack() as both:
        embedder = await both.enter_async_context(EmbeddingServer(dims=DIMS))
        settings = {
            "LLC_EMBED_BASE_URL": embedder.base_url,
            "LLC_EMBED_RATE_LIMIT_PER_MIN": "100000000",
        }
        used, fresh = [
            await both.enter_async_context(
                running(both.enter_context(work_folder(None, name)), settings)
            )
            for name in ("used", "fresh")
        ]
        notes = LiveNotes()
        began = time.perf_counter()
        async with used.client() as client:
            await create(client, CONTAINER, embedder="openai/bench", dims=DIMS)
            await _write(client, notes, LIVE + operations)
            took = time.perf_counter() - began
            await idle(client)
        at_once = disk_use(used)
        async with fresh.client() as client:
            await create(client, CONTAINER, embedder="openai/bench", dims=DIMS)
            await _copy(client, notes)
            await idle(client)
        await asyncio.sleep(settle_seconds)
        spreads = await asyncio.to_thread(_searched, used, fresh, list(notes.texts.values()))
        return WriteFigures(
            operations,
            round(operations / took, 1),
            at_once,
            disk_use(used),
            disk_use(fresh),
            *spreads,
        )


async def _write(client: AsyncClient, notes: LiveNotes, operations: int) -> None:
    """Seeded: half of the operations overwrite a note, a quarter delete one, and a quarter write a new one."""
    random = np.random.default_rng(SEED)
    writer = corpus.PassageWriter(SEED)
    busy: set[str] = set()
    slots = asyncio.Semaphore(AT_ONCE)
    running_now: set[asyncio.Task[None]] = set()
    for number in range(operations):
        await slots.acquire()
        free = [name for name in notes.documents if name not in busy]
        kind = (
            "new"
            if len(notes.texts) < LIVE or not free
            else random.choice(["over", "over", "swap"])
        )
        name = f"note-{number}" if kind == "new" else str(random.choice(free))
        busy.add(name)
        job = _swap if kind == "swap" else _put
        task = asyncio.create_task(job(client, notes, name, writer.text(WORDS), number))

        def end(_: asyncio.Task[None], name: str = name) -> None:
            busy.discard(name)
            slots.release()

        task.add_done_callback(end)
        ended = {one for one in running_now if one.done()}
        await asyncio.gather(*ended)  # raises what failed
        running_now = {*(running_now - ended), task}
        if number % REPORTED == REPORTED - 1:
            print(f"  {number + 1} of {operations}, {len(notes.texts)} live", flush=True)
    await asyncio.gather(*running_now)


async def _put(client: AsyncClient, notes: LiveNotes, name: str, text: str, _: int) -> None:
    answer = await client.add(CONTAINER, text=text, name=name, wait_seconds=WAIT_SECONDS)
    notes.texts[name], notes.documents[name] = text, answer.doc_id


async def _swap(client: AsyncClient, notes: LiveNotes, name: str, text: str, number: int) -> None:
    """Delete a note for good, and write another."""
    await client.delete_document(CONTAINER, notes.documents[name], now=True)
    del notes.texts[name], notes.documents[name]
    await _put(client, notes, f"note-{number}", text, number)


async def _copy(client: AsyncClient, notes: LiveNotes) -> None:
    slots = asyncio.Semaphore(AT_ONCE)

    async def put(name: str, text: str) -> None:
        async with slots:
            await client.add(CONTAINER, text=text, name=name, wait_seconds=WAIT_SECONDS)

    await asyncio.gather(*(put(name, text) for name, text in notes.texts.items()))


def _searched(
    used: BenchmarkInstallation, fresh: BenchmarkInstallation, texts: list[str]
) -> tuple[Spread, Spread]:
    """The same new queries, asked alternately, hybrid."""
    askers = [Asker(one.url, one.token) for one in (used, fresh)]
    times: tuple[list[float], list[float]] = ([], [])
    for query in corpus.queries(texts, QUERIES, seed=SEED):
        body = {"containers": [CONTAINER], "query": query, "top_k": 10}
        for asker, taken in zip(askers, times, strict=True):
            taken.append(asker.ask(body)[0])
    for asker in askers:
        asker.close()
    return Spread.of(times[0]), Spread.of(times[1])


def disk_use(installation: BenchmarkInstallation) -> DiskUse:
    """Blocks on disk, not lengths of files: the database makes some that are nearly empty."""
    by_store: dict[str, float] = {}
    for folder, _, files in os.walk(installation.data_dir):
        store = Path(folder).relative_to(installation.data_dir).parts[:1]
        for name in files:
            try:
                blocks = os.lstat(Path(folder) / name).st_blocks
            except FileNotFoundError:
                continue
            key = store[0] if store else "."
            by_store[key] = by_store.get(key, 0.0) + blocks * 512 / MEGABYTE
    rounded = {name: round(size, 1) for name, size in sorted(by_store.items())}
    return DiskUse(round(sum(by_store.values()), 1), rounded)


def main() -> None:
    parser = argparse.ArgumentParser(description="Disk and latency after many small writes")
    parser.add_argument("--operations", type=int, default=OPERATIONS)
    parser.add_argument("--settle", type=float, default=SETTLE_SECONDS, help="seconds")
    options = parser.parse_args()
    figures = asyncio.run(measure(options.operations, options.settle))
    print(json.dumps(asdict(figures), indent=1))
    print(f"disk {figures.disk_ratio} times a fresh one, p95 {figures.p95_ratio} times; ", end="")
    print(f"load average at the end {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
