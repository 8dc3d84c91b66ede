"""A remote embedder of 50 ms: what a worker gains by its concurrency, and what a second worker adds.

    python -m benchmarks.remote

Gateway and workers are processes on servers (those of ``scripts/servers.py``). Documents are queued before the
workers start; a rate is documents over the time from the first claim to the last publication. Of one chunk each
they wait for the embedder one request a document; of many chunks a document needs several requests, which a serial
worker, too, sends side by side: less is left for concurrency to gain.
Bars, for documents of one chunk: one worker at its default concurrency >= 5x a serial one, two workers at
concurrency 1 >= 1.8x one.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final
from uuid import uuid4
from zlib import crc32

import orjson
import psycopg
from psycopg.sql import SQL, Identifier

from benchmarks import corpus
from latent_client import AsyncClient
from latent_core.domain.job import JobState
from latent_core.domain.manifest.model import Manifest
from tests.support.servers import launch as servers

LATENT: Final = (sys.executable, "-m", "latent_cli")
TOKEN: Final = "llc_of-a-benchmark-0123456789abcdef"
DIMS: Final = 256
DELAY_SECONDS: Final = 0.05
DOCUMENTS: Final = 1_000
"""A worker loads the language model with its first document, which takes it up to a second."""
LONG_DOCUMENTS: Final = 20
PASSAGES: Final = 50
"""Of a long document, each about a chunk."""
ROUNDS: Final = 3
DEADLINE_SECONDS: Final = 300.0
CREATE: Final = SQL("CREATE DATABASE {name}")


@dataclass(frozen=True, slots=True)
class WorkerShape:
    """``concurrency`` None is the default of a worker."""

    name: str
    workers: int
    concurrency: int | None


@dataclass(frozen=True, slots=True)
class RemoteWorkload:
    """Documents as they are asked for; ``passages`` 0 is a text of one chunk."""

    name: str
    documents: int
    passages: int = 0

    def text(self, title: str, number: int) -> str:
        if not self.passages:
            return f"Passage {number} of {title}: " + f"word{number} " * 40
        writer = corpus.PassageWriter(crc32(f"{title} {number}".encode()))
        return "\n\n".join(writer.full_passages(self.passages))


SERIAL: Final = WorkerShape("one worker, one job at a time", 1, 1)
DEFAULT: Final = WorkerShape("one worker, default concurrency", 1, None)
TWO: Final = WorkerShape("two workers, one job at a time each", 2, 1)


async def measure(workload: RemoteWorkload, rounds: int) -> dict[str, float]:
    """Documents a second of each shape, the median of the rounds."""
    rates: dict[str, list[float]] = {shape.name: [] for shape in (SERIAL, DEFAULT, TWO)}
    with ExitStack() as running, tempfile.TemporaryDirectory() as folder:
        addresses = running.enter_context(servers.all_started())
        embedder = running.enter_context(
            servers.started("embedding_server", "--dims", str(DIMS), "--delay", str(DELAY_SECONDS))
        )
        settings = _settings(addresses, embedder["base_url"], Path(folder))
        async with _process(settings, "gateway", "--json") as gateway:
            assert gateway.stdout is not None
            url = orjson.loads(await gateway.stdout.readline())["url"]
            async with AsyncClient(url, TOKEN) as client:
                for _ in range(rounds):
                    for shape in (SERIAL, DEFAULT, TWO):
                        rate = await _round(client, settings, shape, workload, Path(folder))
                        rates[shape.name].append(rate)
                        print(f"{shape.name}: {rate:.1f} documents/s", flush=True)
    return {name: median(found) for name, found in rates.items()}


async def _round(
    client: AsyncClient,
    settings: Mapping[str, str],
    shape: WorkerShape,
    workload: RemoteWorkload,
    folder: Path,
) -> float:
    container = f"round-{uuid4().hex[:8]}"
    await client.create(Manifest(id=container, name=container, embedder="openai/bench", dims=DIMS))
    ids = []
    for number in range(workload.documents):
        path = folder / f"{container}-{number}.txt"
        path.write_text(workload.text(container, number), "utf-8")
        upload = await client.upload(container, path)
        ids.append((await client.add(container, file_ref=upload.file_ref)).job_id)
    own = dict(settings)
    if shape.concurrency is not None:
        own["LLC_WORKER_CONCURRENCY"] = str(shape.concurrency)
    async with _process(own, "worker"):
        if shape.workers == 1:
            return await _rate(client, ids)
        async with _process(own, "worker"):
            return await _rate(client, ids)


async def _rate(client: AsyncClient, ids: list[int]) -> float:
    jobs = await client.wait(ids, timeout_seconds=DEADLINE_SECONDS)
    if {job.state for job in jobs} != {JobState.DONE}:
        raise RuntimeError(
            f"not all documents were ingested: {[j.cause for j in jobs if j.cause][:1]}"
        )
    begun = min(job.started_at for job in jobs if job.started_at is not None)
    ended = max(job.finished_at for job in jobs if job.finished_at is not None)
    return len(jobs) / (ended - begun).total_seconds()


def _settings(addresses: Mapping[str, str], embedder: str, folder: Path) -> dict[str, str]:
    name = f"bench_{uuid4().hex[:8]}"
    with psycopg.connect(addresses[servers.POSTGRES], autocommit=True) as conn:
        conn.execute(CREATE.format(name=Identifier(name)))
    return {
        "LLC_POSTGRES_DSN": addresses[servers.POSTGRES].rpartition("/")[0] + f"/{name}",
        "LLC_QDRANT_URL": addresses[servers.QDRANT],
        "LLC_QDRANT_PREFIX": f"{name}_",
        "LLC_S3_ENDPOINT": addresses[servers.S3],
        "LLC_S3_ACCESS_KEY": addresses[servers.S3_ACCESS_KEY],
        "LLC_S3_SECRET_KEY": addresses[servers.S3_SECRET_KEY],
        "LLC_S3_BUCKET": name.replace("_", "-"),
        "LLC_MCP_TOKEN": TOKEN,
        "LLC_EMBED_BASE_URL": embedder,
        "LLC_EMBED_RATE_LIMIT_PER_MIN": "100000000",
        "LLC_DATA_DIR": str(folder / "data"),
        "LLC_PORT": "0",
    }


@asynccontextmanager
async def _process(
    settings: Mapping[str, str], *command: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LLC_")}  # noqa: TID251
    process = await asyncio.create_subprocess_exec(
        *LATENT,
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=kept | dict(settings),
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        await process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="ingest with a remote embedder of 50 ms")
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    parser.add_argument("--long-documents", type=int, default=LONG_DOCUMENTS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    for workload in (
        RemoteWorkload("documents of one chunk", given.documents),
        RemoteWorkload(f"documents of {PASSAGES} passages", given.long_documents, PASSAGES),
    ):
        if workload.documents:
            _tell(workload, asyncio.run(measure(workload, given.rounds)))


def _tell(workload: RemoteWorkload, rates: Mapping[str, float]) -> None:
    serial, several, two = rates[SERIAL.name], rates[DEFAULT.name], rates[TWO.name]
    bars = ("", "") if workload.passages else (" (bar 5x)", " (bar 1.8x)")
    print(f"{workload.name}: default concurrency against serial {several / serial:.1f}x{bars[0]}")
    print(f"{workload.name}: two workers against one {two / serial:.1f}x{bars[1]}", flush=True)


if __name__ == "__main__":
    main()
