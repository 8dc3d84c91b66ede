"""All benchmarks in one run: `make bench`.

    python -m benchmarks.run                                   ingest, chunking, folders, search, memory, size
    python -m benchmarks.run --data FOLDER --cache FOLDER      and quality on judged sets
    python -m benchmarks.run --only search --chunks 1000
    python -m benchmarks.run --only quality --gate ...         exit 1 if a bar is missed

Every part has an installation of its own in a temporary folder, or below --work, where the containers that
search is measured on are kept for the next run. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import orjson
import psutil
from pydantic import BaseModel

from benchmarks import (
    agents,
    chunking,
    folders,
    ingest,
    memory,
    plot,
    quality,
    report,
    search,
    serving,
    size,
)
from benchmarks.installation import MEGABYTE, running, work_folder
from benchmarks.report import BenchmarkResults
from latent_core.domain.chunk import SourceType
from latent_core.runtime.process import cores

SIZES: Final = (1_000, 10_000, 100_000)
PATIENT: Final = {"LLC_SEARCH_TIMEOUT_MS": "30000"}
"""What is found does not depend on who else uses the machine."""
QUIET: Final = 0.5
"""A load average above it says that the machine was not ours alone."""


async def _size(_arguments: argparse.Namespace, results: BenchmarkResults) -> None:
    results.size = await asyncio.to_thread(size.measure)


async def _memory(_arguments: argparse.Namespace, results: BenchmarkResults) -> None:
    with work_folder(None, "memory") as folder:
        async with running(folder) as installation:
            results.memory = await memory.measure(installation)


async def _ingest(arguments: argparse.Namespace, results: BenchmarkResults) -> None:
    with work_folder(None, "ingest") as folder:
        async with running(folder) as installation:
            results.ingest = await ingest.throughput(installation, arguments.rounds)
            results.pdf = await ingest.pdf(installation)


async def _chunking(arguments: argparse.Namespace, results: BenchmarkResults) -> None:
    sources = {SourceType.CODE: chunking.stdlib(), SourceType.MARKDOWN: arguments.data}
    for source_type, folder in sources.items():
        if folder is not None:
            made = await asyncio.to_thread(chunking.measure, source_type, folder)
            results.chunking.append(made)


async def _folders(arguments: argparse.Namespace, results: BenchmarkResults) -> None:
    for files in arguments.files:
        results.folders.append(await folders.measure(files))


async def _search(arguments: argparse.Namespace, results: BenchmarkResults) -> None:
    with work_folder(arguments.work, "search") as folder:
        async with running(folder) as installation:
            results.search, results.footprints = await search.latency(
                installation, arguments.chunks, arguments.rounds
            )


async def _serving(arguments: argparse.Namespace, results: BenchmarkResults) -> None:
    with work_folder(arguments.work, "search") as folder:
        async with running(folder) as installation:
            results.serving = await serving.serving(installation, arguments.chunks)


async def _agents(arguments: argparse.Namespace, results: BenchmarkResults) -> None:
    with work_folder(arguments.work, "search") as folder:
        async with running(folder) as installation:
            results.agents = await agents.overhead(installation, agents.nearest(arguments.chunks))


async def _quality(arguments: argparse.Namespace, results: BenchmarkResults) -> None:
    if arguments.data is None:
        return
    with work_folder(None, "quality") as folder:
        async with running(folder, PATIENT) as installation:
            for name in arguments.sets:
                judged = await asyncio.to_thread(quality.read_set, arguments.data / name)
                found = await quality.quality(
                    installation,
                    judged,
                    arguments.cache,
                    arguments.embedder,
                    defaults_only=arguments.defaults_only,
                )
                results.quality.append(found)
                _say(
                    f"  {found.name}: lexical {found.lexical:.4f}, semantic {found.semantic:.4f},"
                    f" rrf {found.hybrid:.4f}, auto {found.hybrid_auto:.4f}"
                )


PARTS: Final[dict[str, Callable[[argparse.Namespace, BenchmarkResults], Awaitable[None]]]] = {
    "size": _size,
    "memory": _memory,
    "ingest": _ingest,
    "chunking": _chunking,
    "folders": _folders,
    "search": _search,
    "serving": _serving,
    "agents": _agents,
    "quality": _quality,
}


async def run(arguments: argparse.Namespace) -> BenchmarkResults:
    results = BenchmarkResults(_machine())
    for name in arguments.only:
        load = os.getloadavg()[0]
        results.load_before[name] = round(load, 2)
        busy = f" (load {load:.1f}: the machine is busy, trust ratios)" if load > QUIET else ""
        _say(f"{name} …{busy}")
        await PARTS[name](arguments, results)
    return results


def _machine() -> dict[str, str | float]:
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cores": cores(),
        "memory_gb": round(psutil.virtual_memory().total / MEGABYTE / 1024, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    parser.add_argument("--data", type=Path, help="folder of judged sets")
    parser.add_argument("--sets", nargs="+", default=list(quality.SETS), help="folders below it")
    parser.add_argument(
        "--embedder", choices=list(quality.SPACES), default="local", help="of judged sets"
    )
    parser.add_argument(
        "--defaults-only",
        action="store_true",
        help="ask judged sets by the fusions that containers have, and by no others",
    )
    parser.add_argument(
        "--gate", action="store_true", help="exit 1 if a bar is missed or none was measured"
    )
    parser.add_argument("--cache", type=Path, help="keeps vectors of judged sets between runs")
    parser.add_argument("--work", type=Path, help="keeps the containers of the search part")
    parser.add_argument(
        "--chunks", nargs="+", type=int, default=list(SIZES), help="container sizes"
    )
    parser.add_argument(
        "--files", nargs="+", type=int, default=[folders.FILES], help="files of a folder"
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often all is repeated")
    parser.add_argument("--plot", type=Path, help="file to draw the growth to, as SVG")
    parser.add_argument("--json", type=Path, help="file to write the numbers to")
    return parser.parse_args()


def _say(line: str) -> None:
    print(line, flush=True)


def main() -> None:
    arguments = _arguments()
    results = asyncio.run(run(arguments))
    _say("\n".join(report.lines(results)))
    if arguments.plot and results.search:
        arguments.plot.write_text(plot.growth(results.search, results.footprints), encoding="utf-8")
    if arguments.json:
        arguments.json.write_bytes(
            orjson.dumps(results, default=BaseModel.model_dump, option=orjson.OPT_INDENT_2)
        )
    if arguments.gate and (cause := report.refusal(report.bars(results))):
        raise SystemExit(cause)


if __name__ == "__main__":
    main()
