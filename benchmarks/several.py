"""A search over several containers, against the right one alone and against one container with all their chunks.

    python -m benchmarks.several FOLDER [--tables FOLDER] [--embedder SET=EMBEDDER] [--dims N] [--work FOLDER] [--json FILE]

FOLDER holds judged sets (see ``benchmarks.quality``); each becomes a container, and ``--tables`` a further one with every
Markdown file below it, which no query is about. ``--embedder time=local-int8`` gives a container another embedder.

- hit@1, hit@3, hit@10: the share of a set's queries whose first hits, searched in all containers, have a relevant document.
- Latency: the same queries over all containers and over one container that holds all their chunks, in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any, Final

import numpy as np
import orjson

from benchmarks.installation import (
    BenchmarkInstallation,
    add,
    create,
    ended,
    quiet,
    running,
    work_folder,
)
from benchmarks.quality import SearchJudgedSet, read_set
from latent_client import AsyncClient
from latent_core.wire.search import Hit, SearchRequest

SETS: Final = ("cookbook-docs", "adi", "time", "medline")
TABLES: Final = "tables"
ALL: Final = "all-in-one"
CUTS: Final = (1, 3, 10)
SEED: Final = 19
PATIENT: Final = {"LLC_SEARCH_TIMEOUT_MS": "30000"}


@dataclass(frozen=True, slots=True)
class SetHits:
    """Share of a set's queries with a relevant document among the first 1, 3 and 10 hits."""

    name: str
    queries: int
    alone: tuple[float, ...]
    together: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SeveralFigures:
    sets: list[SetHits]
    alone: tuple[float, ...]
    """Over all queries."""
    together: tuple[float, ...]
    one_p50_ms: float
    one_p95_ms: float
    several_p50_ms: float
    several_p95_ms: float


async def measure(
    installation: BenchmarkInstallation,
    judged: Sequence[SearchJudgedSet],
    corpora: dict[str, Path],
    embedders: dict[str, dict[str, Any]],
) -> SeveralFigures:
    async with installation.client() as client:
        for name, corpus in corpora.items():
            await create(client, name, **embedders.get(name, {}))
            await ended(client, [await add(client, name, corpus)])
            await quiet(client, name)
            print(f"{name}: ingested", flush=True)
        names = [name for name in corpora if name != ALL]
        alone, together = {}, {}
        for one in judged:
            alone[one.name] = await _ranks(client, one, [one.name])
            together[one.name] = await _ranks(client, one, names)
        queries = [text for one in judged for text in list(one.queries.values())[:60]]
        single, several = await _latency(client, queries, names)
    return SeveralFigures(
        [
            SetHits(s.name, len(s.queries), _shares(alone[s.name]), _shares(together[s.name]))
            for s in judged
        ],
        _shares([rank for ranks in alone.values() for rank in ranks]),
        _shares([rank for ranks in together.values() for rank in ranks]),
        *np.percentile(single, (50, 95)).tolist(),
        *np.percentile(several, (50, 95)).tolist(),
    )


async def _ranks(client: AsyncClient, judged: SearchJudgedSet, names: Sequence[str]) -> list[int]:
    """Rank of the first relevant hit of each query; 0 for none."""
    relevant: dict[str, set[str]] = {}
    for qrel in judged.qrels:
        if qrel.relevance > 0:
            relevant.setdefault(qrel.query_id, set()).add(qrel.doc_id)
    ranks = []
    for query_id, text in judged.queries.items():
        hits = await _search(client, text, names)
        expected = relevant.get(query_id, set())
        ranks.append(
            next(
                (
                    place
                    for place, hit in enumerate(hits, start=1)
                    if hit.container_id == judged.name and hit.external_id in expected
                ),
                0,
            )
        )
    return ranks


async def _search(client: AsyncClient, text: str, names: Sequence[str]) -> list[Hit]:
    answer = await client.search(SearchRequest(containers=list(names), query=text, top_k=max(CUTS)))
    if answer.partial:
        raise RuntimeError(f"a search was partial: {answer.issues}")
    return answer.hits


def _shares(ranks: Sequence[int]) -> tuple[float, ...]:
    return tuple(round(fmean(0 < rank <= cut for rank in ranks), 4) for cut in CUTS)


async def _latency(
    client: AsyncClient, queries: Sequence[str], names: Sequence[str]
) -> tuple[list[float], list[float]]:
    """Milliseconds per search over one container and over several, in turn; the first pass warms up. Each search has
    the words of a query in another order, so that none finds its vector in the cache."""
    chance = random.Random(SEED)
    single: list[float] = []
    several: list[float] = []
    for number in range(2):
        for text in queries:
            for taken, chosen in ((single, [ALL]), (several, names)):
                words = text.split()
                chance.shuffle(words)
                begun = perf_counter()
                await _search(client, " ".join(words), chosen)
                if number:
                    taken.append(1000 * (perf_counter() - begun))
    return single, several


def _corpora(folder: Path, tables: Path | None, work: Path) -> dict[str, Path]:
    """The corpus of each container; that of all together holds each of their records."""
    corpora = {name: folder / name / "corpus.jsonl" for name in SETS}
    if tables is not None:
        corpora[TABLES] = work / "tables.jsonl"
        with corpora[TABLES].open("wb") as out:
            for file in sorted(tables.rglob("*.md")):
                text = file.read_text(encoding="utf-8", errors="replace")
                out.write(
                    orjson.dumps({"_id": file.stem, "title": file.stem, "text": text}) + b"\n"
                )
    corpora[ALL] = work / "all.jsonl"
    with corpora[ALL].open("wb") as out:
        for name, corpus in corpora.items():
            if name == ALL:
                continue
            with corpus.open("rb") as lines:
                for line in lines:
                    record = orjson.loads(line)
                    out.write(orjson.dumps({**record, "_id": f"{name}-{record['_id']}"}) + b"\n")
    return corpora


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tables", type=Path)
    parser.add_argument("--embedder", action="append", default=[], metavar="SET=EMBEDDER")
    parser.add_argument("--dims", type=int, default=384)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    pairs = (one.partition("=") for one in options.embedder)
    embedders = {name: {"embedder": model, "dims": options.dims} for name, _, model in pairs}
    judged = [read_set(options.folder / name) for name in SETS]

    async def run() -> SeveralFigures:
        with work_folder(options.work, "several") as work:
            corpora = _corpora(options.folder, options.tables, work)
            async with running(work, PATIENT) as installation:
                return await measure(installation, judged, corpora, embedders)

    figures = asdict(asyncio.run(run()))
    print(json.dumps(figures, indent=2))
    if options.json is not None:
        options.json.write_text(json.dumps(figures), encoding="utf-8")


if __name__ == "__main__":
    main()
