"""What documents cost attempts, with an embedder over HTTP: one that makes it fail, and one that is not there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

from latent_core.db.connection import Database
from latent_core.domain.errors import InputRefused, ServiceUnreachable, UpstreamError
from latent_core.domain.job import JobKind
from latent_core.domain.manifest.model import Manifest
from latent_core.models.embedding.api.dialects import TextClient
from latent_core.models.embedding.api.remote import Breaker, RemoteEmbedder, RetryPolicy
from latent_core.models.embedding.api.wire import EmbeddingEndpoint
from latent_core.models.embedding.port import EmbeddingModel
from latent_core.models.embedding.rate import TextRate
from latent_core.models.providers.entry import Kind
from latent_core.settings import Settings
from tests.support.clock import FakeClock
from tests.support.harness.worker_harness import (
    CONTAINER,
    DIMS,
    LEASE_SECONDS,
    WorkerHarness,
    open_deps,
)
from tests.support.queue import sql
from tests.support.servers.embedding_server import EmbeddingFault, EmbeddingServer
from tests.support.servers.provider_server import ProviderServer
from tests.support.stand_in_models import StandInModels

MAX_ATTEMPTS: Final = 5
PAUSE_SECONDS: Final = 120
OUTAGE_SECONDS: Final = 30 * 60
TIME_PASSES: Final = """
UPDATE jobs SET run_at = run_at - make_interval(secs => %(seconds)s),
                paused_since = paused_since - make_interval(secs => %(seconds)s)
