"""Search latency on a Qdrant server against the embedded engine, side by side in one run.

    python -m benchmarks.server_ratio --qdrant http://127.0.0.1:6333 --chunks 100000

Two installations hold the same container: one embedded, one with its vectors on the server. Queries alternate between
them, so that a disturbance of the machine falls on both. Only the ratio means something on a shared machine.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import product
from pathlib import Path
from typing import Final

from benchmarks import corpus
from benchmarks.installation import BenchmarkInstallation
from benchmarks.search import (
    MODES,
    QUERIES,
    WARM_UP,
    Asker,
    SearchSample,
    Spread,
    container_of,
    prepare,
    texts_of,
    until_warm,
)

NAMES: Final = ("embedded", "server")


async def run(qdrant: str, chunks: int, work: Path, settled_seconds: float) -> None:
    installations = {
        "embedded": BenchmarkInstallation(work / "embedded"),
        "server": BenchmarkInstallation(work / "server", {"LLC_QDRANT_URL": qdrant}),
    }
    async with AsyncExitStack() as running:
        for installation in installations.values():
            await installation.start()
            running.push_async_callback(installation.stop)
            await prepare(installation, chunks)
        await asyncio.sleep(settled_seconds)  # the server builds its index in the background
        for installation in installations.values():
            await until_warm(installation, container_of(chunks))
        await asyncio.to_thread(_measure, installations, chunks)


def _measure(installations: dict[str, BenchmarkInstallation], chunks: int) -> None:
    askers = {name: Asker(one.url, one.token) for name, one in installations.items()}
    count = (WARM_UP + QUERIES) * len(MODES)
    queries = iter(corpus.queries(texts_of(min(chunks, 2000)), count, seed=chunks))
    samples: dict[tuple[str, str], list[SearchSample]] = {key: [] for key in product(NAMES, MODES)}
    for n, mode in product(range(WARM_UP + QUERIES), MODES):
        query = next(queries)
        for name in NAMES:
            sample = askers[name].sample(chunks, mode, query)
            if n >= WARM_UP:
                samples[name, mode].append(sample)
    for asker in askers.values():
        asker.close()
    for mode in MODES:
        embedded, server = (_handled(samples[name, mode]) for name in NAMES)
        ratio = server.p50_ms / embedded.p50_ms, server.p95_ms / embedded.p95_ms
        print(
            f"{chunks} chunks, {mode}: server {server.p50_ms}/{server.p95_ms} ms, embedded "
            f"{embedded.p50_ms}/{embedded.p95_ms} ms, ratio {ratio[0]:.2f}/{ratio[1]:.2f} (p50/p95)",
            flush=True,
        )


def _handled(samples: Sequence[SearchSample]) -> Spread:
    """As the client sees it, without the embedding of the query."""
    return Spread.of([one.total - one.stages["embed"] for one in samples])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--qdrant", required=True, help="address of the server")
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--work", type=Path, help="keeps the containers")
    parser.add_argument("--settle", type=float, default=60.0, help="seconds for the index")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(run(given.qdrant, given.chunks, given.work or Path(scratch), given.settle))


if __name__ == "__main__":
    main()
