"""Search latency by mode and stage, over HTTP with one client, the local embedder's query embedding included.

The containers' embedder is ``local``; their chunks' vectors are deterministic ones, quickly made, and up to 10,000
chunks are ingested with them, more come as an archive: 100,000 would take an hour to embed. A search costs the same
whatever the vectors mean; what it finds by meaning says nothing here.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np

from benchmarks import corpus, memory
from benchmarks.archives import write_archive
from benchmarks.installation import BenchmarkInstallation, add, create, ended, quiet
from latent_client import AsyncClient
from latent_core.bm25.compaction import compact
from latent_core.db.spaces import embedding_cache
from latent_core.domain.errors import NotFound
from latent_core.domain.ids import content_hash
from latent_core.domain.manifest.model import Dedup, Manifest, SearchMode
from latent_core.models.embedding.minilm import DIMS, FP32, WINDOW
from latent_core.models.embedding.port import EmbeddingModel
from latent_core.wire.search import SearchRequest
from tests.support.hashed_embedder import HashedWords

MODES: Final = ("lexical", "semantic", "hybrid")
TOP_K: Final = 10
QUERIES: Final = 200
ROUNDS: Final = 3
WARM_UP: Final = 20
WARM_SECONDS: Final = 60.0
SEED: Final = 7
INGESTED: Final = 10_000
"""Chunks of a container that is filled as users fill it."""
NO_SIMILARITY: Final = {"semantic_threshold": 1.0}
"""Made-up vectors are much alike, real ones are not: nothing counts as a near-duplicate here."""
PREFILL_TEXTS: Final = 2000
QUERIES_PER_RUN: Final = 2000
"""Queries are taken from the first so many texts."""
PATH: Final = "/v1/containers/search"
STAGES: Final = ("plan", "embed", "retrieve", "fuse", "hydrate", "render")
"""As the answers' timings name them; the query is embedded while ``retrieve`` runs."""
CHANNELS: Final = ("bm25", "vector", "join")
"""As the diagnostics' timings of a container name them; ``vector`` holds the embedding."""


@dataclass(frozen=True, slots=True)
class Spread:
    p50_ms: float
    p95_ms: float

    @classmethod
    def of(cls, milliseconds: Sequence[float]) -> Spread:
        p50, p95 = np.percentile(milliseconds, [50, 95])
        return cls(round(float(p50), 2), round(float(p95), 2))


@dataclass(frozen=True, slots=True)
class ModeLatency:
    """Of one mode in one container, in milliseconds."""

    chunks: int
    mode: str
    total: Spread
    """As the client sees it, from the request's first byte to the answer's last."""
    server: Spread
    """What the server took to handle the request, less the embedding of the query."""
    stages: dict[str, Spread]
    channels: dict[str, Spread]


def container_of(chunks: int) -> str:
    return f"synthetic-{chunks}"


def texts_of(chunks: int) -> list[str]:
    return list(corpus.PassageWriter(SEED).passages(chunks))


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory (PSS of all processes) when containers of so many chunks in all were searched."""

    chunks: int
    megabytes: float


async def latency(
    installation: BenchmarkInstallation, sizes: Sequence[int], rounds: int = ROUNDS
) -> tuple[list[ModeLatency], list[Footprint]]:
    """Containers of all ``sizes``, smallest first; then a fresh process, and every mode in each."""
    for chunks in sorted(sizes):
        await prepare(installation, chunks)
    await installation.restart()
    await until_warm(installation, container_of(min(sizes)))
    results: list[ModeLatency] = []
    footprints: list[Footprint] = []
    searched = 0
    for chunks in sorted(sizes):
        # Seeded by the size: a query that was asked of another container would be remembered with its vector.
        query_texts = corpus.queries(
            texts_of(min(chunks, QUERIES_PER_RUN)), _queries_needed(rounds), seed=chunks
        )
        results += await asyncio.to_thread(measure, installation, chunks, query_texts, rounds)
        searched += chunks
        usage = await asyncio.to_thread(memory.usage, installation, "searched")
        footprints.append(Footprint(searched, usage.total_mb))
    return results, footprints


async def until_warm(installation: BenchmarkInstallation, container: str) -> None:
    """Return when the query model is loaded: until then answers lack what it would find."""
    request = SearchRequest(containers=[container], query="warm", top_k=1, mode=SearchMode.SEMANTIC)
    async with installation.client() as client, asyncio.timeout(WARM_SECONDS):
        while (await client.search(request)).partial:  # noqa: ASYNC110 - no event crosses processes
            await asyncio.sleep(0.1)


async def prepare(installation: BenchmarkInstallation, chunks: int) -> None:
    """Make the container of ``chunks``, compacted, unless it is there."""
    container = container_of(chunks)
    async with installation.client() as client:
        try:
            if (await client.describe(container)).sizes.chunks >= chunks:
                return
        except NotFound:
            if chunks > INGESTED:
                await _import(installation, client, chunks)
            else:
                await create(client, container, dedup=NO_SIMILARITY)
        if chunks <= INGESTED:
            texts = texts_of(chunks)
            await _prefill(installation, texts)
            file = corpus.write_jsonl(installation.folder / f"{container}.jsonl", texts)
            await _ingest(client, container, file)
        await quiet(client, container)
    async with installation.database() as database:
        await compact(database, container, _go_on)


async def _import(installation: BenchmarkInstallation, client: AsyncClient, chunks: int) -> None:
    container = container_of(chunks)
    manifest = Manifest(id=container, name=container, dedup=Dedup.model_validate(NO_SIMILARITY))
    file = installation.folder / f"{container}.latent.tar.zst"
    space = {"embedder": FP32.embedder, "version": FP32.version, "dims": DIMS}
    await asyncio.to_thread(
        write_archive, file, manifest, space, texts_of(chunks), HashedWords(DIMS).vectors
    )
    answer = await client.import_archive(file, container_id=container)
    (job,) = await ended(client, [answer.job_id])
    if missed := (job.result or {})["embedded"]:
        raise RuntimeError(f"{missed} texts were embedded: the archive was to hold all vectors")
    file.unlink()


async def _ingest(client: AsyncClient, container: str, file: Path) -> None:
    before = await embedded(client)
    await ended(client, [await add(client, container, file)])
    if (missed := await embedded(client) - before) > 0:
        raise RuntimeError(f"{missed:g} texts were embedded: the cache was to hold all of them")


async def embedded(client: AsyncClient) -> float:
    """Texts sent to the embedder, by the server's own count."""
    lines = (await client.metrics()).splitlines()
    counts = [line for line in lines if line.startswith("latent_embedded_texts_total")]
    return sum(float(line.rpartition(" ")[2]) for line in counts)


