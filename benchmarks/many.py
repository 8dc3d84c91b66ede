"""Many small containers, of one document each: the start, the vector child's memory, and searches over cold ones.

    python -m benchmarks.many --containers 40 1000
    python -m benchmarks.many --containers 1000 --server

The embedder is the stand-in of the tests. When the containers are filled and no job is open, the installation is
restarted: a container is cold until something is searched in it. Every container is then searched once, twenty at a
time.
Bars, for 1,000 containers: ready in less than 3 s, the vector child below 400 MB (PSS), no search is partial.

With ``--server`` the vectors are on the Qdrant server of ``LLC_TEST_QDRANT_URL``, or on the stand-in of the tests.
Bars, for 1,000 containers: at most 210 collections, ready in less than 5 s.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Final
from uuid import uuid4

import httpx

from benchmarks.installation import (
    BenchmarkInstallation,
    add,
    create,
    ended,
    idle,
    running,
    work_folder,
)
from benchmarks.memory import usage
from benchmarks.search import Asker, Spread
from tests.support.servers.embedding_server import EmbeddingServer
from tests.support.servers.launch import QDRANT, QDRANT_KEY, given, started

CONTAINERS: Final = (40, 1000)
PER_SEARCH: Final = 20
AT_ONCE: Final = 8
"""Concurrent requests of the client that creates and fills the containers."""
STARTS: Final = 3
DIMS: Final = 384
CHILD: Final = "vector engine"
DONE_FILE: Final = "filled"
"""Says that the kept folder holds all containers."""


@dataclass(frozen=True, slots=True)
class ManyFigures:
    """``per_second``: containers created, and documents from upload to searchable."""

    containers: int
    created_per_second: float
    ingested_per_second: float
    ready_seconds: float
    """From the start of the process until it answers requests; the median of some starts."""
    idle_mb: float
    first_mb: float
    """PSS of the vector child, when ready and after the first search."""
    peak_mb: float
    """After all containers were searched."""
    first_ms: float
    """The first search, over ``PER_SEARCH`` cold containers."""
    searches: Spread
    """All searches over cold containers."""
    partial: int
    """Searches that answered in part because they were late."""
    collections: int | None = None
    """On the server, with that of the marker; None for the embedded engine."""


@dataclass(frozen=True, slots=True)
class QdrantPlace:
    """A server, its key, and a prefix that only this run uses."""

    url: str
    key: str | None
    prefix: str

    @property
    def settings(self) -> dict[str, str]:
        key = {} if self.key is None else {"LLC_QDRANT_API_KEY": self.key}
        return {"LLC_QDRANT_URL": self.url, "LLC_QDRANT_PREFIX": self.prefix, **key}

    async def collections(self) -> int:
        """Those below the prefix."""
        headers = {} if self.key is None else {"api-key": self.key}
        node = self.url.partition(",")[0]
        async with httpx.AsyncClient(trust_env=False, headers=headers) as http:
            found = (await http.get(f"{node}/collections")).raise_for_status().json()
        names = [one["name"] for one in found["result"]["collections"]]
        return sum(name.startswith(self.prefix) for name in names)


@contextmanager
def qdrant_place() -> Iterator[QdrantPlace]:
    """On the given server, or on a stand-in that ends with the block."""
    prefix = f"many{uuid4().hex[:8]}_"
    url = given(QDRANT)
    if url is not None:
        yield QdrantPlace(url, given(QDRANT_KEY), prefix)
        return
    with started("qdrant_server") as stand_in:
        yield QdrantPlace(stand_in["url"], None, prefix)


async def measure_on_server(containers: int) -> ManyFigures:
    with qdrant_place() as place:
        found = await measure(containers, more=place.settings)
        return replace(found, collections=await place.collections())


async def measure(
    containers: int, kept: Path | None = None, more: Mapping[str, str] | None = None
) -> ManyFigures:
    """``more``: settings of the installation."""
    async with EmbeddingServer(dims=DIMS) as embedder:
        settings = {
            "LLC_EMBED_BASE_URL": embedder.base_url,
            "LLC_EMBED_RATE_LIMIT_PER_MIN": "100000000",
            **(more or {}),
        }
        with work_folder(kept, f"many-{containers}") as folder:
            async with running(folder, settings) as installation:
                rates = await _fill(installation, containers)
                ready = median([await _restarted(installation) for _ in range(STARTS)])
                return await _searched(installation, containers, rates, ready)


async def _restarted(installation: BenchmarkInstallation) -> float:
    await installation.stop()
    began = time.perf_counter()
    await installation.start()
    return time.perf_counter() - began


async def _fill(installation: BenchmarkInstallation, containers: int) -> tuple[float, float]:
    """Containers created and documents ingested per second; zeros when a kept folder has them already."""
    done = installation.folder / DONE_FILE
    if done.exists():
        return 0.0, 0.0
    names = [_name(number) for number in range(containers)]
    async with installation.client() as client:

        async def create_one(name: str) -> None:
            await create(client, name, embedder="openai/bench", dims=DIMS)

        async def add_one(name: str) -> None:
            file = installation.folder / f"{name}.txt"
            file.write_text(f"The item of {name} weighs {len(name)} grams.\n", encoding="utf-8")
            await ended(client, [await add(client, name, file)])
            file.unlink()

        created = await _rate(create_one, names)
        ingested = await _rate(add_one, names)
        await idle(client)
    done.touch()
    return created, ingested


async def _rate(work: Callable[[str], Awaitable[None]], names: Sequence[str]) -> float:
    """Items per second, with a few of them concurrently."""
    waiting = iter(names)

    async def some() -> None:
        for name in waiting:
            await work(name)

    began = time.perf_counter()
    await asyncio.gather(*(some() for _ in range(AT_ONCE)))
    return round(len(names) / (time.perf_counter() - began), 1)


async def _searched(
    installation: BenchmarkInstallation,
    containers: int,
    rates: tuple[float, float],
    ready: float,
) -> ManyFigures:
    idle = _child_mb(installation)
    times, partial, first = [], 0, 0.0
    asker = Asker(installation.url, installation.token)
    for start in range(0, containers, PER_SEARCH):
        names = [_name(number) for number in range(start, min(start + PER_SEARCH, containers))]
        body = {"containers": names, "query": f"item weight {start}", "top_k": 10}
        milliseconds, answer = await asyncio.to_thread(asker.ask, body)
        times.append(milliseconds)
        partial += answer["partial"]
        first = first or _child_mb(installation)
    asker.close()
    return ManyFigures(
        containers=containers,
        created_per_second=rates[0],
        ingested_per_second=rates[1],
        ready_seconds=round(ready, 2),
        idle_mb=idle,
        first_mb=first,
        peak_mb=_child_mb(installation),
        first_ms=round(times[0], 1),
        searches=Spread.of(times),
        partial=partial,
    )


def _name(number: int) -> str:
    return f"small-{number:05d}"


def _child_mb(installation: BenchmarkInstallation) -> float:
    return usage(installation, "").by_process.get(CHILD, 0.0)


def lines(found: ManyFigures) -> list[str]:
    filled = (
        f"created {found.created_per_second}/s, ingested {found.ingested_per_second}/s; "
        if found.created_per_second
        else ""
    )
    return [
        f"{found.containers} containers of one document: {filled}ready in {found.ready_seconds:.2f} s",
        f"  {found.collections} collections on the server"
        if found.collections is not None
        else f"  vector child {found.idle_mb:.0f} MB when ready, {found.first_mb:.0f} MB after a search over "
        f"{PER_SEARCH}, {found.peak_mb:.0f} MB after searches over all",
        f"  first search {found.first_ms:.0f} ms; all: p50 {found.searches.p50_ms:.0f} ms, "
        f"p95 {found.searches.p95_ms:.0f} ms; {found.partial} partial",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--containers", type=int, nargs="+", default=list(CONTAINERS))
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--work", type=Path, help="keeps the containers for the next run")
    where.add_argument("--server", action="store_true", help="vectors on a Qdrant server")
    arguments = parser.parse_args()
    for containers in arguments.containers:
        measured = (
            measure_on_server(containers)
            if arguments.server
            else measure(containers, arguments.work)
        )
        print("\n".join(lines(asyncio.run(measured))), flush=True)


if __name__ == "__main__":
    main()
