"""Remote embedders beyond one dialect: Nomic's API, task prefixes, the shared limit, the breaker, the bill."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
import pytest_asyncio
from hypothesis import given, settings, strategies as st
from pydantic import SecretStr

from latent_core.db import containers, embed_usage
from latent_core.db.connection import Database
from latent_core.db.embed_usage import EmbedUsage
from latent_core.domain.errors import (
    IngestFailed,
    LatentError,
    Misconfigured,
    RateLimited,
    Unavailable,
    UpstreamTimeout,
)
from latent_core.domain.ids import JobId
from latent_core.domain.manifest.model import Manifest
from latent_core.models.embedding.api.dialects import TextClient
from latent_core.models.embedding.api.remote import Breaker, RemoteEmbedder, RetryPolicy
from latent_core.models.embedding.api.wire import EmbeddingEndpoint
from latent_core.models.embedding.port import EmbeddingModel, Prefixes, prefixes_of
from latent_core.models.embedding.rate import SharedTextRate, TextRate
from latent_core.models.embedding.resolve import EmbedderRegistry
from latent_core.models.providers.entry import Kind
from latent_core.settings import Settings
from tests.support.clock import FakeClock
from tests.support.contracts.embedding import EmbedderContract
from tests.support.servers.embedding_server import EmbeddingFault, EmbeddingServer

DIMS = 32
KEY = SecretStr("nk-secret")
UNLIMITED = 10**9


def nomic(
    server: EmbeddingServer,
    *,
    time: FakeClock | None = None,
    retry_policy: RetryPolicy = RetryPolicy(),
    breaker: Breaker | None = None,
    prefixes: Prefixes = Prefixes(),
    seconds: float = 20.0,
) -> RemoteEmbedder:
    time = time or FakeClock()
    endpoint = EmbeddingEndpoint(
        server.root_url, KEY, "nomic-embed-text-v1.5", DIMS, seconds, "LLC_NOMIC_BASE_URL"
    )
    return RemoteEmbedder(
        EmbeddingModel("nomic/nomic-embed-text-v1.5", "1", DIMS, 512),
        TextClient(Kind.NOMIC, endpoint, connections=8),
        TextRate(UNLIMITED, clock=time.clock, sleep=time.sleep),
        retry_policy=retry_policy,
        prefixes=prefixes,
        breaker=breaker or Breaker(clock=time.clock),
        sleep=time.sleep,
        jitter=lambda _, high: high,
    )


@pytest_asyncio.fixture(scope="class", loop_scope="class", name="embedder")
async def over_nomic() -> AsyncIterator[RemoteEmbedder]:
    async with EmbeddingServer(dims=DIMS, key=KEY.get_secret_value()) as server:
        embedder = nomic(server)
        yield embedder
        await embedder.close()


@pytest.mark.asyncio(loop_scope="class")
class TestContractOfNomic(EmbedderContract):
    pass


@pytest.fixture
async def server() -> AsyncIterator[EmbeddingServer]:
    async with EmbeddingServer(dims=DIMS, key=KEY.get_secret_value()) as running:
        yield running


class TestNomic:
    async def test_documents_and_queries_are_named_as_what_they_are(
        self, server: EmbeddingServer
    ) -> None:
        embedder = nomic(server)
        await embedder.embed_documents(["a text"])
        await embedder.embed_query("a question")
        await embedder.close()
        assert server.tasks == ["search_document", "search_query"]

    @pytest.mark.parametrize(
        ("kind", "error", "message"),
        [
            (EmbeddingFault.WRONG_DIMS, IngestFailed, r"31 dimensions.*32"),
            (EmbeddingFault.NOT_A_NUMBER, IngestFailed, "zero or not a number"),
            (EmbeddingFault.HUGE, IngestFailed, "more than"),
            (EmbeddingFault.NO_MODEL, Misconfigured, "LLC_NOMIC_BASE_URL.*nomic-embed-text"),
            (EmbeddingFault.MISSING, IngestFailed, "1 vectors for 2 texts"),
            (EmbeddingFault.ZERO, IngestFailed, "zero or not a number"),
            (EmbeddingFault.REFUSED, IngestFailed, "refuses this input"),
            (EmbeddingFault.REDIRECT, Misconfigured, "LLC_NOMIC_BASE_URL"),
        ],
    )
    async def test_an_unusable_response_fails_permanently_and_is_not_retried(
        self,
        server: EmbeddingServer,
        kind: EmbeddingFault,
        error: type[LatentError],
        message: str,
    ) -> None:
        embedder = nomic(server)
        server.misbehave(kind, times=100)
        with pytest.raises(error, match=message):
            await embedder.embed_documents(["one", "two"])
        await embedder.close()
        assert server.stats.requests == 1

    @pytest.mark.parametrize(
        "kind",
        [
            EmbeddingFault.RATE_LIMITED,
            EmbeddingFault.SERVER_ERROR,
            EmbeddingFault.OVERLOADED,
            EmbeddingFault.TRUNCATED,
            EmbeddingFault.HUNG_UP,
        ],
    )
    async def test_trouble_that_passes_is_waited_out(
        self, server: EmbeddingServer, kind: EmbeddingFault
    ) -> None:
        embedder = nomic(server)
        server.misbehave(kind, times=2)
        rows = await embedder.embed_documents(["one", "two"])
        await embedder.close()
        assert np.allclose(rows, server.vectors(["one", "two"]), atol=1e-5)
        assert server.stats.requests == 3

    async def test_a_silent_server_is_given_up_when_the_deadline_passes(
        self, server: EmbeddingServer
    ) -> None:
        embedder = nomic(server, retry_policy=RetryPolicy(attempts=2), seconds=0.5)
        server.misbehave(EmbeddingFault.SILENT, times=99)
        with pytest.raises(UpstreamTimeout, match="deadline"):
            await embedder.embed_query("one")
        await embedder.close()
        assert server.stats.requests == 2

    async def test_a_manifest_names_the_embedder_and_a_key_is_needed_only_for_requests(
        self, server: EmbeddingServer, tmp_path: Any
    ) -> None:
        manifest = Manifest(id="c", name="C", embedder="nomic/nomic-embed-text-v1.5", dims=DIMS)
        without = EmbedderRegistry(Settings(_env_file=None), tmp_path)
        model = without.model_of(manifest)
        assert "LLC_NOMIC_API_KEY" in (without.lacking(manifest.embedder) or "")
        with pytest.raises(Unavailable, match="LLC_NOMIC_API_KEY"):
            without.for_space(model)
        given = Settings(_env_file=None, embed_api_key=KEY, nomic_base_url=server.root_url)
        embedders = EmbedderRegistry(given, tmp_path)
        assert embedders.lacking(manifest.embedder) is None
        assert (await embedders.for_space(model).embed_query("x")).shape == (DIMS,)
        await embedders.close()
        assert server.tasks == ["search_query"]


class TestPrefixes:
    def test_only_models_that_want_a_prefix_get_one(self) -> None:
        assert prefixes_of("nomic-ai/nomic-embed-text-v1.5").query == "search_query: "
        assert prefixes_of("nomic-embed-multimodal-7b") == Prefixes()
        assert prefixes_of("text-embedding-3-small") == Prefixes()

    async def test_a_prefix_stands_before_the_text_that_is_sent(
        self, server: EmbeddingServer
    ) -> None:
        embedder = nomic(server, prefixes=Prefixes("doc: ", "ask: "))
        row = await embedder.embed_query("gulls")
        rows = await embedder.embed_documents(["gulls"])
        await embedder.close()
        assert np.allclose(row, server.vectors(["ask: gulls"])[0], atol=1e-5)
        assert np.allclose(rows, server.vectors(["doc: gulls"]), atol=1e-5)


class TestBreaker:
    def test_it_lets_one_through_after_each_pause_and_all_after_a_success(self) -> None:
        time = FakeClock()
        breaker = Breaker(failures=3, first_pause=2, longest_pause=5, clock=time.clock)
        for _ in range(3):
            assert breaker.wait() == 0
            breaker.bad()
        assert breaker.wait() == 2
        time.now += 2
        assert breaker.wait() == 0
        assert breaker.wait() == 2  # the others wait for what the one finds
        breaker.bad()
        assert breaker.wait() == 4
        time.now += 4
        assert breaker.wait() == 0
        breaker.bad()
        assert breaker.wait() == 5
        time.now += 5
        assert breaker.wait() == 0
        breaker.good()
        assert [breaker.wait() for _ in range(5)] == [0.0] * 5

    @settings(max_examples=100, deadline=None)
    @given(st.lists(st.tuples(st.booleans(), st.floats(0, 100)), max_size=60))
    def test_a_failing_server_is_called_no_more_than_once_per_pause(
        self, outcomes: list[tuple[bool, float]]
    ) -> None:
        time = FakeClock()
        breaker = Breaker(failures=2, first_pause=1, longest_pause=8, clock=time.clock)
        bad, last = 0, -1e9
        for good, passes in outcomes:
            time.now += passes
            wait = breaker.wait()
            assert wait <= 8
            if wait:
                continue
            assert bad < 2 or time.now - last >= 1
            last = time.now
            bad = 0 if good else bad + 1
            (breaker.good if good else breaker.bad)()

    async def test_a_query_fails_at_once_and_documents_wait_for_the_next_attempt(
        self, server: EmbeddingServer
    ) -> None:
        time = FakeClock()
        embedder = nomic(server, time=time)
        server.misbehave(EmbeddingFault.SERVER_ERROR, times=8)
        with pytest.raises(Unavailable, match="500"):
            await embedder.embed_documents(["x"])
        requests_before, begun = server.stats.requests, time.now
        with pytest.raises(Unavailable, match="times in a row"):
            await embedder.embed_query("x")
        assert (server.stats.requests, time.now) == (requests_before, begun)
        # Fails once more; then a harmless text tells that the server is well.
        rows = await embedder.embed_documents(["x"])
        assert rows.shape == (1, DIMS)
        assert server.stats.requests == requests_before + 3
        assert (await embedder.embed_query("x")).shape == (DIMS,)
        await embedder.close()


class TestSharedRate:
    def rate(
        self, database: Database, per_minute: int, name: str = "bucket"
    ) -> tuple[SharedTextRate, list[float]]:
        slept: list[float] = []

        async def sleep(seconds: float) -> None:
            slept.append(seconds)

        rate = SharedTextRate(database, per_minute, name, sleep=sleep, jitter=lambda low, _: low)
        return rate, slept

    async def test_what_one_process_takes_another_does_not_get(self, database: Database) -> None:
        (one, _), (two, _) = self.rate(database, 60), self.rate(database, 60)
        await one.take(54, within=0)
        with pytest.raises(RateLimited) as caught:
            await two.take(50, within=5)
        assert 40 < caught.value.details["retry_after"] <= 50

    async def test_documents_leave_capacity_for_a_query(self, database: Database) -> None:
        (one, _), (two, slept) = self.rate(database, 60), self.rate(database, 60)
        await one.take(54, within=0)
        with pytest.raises(RateLimited):
            await two.take(1, within=0)
        await two.take(5, urgent=True, within=0)
        assert slept == []

    async def test_a_pause_that_a_server_asks_for_holds_the_others_too(
        self, database: Database
    ) -> None:
        (one, _), (two, _) = self.rate(database, 6000), self.rate(database, 6000)
        await one.pause(30)
        with pytest.raises(RateLimited) as caught:
            await two.take(1, urgent=True, within=1)
        assert not caught.value.counts_as_attempt
        assert 25 < caught.value.details["retry_after"] <= 30

    async def test_endpoints_have_limits_of_their_own(self, database: Database) -> None:
        (one, _), (two, _) = self.rate(database, 10, "a"), self.rate(database, 10, "b")
        await one.take(10, within=0)
        with pytest.raises(RateLimited):
            await one.take(10, within=0)
        await two.take(10, within=0)

    async def test_together_processes_take_no_more_than_the_bucket_holds_and_refills(
        self, database: Database
    ) -> None:
        bucket = embed_usage.Bucket("many", burst=100, per_second=1e-6)

        async def take() -> int:
            async with database.transaction() as conn:
                return 7 if not await embed_usage.take_from_bucket(conn, bucket, 7) else 0

        taken = sum(await asyncio.gather(*(take() for _ in range(40))))
        assert taken == 98

    async def test_it_waits_until_the_bucket_has_refilled(self, database: Database) -> None:
        rate = SharedTextRate(database, 60_000, "fast")
        await rate.take(54_000, within=0)
        await rate.take(100, within=30)  # 1,000 texts a second

    async def test_more_than_the_bucket_holds_is_a_mistake(self, database: Database) -> None:
        with pytest.raises(ValueError, match="more than"):
            await self.rate(database, 10)[0].take(11, within=1)


class TestBill:
    async def test_usage_is_reported_by_job_and_by_container(self, database: Database) -> None:
        job, other = JobId(1), JobId(2)
        async with database.transaction() as conn:
            await containers.insert(conn, Manifest(id="paid", name="P"), uuid4().hex)
            for job_id, usage in ((job, EmbedUsage(2, 10, 0.1)), (job, EmbedUsage(3, 5, 0.05))):
                await embed_usage.add(
                    conn, job_id=job_id, container_id="paid", embedder="openai/x", usage=usage
                )
            await embed_usage.add(
                conn,
                job_id=other,
                container_id="paid",
                embedder="openai/x",
                usage=EmbedUsage(1, 1, 0.01),
            )
            await embed_usage.add(
                conn,
                job_id=other,
                container_id="gone",
                embedder="openai/y",
                usage=EmbedUsage(9, 9, 9),
            )
            assert await embed_usage.of_container(conn, "paid") == EmbedUsage(6, 16, 0.16)
            assert await embed_usage.of_container(conn, "free") == EmbedUsage(0, 0, 0.0)

    async def test_tokens_follow_what_the_server_counts(self, server: EmbeddingServer) -> None:
        embedder = nomic(server)
        texts = ["transformation of proteins " * 4, "x"]
        before = embedder.tokens_of(texts)
        await embedder.embed_documents(texts)
        assert embedder.tokens_of(texts) == sum(len(text.split()) for text in texts) < before
        await embedder.close()


def test_a_space_of_an_unknown_remote_is_not_mistaken_for_a_missing_setting(tmp_path: Any) -> None:
    embedders = EmbedderRegistry(Settings(_env_file=None), tmp_path)
    assert embedders.lacking("local") is None
    assert "LLC_EMBED_BASE_URL" in (embedders.lacking("nomic-embed-multimodal-7b") or "")
    space = SimpleNamespace(embedder="openai/m", version="1", dims=8)
    with pytest.raises(Unavailable, match="LLC_EMBED_BASE_URL"):
        embedders.for_space(space)
