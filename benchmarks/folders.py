"""A folder of many small files: ingested once, and looked at again by `latent ingest` when nothing has changed.

    python -m benchmarks.folders --files 10000

The embedder is the stand-in of the tests, so that what is measured is the system's own work. While the files are
taken in, another container gets a file every few seconds: how long each waits to be searchable is the fairness.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.installation import BenchmarkInstallation, add, create, ended, running, work_folder
from benchmarks.memory import usage
from tests.support.servers.embedding_server import EmbeddingServer

FILES: Final = 5_000
FILES_PER_FOLDER: Final = 250
RUNS: Final = 3
DIMS: Final = 64
PROBE_INTERVAL_SECONDS: Final = 5.0
WATCH_SECONDS: Final = 1.0
FOLDER: Final = "folder"
OTHER: Final = "other"
WATCHED: Final = "gateway and worker"


@dataclass(frozen=True, slots=True)
class FolderFigures:
    """``first_seconds`` until every file is searchable; ``again`` as a user runs it, the interpreter's start included."""

    files: int
    first_seconds: float
    again_seconds: float
    again_cpu_seconds: float
    """Of the command alone: what a busy machine does not stretch as far."""
    idle_mb: float
    peak_mb: float
    """PSS of the gateway and the worker."""
    probes: int
    """Files of another container meanwhile."""
    waited_p50: float
    max_wait: float


async def measure(files: int = FILES) -> FolderFigures:
    async with EmbeddingServer(dims=DIMS) as embedder:
        settings = {
            "LLC_EMBED_BASE_URL": embedder.base_url,
            "LLC_EMBED_RATE_LIMIT_PER_MIN": "100000000",
        }
        with work_folder(None, "folders") as folder:
            async with running(folder, settings) as installation:
                return await _measured(installation, files)


async def _measured(installation: BenchmarkInstallation, files: int) -> FolderFigures:
    tree = await asyncio.to_thread(write_tree, installation.folder / "tree", files)
    async with installation.client() as client:
        for name in (FOLDER, OTHER):
            await create(client, name, embedder="openai/bench", dims=DIMS)
    idle = gateway_mb(installation)
    over = asyncio.Event()
    watched = asyncio.create_task(_peak(installation, over))
    probes = asyncio.create_task(_probe(installation, over))
    first, _ = await ingest(installation, tree, "--wait")
    over.set()
    waited, peak = await probes, await watched
    runs = [await ingest(installation, tree) for _ in range(RUNS)]
    return FolderFigures(
        files,
        first,
        median(seconds for seconds, _ in runs),
        median(cpu for _, cpu in runs),
        idle,
        max(idle, peak),
        len(waited),
        median(waited),
        max(waited),
    )


def write_tree(root: Path, files: int) -> Path:
    for number in range(files):
        folder = root / f"{number // FILES_PER_FOLDER:03d}"
        folder.mkdir(parents=True, exist_ok=True)
        text = f"# Note {number}\n\nThe item numbered {number} weighs {number * 7} grams.\n"
        (folder / f"note-{number:06d}.md").write_text(text, encoding="utf-8")
    return root


async def ingest(
    installation: BenchmarkInstallation, tree: Path, *flags: str
) -> tuple[float, float]:
    """`latent ingest`, to its end: wall-clock and CPU seconds."""
    began, spent = time.perf_counter(), _children_cpu()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "latent_cli", "ingest", str(tree), "--container", FOLDER, "--json", *flags),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=installation.user_environment(),
    )
    _, output = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"latent ingest failed: {output.decode(errors='replace')[-2000:]}")
    return time.perf_counter() - began, _children_cpu() - spent


def _children_cpu() -> float:
    """Of processes that ended; the installation does not, meanwhile."""
    times = os.times()
    return times.children_user + times.children_system


async def _probe(installation: BenchmarkInstallation, over: asyncio.Event) -> list[float]:
    """Seconds from the upload of a file to its end, one after the other."""
    waited: list[float] = []
    async with installation.client() as client:
        while not over.is_set() or not waited:
            file = installation.folder / f"beside-{len(waited)}.md"
            file.write_text(f"# Beside {len(waited)}\n\nA note of another container.\n", "utf-8")
            began = time.perf_counter()
            await ended(client, [await add(client, OTHER, file)])
            waited.append(time.perf_counter() - began)
            await _pause(over, PROBE_INTERVAL_SECONDS)
    return waited


async def _peak(installation: BenchmarkInstallation, over: asyncio.Event) -> float:
    given_peak = 0.0
    while not over.is_set():
        given_peak = max(given_peak, await asyncio.to_thread(gateway_mb, installation))
        await _pause(over, WATCH_SECONDS)
    return given_peak


def gateway_mb(installation: BenchmarkInstallation) -> float:
    return usage(installation, "").by_process.get(WATCHED, 0.0)


async def _pause(over: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await over.wait()
    except TimeoutError:
        return


def lines(found: FolderFigures) -> list[str]:
    each = found.files / found.first_seconds
    return [
        f"{found.files} files: {found.first_seconds:.0f} s until searchable ({each:.0f} a second); "
        f"again, unchanged: {found.again_seconds:.2f} s, {found.again_cpu_seconds:.2f} s of CPU in the command",
        f"  gateway and worker {found.idle_mb:.0f} MB idle, {found.peak_mb:.0f} MB at most",
        f"  {found.probes} files of another container meanwhile waited {found.waited_p50:.1f} s "
        f"(median), {found.max_wait:.1f} s at most",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--files", type=int, nargs="+", default=[FILES])
    for files in parser.parse_args().files:
        print("\n".join(lines(asyncio.run(measure(files)))), flush=True)


if __name__ == "__main__":
    main()
