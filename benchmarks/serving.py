"""Search as it is used: many clients, several containers, frequent words, expressions, and an ingest meanwhile.

All of it in containers that ``benchmarks.search`` has made, as ratios within one run.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from benchmarks import corpus
from benchmarks.installation import BenchmarkInstallation, add, create, quiet
from benchmarks.search import (
    QUERIES_PER_RUN,
    TOP_K,
    Asker,
    Spread,
    container_of,
    prepare,
    texts_of,
    until_warm,
)

CLIENTS: Final = (1, 2, 4, 8, 16)
SECONDS: Final = 15.0
"""Of each number of clients."""
SAMPLES: Final = 60
SEED: Final = 23
LITERAL_CHARS: Final = 3
INGESTED_TEXTS: Final = 4000


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """So many clients, each asking again as soon as it is answered."""

    chunks: int
    clients: int
    per_second: float
    spread: Spread


@dataclass(frozen=True, slots=True)
class Case:
    """A kind of query in one container, in milliseconds, and what it is compared with."""

    what: str
    spread: Spread
    compared: Spread

    @property
    def ratio(self) -> float:
        """Of the medians."""
        return round(self.spread.p50_ms / self.compared.p50_ms, 2)


@dataclass(frozen=True, slots=True)
class ServingFigures:
    loads: list[LoadFigures]
    cases: list[Case]


async def serving(installation: BenchmarkInstallation, sizes: Sequence[int]) -> ServingFigures:
    """Everything, in the largest container; several together in all of them."""
    for chunks in sorted(sizes):
        await prepare(installation, chunks)
    await installation.restart()
    await until_warm(installation, container_of(min(sizes)))
    largest = max(sizes)
    fresh = fresh_queries(largest)
    cases = await asyncio.to_thread(_cases, installation, sorted(sizes), fresh)
    loads = [
        await asyncio.to_thread(load, installation, largest, clients, fresh) for clients in CLIENTS
    ]
    cases.append(await _while_ingesting(installation, largest, fresh))
    return ServingFigures(loads, cases)


def fresh_queries(chunks: int) -> Iterator[str]:
    texts = texts_of(min(chunks, QUERIES_PER_RUN))
    seed = SEED
    while True:
        yield from corpus.queries(texts, 1000, seed=seed)
        seed += 1


def _ask(
    containers: Sequence[int], query: str, mode: str = "hybrid", **more: Any
) -> dict[str, Any]:
    names = [container_of(chunks) for chunks in containers]
    return {"containers": names, "query": query, "top_k": TOP_K, "mode": mode, **more}


def _cases(
    installation: BenchmarkInstallation, sizes: Sequence[int], fresh: Iterator[str]
) -> list[Case]:
    asker = Asker(installation.url, installation.token)
    largest = sizes[-1]
    texts = texts_of(QUERIES_PER_RUN)
    usual = lambda: _ask([largest], next(fresh))  # noqa: E731 - a row of a table
    lexical = lambda: _ask([largest], next(fresh), "lexical")  # noqa: E731
    literals = _literals(texts)
    frequent = _frequent(texts)
    random = np.random.default_rng(SEED)
    pick: Callable[[Sequence[str]], str] = lambda among: among[int(random.integers(len(among)))]  # noqa: E731
    rows: list[tuple[str, Callable[[], dict[str, Any]], Callable[[], dict[str, Any]]]] = [
        (
            "a frequent word, lexical",
            lambda: _ask([largest], pick(frequent), "lexical"),
            lexical,
        ),
        (
            "a frequent word with others, hybrid",
            lambda: _ask([largest], f"{pick(frequent)} {next(fresh)}"),
            usual,
        ),
        (
            "an expression with a literal of three characters, alone",
            lambda: _ask([largest], "", "lexical", regexes=[rf"\b{pick(literals)}[a-z]*ed\b"]),
            usual,
        ),
        (
            "a term that must stand there, hybrid",
            lambda: _ask([largest], next(fresh), must_terms=[pick(literals)]),
            usual,
        ),
        (f"{len(sizes)} containers together", lambda: _ask(sizes, next(fresh)), usual),
    ]
    try:
        return [_compare(asker, *row) for row in rows]
    finally:
        asker.close()


def _compare(
    asker: Asker,
    what: str,
    ask: Callable[[], dict[str, Any]],
    compared: Callable[[], dict[str, Any]],
) -> Case:
    """Both take turns, so that a disturbance falls on both."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(SAMPLES):
        for body, kept in ((ask(), times[0]), (compared(), times[1])):
            kept.append(asker.ask(body, empty=True)[0])
    return Case(what, Spread.of(times[0]), Spread.of(times[1]))


