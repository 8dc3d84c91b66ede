"""Whether this version costs more processor time than an earlier one: both in one run, in turns, as ratios.

    python -m benchmarks.regression --base HEAD~1

The sources of ``--base`` are checked out beside this version and run by the same interpreter and libraries. Processor
time of all processes counts, not the clock: on shared machines it changes less. A figure fails when even the lower end
of the 95 % interval of its ratio is above ``BOUND``, twice in a row.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
import psutil

from benchmarks import corpus
from benchmarks.installation import BenchmarkInstallation, add, create, ended, quiet, running
from benchmarks.search import Asker, until_warm

HERE: Final = Path(__file__).resolve().parent.parent
SOURCES: Final = ("core", "client", "mcp-server", "workers", "cli")
BOUND: Final = 1.15
PAIRS: Final = 8
CONFIRMING: Final = 2
"""Times as many pairs measure a figure again that seems to be worse."""
DRAWS: Final = 2000
CONTAINER: Final = "regression"
TEXTS: Final = 40
"""Of the container, and of one ingest."""
SEARCHES: Final = 30
WARM_UP: Final = 10
SEED: Final = 41


@dataclass(frozen=True, slots=True)
class Ratio:
    """Of two processor times, with its 95 % interval."""

    median: float
    low: float
    high: float

    @property
    def is_worse(self) -> bool:
        return self.low > BOUND

    @classmethod
    def of(cls, here: Sequence[float], base: Sequence[float]) -> Ratio:
        """Of pairs measured one after the other: the median, and the interval by resampling of the pairs."""
        ratios = np.array(here) / np.array(base)
        drawn = np.random.default_rng(SEED).choice(ratios, (DRAWS, len(ratios)))
        low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
        return cls(*(round(float(one), 3) for one in (np.median(ratios), low, high)))


@dataclass(frozen=True, slots=True)
class Figure:
    """What is compared, in seconds of processor time."""

    name: str
    here: list[float]
    base: list[float]
    ratio: Ratio


class MeasuredVersion:
    """One version in an installation of its own."""

    def __init__(self, installation: BenchmarkInstallation) -> None:
        self.installation = installation
        self._rounds = 0

    async def prepare(self) -> None:
        """Make the container that is searched."""
        async with self.installation.client() as client:
            await create(client, CONTAINER)
            await self._ingest()
            await quiet(client, CONTAINER)
        await until_warm(self.installation, CONTAINER)
        await self.hybrid()

    async def start(self) -> float:
        """Stop and start again."""
        await self.installation.stop()
        await self.installation.start()
        return processor_seconds(self.installation)

    async def ingest(self) -> float:
        """A corpus of new texts, until they can be found."""
        before = processor_seconds(self.installation)
        await self._ingest()
        return processor_seconds(self.installation) - before

    async def words(self) -> float:
        return await asyncio.to_thread(self._search, "lexical")

    async def hybrid(self) -> float:
        return await asyncio.to_thread(self._search, "hybrid")

    async def _ingest(self) -> None:
        self._rounds += 1
        file = self.installation.folder / f"texts-{self._rounds}.jsonl"
        corpus.write_jsonl(file, list(corpus.PassageWriter(self._rounds).passages(TEXTS)))
        async with self.installation.client() as client:
            await ended(client, [await add(client, CONTAINER, file)])
            await quiet(client, CONTAINER)

    def _search(self, mode: str) -> float:
        """So many searches, none of which was asked before."""
        self._rounds += 1
        texts = list(corpus.PassageWriter(1).passages(TEXTS))
        queries = corpus.queries(texts, WARM_UP + SEARCHES, seed=self._rounds)
        asker = Asker(self.installation.url, self.installation.token)
        bodies = [
            {"containers": [CONTAINER], "query": query, "top_k": 10, "mode": mode}
            for query in queries
        ]
        for body in bodies[:WARM_UP]:
            asker.ask(body)
        before = processor_seconds(self.installation)
        for body in bodies[WARM_UP:]:
            asker.ask(body)
        spent = processor_seconds(self.installation) - before
        asker.close()
        return spent


def processor_seconds(installation: BenchmarkInstallation) -> float:
    """Of all processes of an installation, also of those that have ended."""
    total = 0.0
    for process in installation.tree():
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:  # its parent has its time by now, or will in the next figure
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


Spend = Callable[[MeasuredVersion], Awaitable[float]]
MEASURED: Final[dict[str, Spend]] = {
    "start": MeasuredVersion.start,
    "ingest": MeasuredVersion.ingest,
    "words": MeasuredVersion.words,
    "hybrid": MeasuredVersion.hybrid,
}


async def compared(here: Path, base: Path, folder: Path, pairs: int = PAIRS) -> list[Figure]:
    """Every figure of the two source trees. One that is worse has been measured again."""
    async with AsyncExitStack() as both:
        versions = []
        for name, tree in (("here", here), ("base", base)):
            (folder / name).mkdir(mode=0o755)
            settings = {"PYTHONPATH": paths_of(tree)}
            installation = await both.enter_async_context(running(folder / name, settings))
            versions.append(MeasuredVersion(installation))
            await versions[-1].prepare()
        figures = []
        for name, spend in MEASURED.items():
            figure = await _figure(name, spend, versions, pairs)
            if figure.ratio.is_worse:
                print(f"  {_line(figure)}: again", flush=True)
                figure = await _figure(name, spend, versions, CONFIRMING * pairs)
            print(f"  {_line(figure)}", flush=True)
            figures.append(figure)
        return figures


async def _figure(
    name: str, spend: Spend, versions: Sequence[MeasuredVersion], pairs: int
) -> Figure:
    here: list[float] = []
    base: list[float] = []
    for pair in range(pairs):
        order = list(zip(versions, (here, base), strict=True))
        for version, spent in reversed(order) if pair % 2 else order:
            spent.append(round(await spend(version), 3))
    return Figure(name, here, base, Ratio.of(here, base))


def _line(figure: Figure) -> str:
    ratio, base, here = figure.ratio, np.median(figure.base), np.median(figure.here)
    return (
        f"{figure.name:8} {base:.2f} s before, {here:.2f} s now, "
        f"ratio {ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
    )


def paths_of(tree: Path) -> str:
    """The ``PYTHONPATH`` by which a process runs these sources."""
    return os.pathsep.join(str(tree / one / "src") for one in SOURCES)


def check_out(revision: str, folder: Path) -> Path:
    """All files of a revision: its packages also read what lies beside them (``migrations``)."""
    tree = folder / "base-sources"
    tree.mkdir(mode=0o755)
    archive = subprocess.run(
        ["git", "archive", revision], cwd=HERE, check=True, capture_output=True
    )
    subprocess.run(["tar", "-x"], cwd=tree, check=True, input=archive.stdout)
    return tree


def main() -> None:
    parser = argparse.ArgumentParser(description="Processor time against an earlier version")
    parser.add_argument("--base", default="HEAD~1", help="git revision to compare with")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="latent-regression-") as temporary:
        folder = Path(temporary)
        folder.chmod(0o755)  # as root, Postgres runs as another user
        base = check_out(options.base, folder)
        print(f"processor time against {options.base}, load {os.getloadavg()[0]:.1f}", flush=True)
        figures = asyncio.run(compared(HERE, base, folder, options.pairs))
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in figures], indent=1), "utf-8")
    print(f"load {os.getloadavg()[0]:.1f}, {time.monotonic() - begun:.0f} s")
    worse = [one.name for one in figures if one.ratio.is_worse]
    if worse:
        sys.exit(f"worse than {options.base} by more than {BOUND - 1:.0%}: {', '.join(worse)}")


if __name__ == "__main__":
    main()
