"""Ours beside other libraries: the same texts, vectors and queries, in turns.

    python -m benchmarks.compare.run --chunks 10000 --judged FOLDER --figures FILE --page docs/comparison.md

A peer answers in its own process and is timed there, without pipes; ours answers over HTTP, with rights, joins, snippets
and links, and is timed by its client. Both embed each query by the same model, and no query is asked twice.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks import corpus, memory
from benchmarks.archives import write_archive
from benchmarks.compare.bars import bars_of
from benchmarks.compare.environment import GivenFiles, Model, PeerProcess, Peers, model_of
from benchmarks.compare.figures import FiguresFile, PeerFigures
from benchmarks.compare.judged import judged_by_all
from benchmarks.compare.modes import MODES, OUR_MODES, OURS, PEERS, SERVER
from benchmarks.compare.page import page_of
from benchmarks.installation import BenchmarkInstallation, ended, quiet, running
from benchmarks.quality import SETS, SearchJudgedSet, read_set
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
from latent_core.domain.manifest.model import new_manifest
from latent_core.models.embedding.minilm import DIMS, FP32
from tests.support.hashed_embedder import HashedWords

TOO_MANY: Final = {
    "qdrant": (20_000, "its client recommends a server for more than 20,000 points"),
}
"""Most chunks that a peer is measured with, and the reason in its own documentation."""
ENGLISH: Final = [name for name in SETS if name not in ("xquad/de", "xquad/es")]
"""Stemmers and stop words of the peers are English."""
NO_ANALYSER: Final = 0
"""The texts are analysed within the time of the ingest, as the peers do it."""
QUERIES: Final = 200
WARM_UP: Final = 10
CLIENTS: Final = 8
LOADED: Final = 240
SEED: Final = 61
MEGABYTE: Final = 1024 * 1024


class OtherLibrary:
    """A peer."""

    def __init__(self, process: PeerProcess, chunks: int) -> None:
        self.figures = PeerFigures(process.name, chunks)
        self._process = process
        self.modes: Sequence[str] = ()

    async def ingest(self, chunks: int, given: GivenFiles) -> None:
        """After an error its process is stopped: it must not disturb the others."""
        try:
            answer = await self._process.ask(
                op="ingest", texts=str(given.texts), vectors=str(given.vectors)
            )
            self.modes = (await self._process.ask(op="modes"))["modes"]
        except LatentError:
            await self._process.stop()
            raise
        self.figures.ingested_per_second = round(chunks / answer["seconds"], 1)

    async def search(self, mode: str, query: str) -> float:
        answer = await self._process.ask(op="search", mode=mode, query=query, k=TOP_K)
        return float(answer["ms"])

    async def finish(self, queries: Sequence[str]) -> None:
        mode = "hybrid" if "hybrid" in self.modes else "vectors"
        answer = await self._process.ask(op="load", mode=mode, queries=queries, clients=CLIENTS)
        self.figures.per_second = round(answer["per_second"], 1)
        if self._process.name != SERVER:
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
        name = self._container
        manifest = new_manifest({"id": name, "name": name, "dedup": NO_SIMILARITY})
        archive = self._installation.folder / "texts.latent.tar.zst"
        space = {"embedder": FP32.embedder, "version": FP32.version, "dims": DIMS}
        vectors = HashedWords(DIMS).vectors
        await asyncio.to_thread(
            write_archive, archive, manifest, space, texts, vectors, analyser=NO_ANALYSER
        )
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
            "mode": OUR_MODES[mode].value,
        }


async def compared(chunks: int, peers: Peers, folder: Path) -> list[PeerFigures]:
    """The figures of all participants, ours first; of one that fails only the reason."""
    texts = texts_of(chunks)
    vectors = np.asarray(HashedWords(DIMS).vectors(texts), np.float32)
    given = await asyncio.to_thread(GivenFiles.write, folder, texts, vectors)
    async with AsyncExitStack() as started:
        installation = await started.enter_async_context(_ours_below(folder))
        ours = OurInstallation(installation, chunks)
        await ours.ingest(texts)
        print(f"  {OURS}: {ours.figures.ingested_per_second:g} chunks/s", flush=True)
        model = await model_of(installation)
        participants: list[OurInstallation | OtherLibrary] = [ours]
        failed: list[PeerFigures] = []
        for name in peers.names:
            try:
                process = await _started(name, chunks, peers, folder, model)
                started.push_async_callback(process.stop)
                peer = OtherLibrary(process, chunks)
                await peer.ingest(chunks, given)
            except LatentError as error:
                failed.append(PeerFigures(name, chunks, reason=error.message))
                print(f"  {name}: {error.message}", flush=True)
            else:
                participants.append(peer)
                print(f"  {name}: {peer.figures.ingested_per_second:g} chunks/s", flush=True)
        total = (WARM_UP + QUERIES) * len(MODES) + LOADED
        fresh = iter(corpus.queries(texts, total, seed=SEED + chunks))
        for mode in MODES:
            await measure_latencies(
                mode, participants, [next(fresh) for _ in range(WARM_UP + QUERIES)]
            )
        loaded = list(fresh)
        for one in participants:
            if not one.figures.reason:
                with _reason_kept(one.figures):
                    await one.finish(loaded)
        return [*(one.figures for one in participants), *failed]


async def _started(name: str, chunks: int, peers: Peers, folder: Path, model: Model) -> PeerProcess:
    limit, reason = TOO_MANY.get(name, (chunks, ""))
    if chunks > limit:
        raise LatentError(reason)
    return await PeerProcess.start(name, folder / name, model, peers.qdrant)


def _ours_below(folder: Path) -> AbstractAsyncContextManager[BenchmarkInstallation]:
    (folder / OURS).mkdir(mode=0o755)
    return running(folder / OURS)


async def measure_latencies(
    mode: str, participants: Sequence[OurInstallation | OtherLibrary], queries: Sequence[str]
) -> None:
    """Each query to all who have the mode, in changing order."""
    able = [one for one in participants if mode in one.modes and not one.figures.reason]
    times: dict[str, list[float]] = {one.figures.name: [] for one in able}
    for number, query in enumerate(queries):
        at = number % len(able)
        for one in (*able[at:], *able[:at]):
            if one.figures.reason:
                continue
            with _reason_kept(one.figures):
                milliseconds = await one.search(mode, query)
                if number >= WARM_UP:
                    times[one.figures.name].append(milliseconds)
    for one in able:
        if not one.figures.reason:
            one.figures.latency[mode] = Spread.of(times[one.figures.name])
    print(f"  {mode}: {len(queries)} queries", flush=True)


@contextmanager
def _reason_kept(figures: PeerFigures) -> Iterator[None]:
    """An error in the block is the reason why the rest of the figures is missing; the others go on."""
    try:
        yield
    except LatentError as error:
        figures.reason = error.message
        print(f"  {figures.name}: {error.message}", flush=True)


def _blocks(folder: Path) -> float:
    """MB on disk below a folder."""
    return sum(one.stat().st_blocks for one in folder.rglob("*")) * 512 / MEGABYTE


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="latent-compare-") as temporary:
        folder = Path(temporary)
        folder.chmod(0o755)  # as root, Postgres runs as another user
        yield folder


async def _judged(sets: Sequence[SearchJudgedSet], peers: Peers, figures: FiguresFile) -> None:
    """One installation for all sets."""
    with _folder() as folder:
        async with _ours_below(folder) as installation:
            for judged in sets:
                store = folder / judged.name
                store.mkdir()
                figures.add_judged(await judged_by_all(installation, judged, peers, store))


def main() -> None:
    parser = argparse.ArgumentParser(description="Ours beside other libraries")
    parser.add_argument("--chunks", type=int, nargs="*", default=[10_000])
    parser.add_argument("--judged", type=Path, help="a folder of judged sets, to compare quality")
    parser.add_argument("--sets", nargs="+", default=ENGLISH, help="those in it to compare by")
    parser.add_argument("--peers", nargs="+", default=list(PEERS))
    parser.add_argument("--qdrant", default="", help="the address of a Qdrant server")
    parser.add_argument("--figures", type=Path, required=True, help="keep the figures in this file")
    parser.add_argument(
        "--page", type=Path, help="write the page to this file, and its drawing beside it"
    )
    options = parser.parse_args()
    peers = Peers([*options.peers, *([SERVER] if options.qdrant else [])], options.qdrant)
    figures = FiguresFile(options.figures)
    sets = [read_set(options.judged / name) for name in options.sets] if options.judged else []
    for chunks in options.chunks:
        print(f"{chunks:,} chunks", flush=True)
        with _folder() as folder:
            figures.add_speed(chunks, asyncio.run(compared(chunks, peers, folder)))
    if sets:
        asyncio.run(_judged(sets, peers, figures))
    if options.page:
        options.page.write_text(page_of(figures.all), "utf-8")
        options.page.with_suffix(".svg").write_text(bars_of(figures.all["speed"]), "utf-8")


if __name__ == "__main__":
    main()
