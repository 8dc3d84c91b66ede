"""What MCP costs: the same search by a tool call and by HTTP, in turns, in a container that ``benchmarks.search`` has made.

Both go over a connection that stays open, to one gateway, and ask for the same hits. The tool answers a compact form
of them and its text, so that the ratio holds whatever the machine does meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx
import orjson

from benchmarks import corpus
from benchmarks.installation import BenchmarkInstallation
from benchmarks.search import TOP_K, Spread, container_of, prepare, texts_of, until_warm

USUAL_CHUNKS: Final = 10_000
SAMPLES: Final = 300
WARMING: Final = 30
SEED: Final = 41
BAR: Final = 1.5
"""Of the medians."""
WAIT_SECONDS: Final = 60.0
ACCEPT: Final = {"Accept": "application/json, text/event-stream"}


@dataclass(frozen=True, slots=True)
class Overhead:
    """In milliseconds."""

    chunks: int
    mcp: Spread
    http: Spread

    @property
    def ratio(self) -> float:
        """Of the medians."""
        return round(self.mcp.p50_ms / self.http.p50_ms, 2)


def nearest(sizes: Sequence[int]) -> int:
    """Of the sizes that are measured, the one that is nearest to what agents mostly search."""
    return min(sizes, key=lambda size: abs(size - USUAL_CHUNKS))


async def overhead(installation: BenchmarkInstallation, chunks: int) -> Overhead:
    """Search by both ways in turns; what is asked is new each time."""
    await prepare(installation, chunks)
    await installation.restart()
    await until_warm(installation, container_of(chunks))
    return await asyncio.to_thread(_measured, installation, chunks)


def _measured(installation: BenchmarkInstallation, chunks: int) -> Overhead:
    headers = {"Authorization": f"Bearer {installation.token}"}
    ways = (_by_mcp, _by_http)
    times: dict[Any, list[float]] = {way: [] for way in ways}
    with httpx.Client(
        base_url=installation.url, headers=headers, timeout=WAIT_SECONDS, trust_env=False
    ) as http:
        for number, query in zip(range(WARMING + 2 * SAMPLES), _queries(chunks), strict=False):
            way = ways[number % 2]
            spent = _timed(way, http, container_of(chunks), query)
            if number >= WARMING:
                times[way].append(spent)
    return Overhead(chunks, Spread.of(times[_by_mcp]), Spread.of(times[_by_http]))


def _queries(chunks: int) -> Iterator[str]:
    """Each once: the vector of a query is kept, and the second to ask would find it."""
    texts = texts_of(min(chunks, 1000))
    seed = SEED
    while True:
        yield from corpus.queries(texts, 1000, seed=seed)
        seed += 1


def _timed(way: Any, http: httpx.Client, container_id: str, query: str) -> float:
    begun = time.perf_counter()
    hits = way(http, container_id, query)
    spent = (time.perf_counter() - begun) * 1000
    if not hits:
        raise RuntimeError(f"nothing was found for '{query}': what was measured is no search")
    return spent


def _by_http(http: httpx.Client, container_id: str, query: str) -> int:
    body = {"containers": [container_id], "query": query, "top_k": TOP_K}
    answer = http.post("/v1/containers/search", json=body).raise_for_status()
    return len(orjson.loads(answer.content)["hits"])


def _by_mcp(http: httpx.Client, container_id: str, query: str) -> int:
    arguments = {"containers": [container_id], "query": query, "top_k": TOP_K}
    params = {"name": "containers_search", "arguments": arguments}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = http.post("/mcp", json=body, headers=ACCEPT).raise_for_status()
    lines = [line for line in answer.text.splitlines() if line.startswith("data: ")]
    message = orjson.loads(lines[-1].removeprefix("data: ") if lines else answer.content)
    return len(message["result"]["structuredContent"]["hits"])