async def _prefill(installation: BenchmarkInstallation, texts: Sequence[str]) -> None:
    words = HashedWords(DIMS)
    space = EmbeddingModel(FP32.embedder, FP32.version, DIMS, WINDOW).key
    async with installation.database() as database:
        for part in _parts(texts, PREFILL_TEXTS):
            async with database.transaction() as conn:
                hashes = [content_hash(text) for text in part]
                await embedding_cache.insert(conn, space, hashes, words.vectors(part))


def _parts(texts: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(texts), size):
        yield texts[start : start + size]


async def _go_on() -> None:
    """The checkpoint of a run that nobody cancels."""


@dataclass(frozen=True, slots=True)
class SearchSample:
    request_id: str
    total: float
    stages: dict[str, float]


class Asker:
    """One client on one connection, with as little work of its own as can be."""

    def __init__(self, url: str, token: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._requests = self._late = 0

    def sample(self, chunks: int, mode: str, query: str) -> SearchSample:
        milliseconds, answer = self.ask(_body(chunks, mode, query))
        return SearchSample(answer["request_id"], milliseconds, answer["timings"])

    def channels(self, chunks: int, mode: str, query: str) -> dict[str, float]:
        _, answer = self.ask(_body(chunks, mode, query) | {"diagnostics": True})
        (status,) = answer["diagnostics"]["container_status"]
        timings: dict[str, float] = status["timings_ms"]
        return timings

    def ask(self, body: dict[str, Any], *, empty: bool = False) -> tuple[float, dict[str, Any]]:
        """Milliseconds until the answer was read, and the answer. One without hits is an error unless it may be
        ``empty``; one that lacks something was late, and counts with the time it took."""
        content = json.dumps(body).encode()
        begun = time.perf_counter()
        self._connection.request("POST", PATH, content, self._headers)
        answer = self._connection.getresponse()
        raw = answer.read()
        milliseconds = (time.perf_counter() - begun) * 1000
        found: dict[str, Any] = json.loads(raw)
        self._requests += 1
        self._late += found["partial"]
        if answer.status != 200 or not (found["hits"] or empty or found["partial"]):
            raise RuntimeError(f"a search answered {answer.status}: {found['issues']}")
        return milliseconds, found

    def close(self) -> None:
        """Also tells of answers that lacked something: a machine that stood still, or a deadline too short."""
        self._connection.close()
        if self._late:
            print(f"  {self._late} of {self._requests} answers were late and in part", flush=True)


def _body(chunks: int, mode: str, query: str) -> dict[str, Any]:
    return {"containers": [container_of(chunks)], "query": query, "top_k": TOP_K, "mode": mode}


def _queries_needed(rounds: int) -> int:
    return (WARM_UP + (rounds + 1) * QUERIES) * len(MODES)


def measure(
    installation: BenchmarkInstallation,
    chunks: int,
    query_texts: Sequence[str],
    rounds: int = ROUNDS,
) -> list[ModeLatency]:
    """Every mode. Modes take turns, query by query, so that a disturbance falls on all of them.

    No query is asked twice: the vectors of queries are kept, and a repeated one would not be embedded.
    The channels' times are of a last round that asks for diagnostics, which the others do without.
    """
    asker = Asker(installation.url, installation.token)
    samples: dict[str, list[SearchSample]] = {mode: [] for mode in MODES}
    channels: dict[str, list[dict[str, float]]] = {mode: [] for mode in MODES}
    fresh = iter(query_texts)
    for _, mode in product(range(WARM_UP), MODES):
        asker.sample(chunks, mode, next(fresh))
    for _, mode in product(range(rounds * QUERIES), MODES):
        samples[mode].append(asker.sample(chunks, mode, next(fresh)))
    for _, mode in product(range(QUERIES), MODES):
        channels[mode].append(asker.channels(chunks, mode, next(fresh)))
    asker.close()
    handled = installation.handled_in()
    return [_latency(chunks, mode, samples[mode], channels[mode], handled) for mode in MODES]


def _latency(
    chunks: int,
    mode: str,
    samples: Sequence[SearchSample],
    channels: Sequence[dict[str, float]],
    handled: Mapping[str, float],
) -> ModeLatency:
    return ModeLatency(
        chunks,
        mode,
        Spread.of([one.total for one in samples]),
        Spread.of([handled[one.request_id] - one.stages["embed"] for one in samples]),
        {stage: Spread.of([one.stages[stage] for one in samples]) for stage in STAGES},
        {
            name: Spread.of([one[name] for one in channels])
            for name in CHANNELS
            if all(name in one for one in channels)
        },
    )
