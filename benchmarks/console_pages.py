"""How long the console's pages take with a large container: 100,000 chunks in some 20,000 documents.

    python -m benchmarks.console_pages --work FOLDER --chunks 100000

Every route of the console that shows a page is requested by one signed-in client, in turns, with its addresses' parts
filled from the container. Lists are also requested sorted, filtered and from their middle. The bar is 300 ms for the
95th percentile of each page, and 150 ms for a search as one types.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Final

import httpx
from starlette.routing import Route

from benchmarks import corpus
from benchmarks.installation import BenchmarkInstallation, running, work_folder
from benchmarks.search import Spread, container_of, prepare, texts_of, until_warm
from latent_gateway.console import site

SAMPLES: Final = 40
WARM_UP: Final = 3
SEED: Final = 31
TEXTS: Final = 2000
PATIENT: Final = {"LLC_SEARCH_TIMEOUT_MS": "10000"}
SKIPPED: Final = re.compile(r"live|static|login|original|download|\{path|events")
"""Streams, files, and what needs no session."""
PART: Final = re.compile(r"\{(\w+)(?::\w+)?\}")
OF_DOCUMENTS: Final = (
    "?sort=newest",
    "?sort=largest",
    "?sort=path",
    "?state=failed",
    "?type=text",
    "?prefix=file:///1",
)
QUERIES: Final = {
    "/console/search/panel": "?c={container_id}&chunk={chunk_id}&q=first",
    "/console/documents/{doc_id}/boxes": "?number=1&chunk={chunk_id}",
}
"""Of parts of pages that need one."""
NEEDS_MORE: Final = frozenset({"/console/containers/{container_id}/quality/compare"})
"""Two evaluations, which the container has not."""
SIZES: Final = """
SELECT count(*) AS documents, (array_agg(id::text ORDER BY id))[1 + count(*) / 2] AS doc_id
FROM documents WHERE container_id = %(container_id)s
"""
CHUNK: Final = "SELECT id::text AS chunk_id FROM chunks WHERE doc_id = %(doc_id)s::uuid LIMIT 1"
JOB: Final = "SELECT max(id) AS job_id FROM jobs"


def pages(parts: Mapping[str, str], container: str) -> list[str]:
    """Addresses of all pages whose parts are known."""
    found = [f"/console/containers/{container}{query}" for query in OF_DOCUMENTS]
    for router in site.ROUTERS:
        for route in router.routes:
            if isinstance(route, Route) and "GET" in (route.methods or ()):
                whole = route.path + QUERIES.get(route.path, "")
                path = PART.sub(lambda one: parts.get(one[1], one[0]), whole)
                skipped = SKIPPED.search(route.path) or route.path in NEEDS_MORE
                if "{" not in path and not skipped:
                    found.append(path)
    return list(dict.fromkeys(found))


def measure(
    installation: BenchmarkInstallation, addresses: Sequence[str], queries: Sequence[str]
) -> dict[str, Spread]:
    """Milliseconds by address; a search for half a word is one of them."""
    times: dict[str, list[float]] = {}
    typed = "/console/search as one types"
    with httpx.Client(base_url=installation.url, trust_env=False, timeout=60) as browser:
        left = [*addresses, typed]
        headers = {"Origin": installation.url}
        browser.post("/login", data={"token": installation.token}, headers=headers)
        for sample in range(WARM_UP + SAMPLES):
            for address in tuple(left):
                path = address
                part = {}
                if address == typed:
                    words = queries[sample % len(queries)]
                    path = f"/console/search?typing=1&q={words[: 3 + sample % 9]}"
                    part = {"X-Part": "1"}
                begun = perf_counter()
                answer = browser.get(path, headers=part)
                milliseconds = (perf_counter() - begun) * 1000
                if answer.status_code != 200:
                    # Such as a page that needs a language model.
                    print(f"  not measured: {path}: {answer.status_code}", flush=True)
                    left.remove(address)
                    continue
                if sample >= WARM_UP:
                    times.setdefault(address, []).append(milliseconds)
    return {address: Spread.of(found) for address, found in times.items()}


async def _parts(installation: BenchmarkInstallation, container: str) -> dict[str, str]:
    async with installation.database() as database, database.transaction() as conn:
        row = await (await conn.execute(SIZES, {"container_id": container})).fetchone()
        job = await (await conn.execute(JOB)).fetchone()
        assert row is not None
        chunk = await (await conn.execute(CHUNK, {"doc_id": row["doc_id"]})).fetchone()
    assert chunk is not None
    print(f"{row['documents']:,} documents")
    parts = {"container_id": container, "doc_id": str(row["doc_id"]), **chunk}
    if job is not None and job["job_id"] is not None:
        parts["job_id"] = str(job["job_id"])
    return parts


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
            addresses = pages(await _parts(installation, container), container)
            await until_warm(installation, container)
            queries = list(corpus.queries(texts_of(TEXTS), SAMPLES + WARM_UP, seed=SEED))
            found = await asyncio.to_thread(measure, installation, addresses, queries)
    print(f"{arguments.chunks:,} chunks, one client, load {os.getloadavg()[0]:.1f}\n")
    print("| page | p50 ms | p95 ms |\n|---|---|---|")
    for address, spread in sorted(found.items(), key=lambda one: -one[1].p95_ms):
        print(f"| {address} | {spread.p50_ms} | {spread.p95_ms} |")


if __name__ == "__main__":
    asyncio.run(main())