WHERE kind = 'ingest' AND state = 'queued'
"""
INGEST_OF: Final = """
SELECT state, attempts, cause ->> 'message' AS cause FROM jobs
WHERE kind = 'ingest' AND doc_id = %(doc_id)s
"""


@dataclass
class RemoteEmbedders(StandInModels):
    """The embedder of all containers, over HTTP; time passes only when a test says so."""

    base_url: str
    time: FakeClock = field(default_factory=FakeClock)
    embedder: RemoteEmbedder = field(init=False)

    def __post_init__(self) -> None:
        self.model = EmbeddingModel("openai/test", "1", DIMS, 128)
        endpoint = EmbeddingEndpoint(self.base_url, None, "test", DIMS)
        self.embedder = RemoteEmbedder(
            self.model,
            TextClient(Kind.OPENAI, endpoint, connections=8),
            TextRate(10**9, clock=self.time.clock, sleep=self.time.sleep),
            retry_policy=RetryPolicy(attempts=2),
            breaker=Breaker(clock=self.time.clock),
            sleep=self.time.sleep,
            jitter=lambda _, cap: cap,
        )

    def for_space(self, space: object) -> RemoteEmbedder:
        return self.embedder

    def model_of(self, manifest: Manifest) -> EmbeddingModel:
        return self.model


WARNINGS: Final = "SELECT state, warnings FROM jobs WHERE kind = 'ingest' ORDER BY id"
LONG: Final = " ".join(f"w{n}" for n in range(110))
SECTIONS: Final = "\n\n".join(
    f"# Part {n}\n\n" + " ".join(f"{word}{n}" for word in ("gulls", "harbour", "lantern") * 20)
    for n in range(4)
)


@asynccontextmanager
async def open_harness(
    database: Database, folder: Path, embedders: RemoteEmbedders
) -> AsyncIterator[WorkerHarness]:
    settings = Settings(data_dir=folder, lease_seconds=LEASE_SECONDS)
    manifest = Manifest(id=CONTAINER, name="Notes", embedder="openai/test", dims=DIMS)
    try:
        async with open_deps(database, settings, embedders, manifest) as deps:
            yield WorkerHarness(deps, cast(Any, embedders.embedder), folder)
    finally:
        await embedders.embedder.close()


async def test_a_document_that_makes_a_healthy_embedder_fail_is_dead_after_max_attempts(
    database: Database, tmp_path: Path
) -> None:
    async with EmbeddingServer(dims=DIMS) as server:
        server.misbehave(EmbeddingFault.SERVER_ERROR, times=10**6, only_with="poison")
        async with open_harness(database, tmp_path, RemoteEmbedders(server.base_url)) as harness:
            poison = await harness.add("poison.txt", b"the poison of the harbour")
            for n in range(MAX_ATTEMPTS):
                await harness.add(f"{n}.txt", f"the lamp {n} is lit".encode())
                (trouble,) = await harness.work(JobKind.INGEST)
                assert isinstance(trouble, UpstreamError)
                await sql(database, TIME_PASSES, seconds=PAUSE_SECONDS)
            assert await harness.work(JobKind.INGEST) == []
            (row,) = await sql(database, INGEST_OF, doc_id=poison)
            assert (row["state"], row["attempts"]) == ("failed", MAX_ATTEMPTS)
            assert "failed (500)" in row["cause"]
            assert len(await harness.texts()) == MAX_ATTEMPTS


async def test_an_embedder_that_is_not_there_for_30_minutes_costs_no_attempt(
    database: Database, tmp_path: Path
) -> None:
    server = EmbeddingServer(dims=DIMS)
    await server.start()
    embedders = RemoteEmbedders(server.base_url)
    port = urlsplit(server.base_url).port or 0
    await server.close()
    async with open_harness(database, tmp_path, embedders) as harness:
        doc_id = await harness.add("a.txt", b"the lamp is lit")
        for _ in range(OUTAGE_SECONDS // PAUSE_SECONDS):
            (trouble,) = await harness.work(JobKind.INGEST)
            assert isinstance(trouble, ServiceUnreachable)
            embedders.time.now += PAUSE_SECONDS
            await sql(database, TIME_PASSES, seconds=PAUSE_SECONDS)
        (row,) = await sql(database, INGEST_OF, doc_id=doc_id)
        assert (row["state"], row["attempts"]) == ("queued", 0)
        await server.start(port)
        assert await harness.work(JobKind.INGEST) == []
        (row,) = await sql(database, INGEST_OF, doc_id=doc_id)
        assert (row["state"], row["attempts"]) == ("done", 1)
        assert await harness.texts() == ["the lamp is lit"]
    await server.close()


async def test_a_text_that_the_embedder_refuses_costs_only_its_own_vector(
    database: Database, tmp_path: Path
) -> None:
    async with EmbeddingServer(dims=DIMS) as server:
        server.misbehave(EmbeddingFault.REFUSED, times=10**6, only_with="zebra")
        async with open_harness(database, tmp_path, RemoteEmbedders(server.base_url)) as harness:
            await harness.add(
                "parts.md",
                SECTIONS.replace("lantern2", "zebra", 1).encode(),
            )
            assert await harness.work(JobKind.INGEST) == []
            (row,) = await sql(database, WARNINGS)
            assert row["state"] == "done"
            (warning,) = row["warnings"]
            assert "refuses this input (400)" in warning["message"]
            assert "found by its words only" in warning["message"]
            refused = [text for text in await harness.texts() if "zebra" in text]
            assert len(refused) == 1
            report = await harness.examine()
            assert report.clean, report
            # A document of which nothing is accepted fails: the embedder may be the cause.
            bad = await harness.add("bad.txt", b"zebra alone")
            (error,) = await harness.work(JobKind.INGEST)
            assert isinstance(error, InputRefused)
            (row,) = await sql(database, INGEST_OF, doc_id=bad)
            assert row["state"] == "failed"


async def test_a_server_that_cuts_texts_silently_is_named_once_in_each_job(
    database: Database, tmp_path: Path
) -> None:
    async with (
        ProviderServer(Kind.OPENAI, dims=DIMS, window=30, truncates=True) as server,
        open_harness(database, tmp_path, RemoteEmbedders(server.base_url)) as harness,
    ):
        for n in range(2):
            await harness.add(f"{n}.txt", f"{n} {LONG}\n\n{n} {LONG}".encode())
            assert await harness.work(JobKind.INGEST) == []
        jobs = await sql(database, WARNINGS)
        assert len(jobs) == 2
        for row in jobs:
            (warning,) = row["warnings"]
            assert "cuts long texts without an error" in warning["message"]
            assert "latent models test openai/test" in warning["message"]
