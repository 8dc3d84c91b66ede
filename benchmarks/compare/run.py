"""Ours beside other libraries: the same texts, vectors and queries, in turns.

    python -m benchmarks.compare.run --chunks 10000 --json FILE --page docs/comparison.md

A peer answers in its own process and is timed there, without pipes; ours answers over HTTP, with rights, joins, snippets
and links, and is timed by its client. Both embed each query by the same model, and no query is asked twice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks import corpus, memory
from benchmarks.archives import write_archive
from benchmarks.compare.environment import PeerProcess
from benchmarks.compare.page import page_of
from benchmarks.installation import BenchmarkInstallation, ended, quiet, running
from benchmarks.search import (
    NO_SIMILARITY,
    TOP_K,
    Asker,
    Spread,
    container_of,
    texts_of,
    until_warm,
)
from benchmarks.small_writes import disk_use
from latent_core.domain.errors import LatentError
from latent_core.domain.manifest.model import Dedup, Manifest
from latent_core.models.embedding.minilm import DIMS, FP32, wheel_folder
from tests.support.hashed_embedder import HashedWords

PEERS: Final = ("bm25s", "lancedb", "sqlite", "chroma", "qdrant", "langchain")
MODES: Final = ("words", "vectors", "hybrid")
OURS: Final = "latent"
OUR_MODES: Final = {"words": "lexical", "vectors": "semantic", "hybrid": "hybrid"}
QUERIES: Final = 200
WARM_UP: Final = 10
CLIENTS: Final = 8
LOADED: Final = 240
SEED: Final = 61
MEGABYTE: Final = 1024 * 1024


@dataclass
class PeerFigures:
    """Of one participant at one size. ``reason``: why the rest is missing."""

    name: str
    chunks: int
    ingested_per_second: float = 0.0
    latency: dict[str, Spread] = field(default_factory=dict)
    per_second: float = 0.0
    """Hybrid searches by eight clients; vectors if it has no hybrid mode."""
    memory_mb: float = 0.0
    disk_mb: float = 0.0
    reason: str = ""


class OtherLibrary:
    """A peer."""

    def __init__(self, process: PeerProcess, chunks: int) -> None:
        self.figures = PeerFigures(process.name, chunks)
        self._process = process
        self.modes: Sequence[str] = ()

    async def ingest(self, chunks: int, rows: Path, lines: Path) -> None:
        answer = await self._process.ask(op="ingest", texts=str(lines), vectors=str(rows))
        self.figures.ingested_per_second = round(chunks / answer["seconds"], 1)
        self.modes = (await self._process.ask(op="modes"))["modes"]

    async def search(self, mode: str, query: str) -> float:
        answer = await self._process.ask(op="search", mode=mode, query=query, k=TOP_K)
        return float(answer["ms"])

    async def finish(self, queries: Sequence[str]) -> None:
        mode = "hybrid" if "hybrid" in self.modes else "vectors"
        answer = await self._process.ask(op="load", mode=mode, queries=queries, clients=CLIENTS)
        self.figures.per_second = round(answer["per_second"], 1)
        self.figures.memory_mb = self._process.memory_mb()
        self.figures.disk_mb = round(_blocks(self._process.folder), 1)


class OurInstallation:
    """``latent up`` and one client."""

    modes: Sequence[str] = MODES

    def __init__(self, installation: BenchmarkInstallation, chunks: int) -> None:
        self.figures = PeerFigures(OURS, chunks)
        self._installation = installation
        self._container = container_of(chunks)
        self._asker = Asker(installation.url, installation.token)

    async def ingest(self, texts: Sequence[str]) -> None:
        manifest = Manifest(
            id=self._container, name=self._container, dedup=Dedup.model_validate(NO_SIMILARITY)
        )
        archive = self._installation.folder / "texts.latent.tar.zst"
        space = {"embedder": FP32.embedder, "version": FP32.version, "dims": DIMS}
        vectors = HashedWords(DIMS).vectors
        await asyncio.to_thread(write_archive, archive, manifest, space, texts, vectors)
        begun = time.perf_counter()
        async with self._installation.client() as client:
            job = await client.import_archive(archive, container_id=self._container)
            await ended(client, [job.job_id])
            self.figures.ingested_per_second = round(len(texts) / (time.perf_counter() - begun), 1)
            await quiet(client, self._container)
        archive.unlink()
        await until_warm(self._installation, self._container)

    async def search(self, mode: str, query: str) -> float:
        milliseconds, _ = await asyncio.to_thread(
            self._asker.ask, self._body(mode, query), empty=True
        )
        return milliseconds

    async def finish(self, queries: Sequence[str]) -> None:
        shares = [queries[start::CLIENTS] for start in range(CLIENTS)]
        begun = time.perf_counter()
        await asyncio.gather(*(asyncio.to_thread(self._share, share) for share in shares))
        self.figures.per_second = round(len(queries) / (time.perf_counter() - begun), 1)
        self.figures.memory_mb = memory.usage(self._installation, "compared").total_mb
        self.figures.disk_mb = disk_use(self._installation).total

    def _share(self, queries: Sequence[str]) -> None:
        asker = Asker(self._installation.url, self._installation.token)
        for query in queries:
            asker.ask(self._body("hybrid", query), empty=True)
        asker.close()

    def _body(self, mode: str, query: str) -> dict[str, object]:
        return {
            "containers": [self._container],
            "query": query,
            "top_k": TOP_K,
            "mode": OUR_MODES[mode],
        }


async def compared(chunks: int, peers: Sequence[str], folder: Path) -> list[PeerFigures]:
    """Every participant, ours first; one that fails has its reason."""
    texts = texts_of(chunks)
    lines, rows = folder / "texts.jsonl", folder / "vectors.npy"
    lines.write_text("".join(json.dumps(text) + "\n" for text in texts), "utf-8")
    np.save(rows, np.asarray(HashedWords(DIMS).vectors(texts), np.float32))
    async with AsyncExitStack() as started:
        (folder / OURS).mkdir(mode=0o755)
        installation = await started.enter_async_context(running(folder / OURS))
        ours = OurInstallation(installation, chunks)
        models = installation.data_dir / "models"
        await ours.ingest(texts)
        print(f"  {OURS}: {ours.figures.ingested_per_second:g} chunks/s", flush=True)
        (model,) = await asyncio.to_thread(lambda: list(models.glob("*/model.onnx")))
        everybody: list[OurInstallation | OtherLibrary] = [ours]
        failed: list[PeerFigures] = []
        for name in peers:
            try:
                process = await PeerProcess.start(
                    name, folder / name, model, wheel_folder() / "tokenizer.json"
                )
                started.push_async_callback(process.stop)
                peer = OtherLibrary(process, chunks)
                await peer.ingest(chunks, rows, lines)
            except LatentError as error:
                failed.append(PeerFigures(name, chunks, reason=error.message))
                print(f"  {name}: {error.message}", flush=True)
            else:
                everybody.append(peer)
                print(f"  {name}: {peer.figures.ingested_per_second:g} chunks/s", flush=True)
        fresh = iter(
            corpus.queries(
                texts,
                (WARM_UP + QUERIES) * len(MODES) + LOADED * len(everybody),
                seed=SEED + chunks,
            )
        )
        for mode in MODES:
            await _latencies(mode, everybody, [next(fresh) for _ in range(WARM_UP + QUERIES)])
        for one in everybody:
            await one.finish([next(fresh) for _ in range(LOADED)])
        return [*(one.figures for one in everybody), *failed]


async def _latencies(
    mode: str, everybody: Sequence[OurInstallation | OtherLibrary], queries: Sequence[str]
) -> None:
    """Each query to all who have the mode, in changing order."""
    able = [one for one in everybody if mode in one.modes]
    times: dict[str, list[float]] = {one.figures.name: [] for one in able}
    for number, query in enumerate(queries):
        at = number % len(able)
        for one in (*able[at:], *able[:at]):
            milliseconds = await one.search(mode, query)
            if number >= WARM_UP:
                times[one.figures.name].append(milliseconds)
    for one in able:
        one.figures.latency[mode] = Spread.of(times[one.figures.name])
    print(f"  {mode}: {len(queries)} queries", flush=True)


def _blocks(folder: Path) -> float:
    """MB on disk below a folder."""
    return sum(one.stat().st_blocks for one in folder.rglob("*")) * 512 / MEGABYTE


def main() -> None:
    parser = argparse.ArgumentParser(description="Ours beside other libraries")
    parser.add_argument("--chunks", type=int, nargs="+", default=[10_000])
    parser.add_argument("--peers", nargs="+", default=list(PEERS))
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--page", type=Path, help="write the page to this file")
    options = parser.parse_args()
    results: list[Mapping[str, object]] = []
    load = round(os.getloadavg()[0], 1)
    for chunks in options.chunks:
        print(f"{chunks:,} chunks", flush=True)
        with tempfile.TemporaryDirectory(prefix="latent-compare-") as temporary:
            folder = Path(temporary)
            folder.chmod(0o755)  # as root, Postgres runs as another user
            found = asyncio.run(compared(chunks, options.peers, folder))
        results += [asdict(one) for one in found]
    report = {
        "date": time.strftime("%Y-%m-%d"),
        "load": [load, round(os.getloadavg()[0], 1)],
        "results": results,
    }
    print(json.dumps(report, indent=1))
    if options.json:
        options.json.write_text(json.dumps(report, indent=1), "utf-8")
    if options.page:
        options.page.write_text(page_of(json.loads(json.dumps(report))), "utf-8")


if __name__ == "__main__":
    main()
