"""What a search box asks, beside the plain search of the same words, in turns: half words, facets, similar texts, and
misspelt words.

    python -m benchmarks.search_box --work FOLDER --chunks 100000

Each kind is measured over HTTP with one client in the container that ``benchmarks.search`` makes. Its documents have a
year and two tags, whose values are counted with source type and language.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks import corpus
from benchmarks.installation import BenchmarkInstallation, running, work_folder
from benchmarks.search import TOP_K, Asker, Spread, container_of, prepare, texts_of, until_warm

SAMPLES: Final = 150
WARM_UP: Final = 15
SEED: Final = 29
TEXTS: Final = 2000
FACETS: Final = ("source_type", "language", "meta.year", "meta.tags")
MODES: Final = ("lexical", "hybrid")
PATIENT: Final = {"LLC_SEARCH_TIMEOUT_MS": "10000"}
"""A late answer counts with the time it took."""
SET_META: Final = """
UPDATE documents
SET meta = jsonb_build_object('year', 2000 + (hashtext(uri) & 15),
                              'tags', jsonb_build_array('t' || (hashtext(uri) & 7), 't' || (hashtext(uri) & 63)))
WHERE container_id = %(container_id)s AND meta = '{}'
"""
DOCUMENTS: Final = (
    "SELECT id FROM documents WHERE container_id = %(container_id)s ORDER BY id LIMIT 500"
)

Body = dict[str, Any]
Kinds = dict[str, Callable[[str], Body]]


def kinds(documents: Sequence[str]) -> Kinds:
    """Each kind of request, for the same words."""
    chance = random.Random(SEED)

    def typed(query: str) -> Body:
        """Any moment of the last word: at one letter as often as at seven."""
        *words, last = query.split()
        return {
            "query": " ".join([*words, last[: chance.randint(1, len(last))]]),
            "as_you_type": True,
        }

    def misspelt(query: str) -> Body:
        """A letter of one long word is doubled."""
        words = query.split()
        at = max(range(len(words)), key=lambda n: len(words[n]))
        place = len(words[at]) // 2
        words[at] = words[at][:place] + words[at][place] * 2 + words[at][place:]
        return {"query": " ".join(words)}

    return {
        "plain": lambda query: {"query": query},
        "as you type": typed,
        "one letter": lambda query: {"query": query[:1], "as_you_type": True},
        "1 facet": lambda query: {"query": query, "facets": ["source_type"]},
        "4 facets": lambda query: {"query": query, "facets": list(FACETS)},
        "misspelt": misspelt,
        "like": lambda _: {"like": {"doc_id": chance.choice(documents)}},
    }


def measure(
    installation: BenchmarkInstallation, chunks: int, queries: Iterator[str], requests: Kinds
) -> dict[tuple[str, str], Spread]:
    asker = Asker(installation.url, installation.token)
    times: dict[tuple[str, str], list[float]] = {}
    for sample in range(WARM_UP + SAMPLES):
        next(queries)  # short queries and questions alternate: every kind gets both
        for mode in MODES:
            for kind, body in requests.items():
                request = {"containers": [container_of(chunks)], "top_k": TOP_K, "mode": mode}
                milliseconds, _ = asker.ask(request | body(next(queries)), empty=True)
                if sample >= WARM_UP:
                    times.setdefault((mode, kind), []).append(milliseconds)
    asker.close()
    return {key: Spread.of(values) for key, values in times.items()}


async def _documents(installation: BenchmarkInstallation, container: str) -> list[str]:
    async with installation.database() as database, database.transaction() as conn:
        await conn.execute(SET_META, {"container_id": container})
        cursor = await conn.execute(DOCUMENTS, {"container_id": container})
        return [str(row["id"]) for row in await cursor.fetchall()]


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--work", type=Path, help="folder that keeps the container for the next run"
    )
    parser.add_argument("--chunks", type=int, default=100_000)
    arguments = parser.parse_args()
    with work_folder(arguments.work, "search") as folder:
        async with running(folder, PATIENT) as installation:
            await prepare(installation, arguments.chunks)
            container = container_of(arguments.chunks)
            documents = await _documents(installation, container)
            await installation.restart()
            await until_warm(installation, container)
            requests = kinds(documents)
            needed = (WARM_UP + SAMPLES) * (1 + len(MODES) * len(requests))
            queries = iter(corpus.queries(texts_of(TEXTS), needed, seed=SEED))
            found = await asyncio.to_thread(
                measure, installation, arguments.chunks, queries, requests
            )
    print(f"{arguments.chunks:,} chunks, one client, load {os.getloadavg()[0]:.1f}\n")
    print("| mode | kind | p50 ms | p95 ms |\n|---|---|---|---|")
    for (mode, kind), spread in found.items():
        print(f"| {mode} | {kind} | {spread.p50_ms} | {spread.p95_ms} |")


if __name__ == "__main__":
    asyncio.run(main())