def _literals(texts: Sequence[str]) -> list[str]:
    """Beginnings of words that stand in one text in a hundred, wherever in a word: what an identifier has. One
    that stands everywhere makes every text be read, which is answered in part after two seconds."""
    beginnings = {w[:LITERAL_CHARS] for w in _document_counts(texts) if len(w) > 5 and w.isalpha()}
    lowered = [text.lower() for text in texts]
    counts = {one: sum(one in text for text in lowered) for one in beginnings}
    return sorted(one for one, count in counts.items() if 2 <= count <= len(texts) / 100)


def _frequent(texts: Sequence[str]) -> list[str]:
    """Words of half of all texts."""
    counts = _document_counts(texts)
    return [word for word, count in counts.items() if count >= len(texts) / 2]


def _document_counts(texts: Sequence[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for text in texts:
        for word in set(text.lower().replace(".", "").split()):
            counts[word] = counts.get(word, 0) + 1
    return counts


def load(
    installation: BenchmarkInstallation,
    chunks: int,
    clients: int,
    fresh: Iterator[str],
    seconds: float = SECONDS,
) -> LoadFigures:
    """``clients`` threads, each on its own connection, for some seconds."""
    times: list[float] = []
    lock = threading.Lock()
    until = time.perf_counter() + seconds

    def work() -> None:
        asker = Asker(installation.url, installation.token)
        while time.perf_counter() < until:
            with lock:
                query = next(fresh)
            milliseconds, _ = asker.ask(_ask([chunks], query))
            times.append(milliseconds)
        asker.close()

    threads = [threading.Thread(target=work) for _ in range(clients)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return LoadFigures(
        chunks, clients, round(len(times) / (time.perf_counter() - begun), 1), Spread.of(times)
    )


async def _while_ingesting(
    installation: BenchmarkInstallation, chunks: int, fresh: Iterator[str]
) -> Case:
    """Hybrid search in one container while texts are embedded into another."""
    idle = await asyncio.to_thread(_sampled, installation, chunks, fresh)
    async with _ingest(installation):
        busy = await asyncio.to_thread(_sampled, installation, chunks, fresh)
    return Case("hybrid, while another container ingests", busy, idle)


def _sampled(installation: BenchmarkInstallation, chunks: int, fresh: Iterator[str]) -> Spread:
    asker = Asker(installation.url, installation.token)
    times = [asker.ask(_ask([chunks], next(fresh)))[0] for _ in range(SAMPLES * 2)]
    asker.close()
    return Spread.of(times)


@asynccontextmanager
async def _ingest(installation: BenchmarkInstallation) -> AsyncIterator[None]:
    """A corpus is being ingested within the block, and gone after it."""
    name = f"ingesting-{int(time.time())}"
    texts = list(corpus.PassageWriter(SEED + int(time.time()) % 1000).passages(INGESTED_TEXTS))
    file = corpus.write_jsonl(installation.folder / "ingesting.jsonl", texts)
    async with installation.client() as client:
        await create(client, name)
        job = await add(client, name, file)
        while not (await client.describe(name)).sizes.chunks:  # noqa: ASYNC110 - no event crosses processes
            await asyncio.sleep(0.2)
        try:
            yield
        finally:
            done = (await client.job(job)).state.value
            if done != "running":
                raise RuntimeError(
                    f"the ingest was '{done}' before all was measured: make it longer"
                )
            await client.cancel(job)
            await client.delete(name)
            await quiet(client, container_of(1000))
