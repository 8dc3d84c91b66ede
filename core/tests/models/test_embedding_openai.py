"""Embedders over HTTP, against a real server that can be told to misbehave."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
import pytest_asyncio
from hypothesis import given, settings, strategies as st
from pydantic import SecretStr

from latent_core.domain.errors import (
    IngestFailed,
    Invalid,
    LatentError,
    Misconfigured,
    RateLimited,
    ServiceUnreachable,
    Unavailable,
    UpstreamError,
    UpstreamOverload,
    UpstreamTimeout,
)
from latent_core.domain.manifest.model import Manifest
from latent_core.models.embedding.api.dialects import TextClient
from latent_core.models.embedding.api.remote import QUERY_CONNECTIONS, RemoteEmbedder, RetryPolicy
from latent_core.models.embedding.api.wire import EmbeddingEndpoint, EmbeddingWire
from latent_core.models.embedding.port import EmbeddingModel
from latent_core.models.embedding.rate import TextRate
from latent_core.models.embedding.resolve import EmbedderRegistry
from latent_core.models.embedding.tokens import PieceTokenizer
from latent_core.models.providers.entry import Kind
from latent_core.settings import Settings
from tests.support import REPOSITORY
from tests.support.clock import FakeClock
from tests.support.contracts.embedding import EmbedderContract
from tests.support.hashed_embedder import HashedWords
from tests.support.servers.embedding_server import EmbeddingFault, EmbeddingServer

DIMS = 32
KEY = SecretStr("sk-secret")
UNLIMITED = 10**9
TEXTS = ["one text", "another text", "a third"]


def embedder_for(
    base_url: str,
    *,
    dims: int = DIMS,
    per_minute: int = UNLIMITED,
    time: FakeClock | None = None,
    retry_policy: RetryPolicy = RetryPolicy(),
    key: SecretStr | None = KEY,
    seconds: float = 20.0,
) -> RemoteEmbedder:
    time = time or FakeClock()
    endpoint = EmbeddingEndpoint(base_url, key, "test", dims, seconds)
    return RemoteEmbedder(
        EmbeddingModel("openai/test", "1", dims, 512),
        TextClient(Kind.OPENAI, endpoint, connections=retry_policy.requests + QUERY_CONNECTIONS),
        TextRate(per_minute, clock=time.clock, sleep=time.sleep),
        retry_policy=retry_policy,
        sleep=time.sleep,
        jitter=lambda _, high: high,
    )


@pytest_asyncio.fixture(scope="class", loop_scope="class")
async def embedder() -> AsyncIterator[RemoteEmbedder]:
    async with EmbeddingServer(dims=DIMS, key=KEY.get_secret_value()) as server:
        embedder = embedder_for(server.base_url)
        yield embedder
        await embedder.close()


@pytest.mark.asyncio(loop_scope="class")
class TestContract(EmbedderContract):
    pass


@pytest.fixture
async def server() -> AsyncIterator[EmbeddingServer]:
    async with EmbeddingServer(dims=DIMS, key=KEY.get_secret_value()) as server:
        yield server


@pytest.fixture
def time() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def patient(server: EmbeddingServer, time: FakeClock) -> AsyncIterator[RemoteEmbedder]:
    embedder = embedder_for(server.base_url, time=time)
    yield embedder
    await embedder.close()


async def test_vectors_are_ordered_by_their_index(
    server: EmbeddingServer, patient: RemoteEmbedder
) -> None:
    server.misbehave(EmbeddingFault.REORDERED)
    rows = await patient.embed_documents(TEXTS)
    assert np.allclose(rows, server.vectors(TEXTS), atol=1e-6)


async def test_large_calls_are_sent_in_requests_of_limited_size(server: EmbeddingServer) -> None:
    embedder = embedder_for(server.base_url, retry_policy=RetryPolicy(texts=8, characters=100))
    texts = [f"text {n}" for n in range(40)] + ["long " * 50, "x"]
    rows = await embedder.embed_documents(texts)
    await embedder.close()
    assert np.allclose(rows, server.vectors(texts), atol=1e-6)
    assert server.stats.largest == 8
    assert server.stats.requests == 7


async def test_a_query_in_the_base_address_is_kept(server: EmbeddingServer) -> None:
    embedder = embedder_for(f"{server.base_url}/?dims=16", dims=16)
    assert (await embedder.embed_query("x")).shape == (16,)
    await embedder.close()


class TestTrouble:
    @pytest.mark.parametrize(
        "kind", [EmbeddingFault.SERVER_ERROR, EmbeddingFault.HUNG_UP, EmbeddingFault.TRUNCATED]
    )
    async def test_passing_trouble_is_waited_out_with_growing_pauses(
        self,
        server: EmbeddingServer,
        patient: RemoteEmbedder,
        time: FakeClock,
        kind: EmbeddingFault,
    ) -> None:
        server.misbehave(kind, times=3)
        assert (await patient.embed_documents(TEXTS)).shape == (3, DIMS)
        assert time.slept == [0.5, 1.0, 2.0]

    async def test_trouble_that_stays_is_unavailable(
        self, server: EmbeddingServer, patient: RemoteEmbedder, time: FakeClock
    ) -> None:
        server.misbehave(EmbeddingFault.SERVER_ERROR, times=99)
        with pytest.raises(Unavailable, match="500"):
            await patient.embed_query("x")
        assert server.stats.requests == RetryPolicy().attempts
        assert max(time.slept) <= RetryPolicy().longest_wait

    async def test_a_server_that_is_not_there_is_unavailable(self, time: FakeClock) -> None:
        async with EmbeddingServer() as gone:
            address = gone.base_url
        embedder = embedder_for(address, time=time)
        for _ in range(6):  # also when it is no longer tried each time
            with pytest.raises(
                ServiceUnreachable, match=r"cannot be reached: it refuses connections\)?$"
            ):
                await embedder.embed_query("x")
        assert time.slept == [], "a search that waits would call it a timeout"
        await embedder.close()

    async def test_a_silent_server_times_out_when_the_deadline_passes(
        self, server: EmbeddingServer
    ) -> None:
        server.misbehave(EmbeddingFault.SILENT, times=99)
        embedder = embedder_for(server.base_url, seconds=0.5, retry_policy=RetryPolicy(attempts=2))
        with pytest.raises(UpstreamTimeout, match="deadline"):
            await embedder.embed_query("x")
        await embedder.close()

    @pytest.mark.parametrize("kind", [EmbeddingFault.RATE_LIMITED, EmbeddingFault.OVERLOADED])
    async def test_retry_after_is_honoured(
        self,
        server: EmbeddingServer,
        patient: RemoteEmbedder,
        time: FakeClock,
        kind: EmbeddingFault,
    ) -> None:
        server.misbehave(kind, times=2, retry_after="7")
        await patient.embed_documents(TEXTS)
        assert [round(seconds, 3) for seconds in time.slept] == [7.7, 7.7]

    async def test_retry_after_may_be_a_date(
        self, server: EmbeddingServer, patient: RemoteEmbedder, time: FakeClock
    ) -> None:
        at = format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True)
        server.misbehave(EmbeddingFault.RATE_LIMITED, retry_after=at)
        await patient.embed_documents(TEXTS)
        assert 15 < time.slept[0] < 23

    @pytest.mark.parametrize(
        ("kind", "error"),
        [(EmbeddingFault.RATE_LIMITED, RateLimited), (EmbeddingFault.OVERLOADED, UpstreamOverload)],
    )
    async def test_a_longer_pause_than_ours_is_left_to_the_queue(
        self,
        server: EmbeddingServer,
        patient: RemoteEmbedder,
        time: FakeClock,
        kind: EmbeddingFault,
        error: type[LatentError],
    ) -> None:
        server.misbehave(kind, retry_after="3600")
        with pytest.raises(error) as caught:
            await patient.embed_documents(TEXTS)
        assert caught.value.details["retry_after"] == 3600
        assert not caught.value.counts_as_attempt
        assert time.slept == []
        with pytest.raises(RateLimited, match=r"60\d s"):  # whoever shares the key is held too
            await patient.embed_query("another")
        assert server.stats.requests == 1

    async def test_a_query_does_not_wait_for_a_server_that_says_when_to_come_back(
        self, server: EmbeddingServer, patient: RemoteEmbedder, time: FakeClock
    ) -> None:
        server.misbehave(EmbeddingFault.OVERLOADED, times=99, retry_after="2")
        with pytest.raises(Unavailable, match="503"):
            await patient.embed_query("x")
        assert (time.slept, server.stats.requests) == ([], 1)

    async def test_an_overloaded_server_is_called_again_only_when_it_allows(
        self, server: EmbeddingServer, patient: RemoteEmbedder, time: FakeClock
    ) -> None:
        server.misbehave(EmbeddingFault.OVERLOADED, times=99, retry_after="7")
        with pytest.raises(UpstreamOverload, match="503") as caught:
            await patient.embed_documents(TEXTS)
        assert caught.value.details["retry_after"] == 7
        assert server.stats.requests == RetryPolicy().attempts
        assert min(time.slept) >= 7

    async def test_requests_that_fail_side_by_side_do_not_close_the_way_of_others(
        self, server: EmbeddingServer, patient: RemoteEmbedder
    ) -> None:
        server.misbehave(EmbeddingFault.SERVER_ERROR, times=99, only_with="poison")
        given_requests = [patient.embed_documents([f"poison {n}"]) for n in range(3)]
        ends = await asyncio.gather(*given_requests, return_exceptions=True)
        for end in ends:
            assert isinstance(end, Unavailable)
            assert end.counts_as_attempt
        patient.raise_if_unreachable()
        assert (await patient.embed_documents(["harmless"])).shape == (1, DIMS)

    async def test_an_error_answer_counts_and_a_server_that_is_left_alone_costs_nothing(
        self, server: EmbeddingServer, patient: RemoteEmbedder
    ) -> None:
        server.misbehave(
            EmbeddingFault.SERVER_ERROR, times=RetryPolicy().attempts, only_with="third"
        )
        with pytest.raises(Unavailable, match="500") as ours:
            await patient.embed_documents(TEXTS)
        assert ours.value.counts_as_attempt
        patient.raise_if_unreachable()
        server.misbehave(EmbeddingFault.SERVER_ERROR, times=99)
        with pytest.raises(UpstreamError, match="500") as all_texts:
            await patient.embed_documents(TEXTS)
        assert all_texts.value.counts_as_attempt
        with pytest.raises(ServiceUnreachable, match="times in a row") as left_alone:
            patient.raise_if_unreachable()
        assert not left_alone.value.counts_as_attempt

    async def test_a_timeout_counts_once_the_server_has_answered_others(
        self, server: EmbeddingServer
    ) -> None:
        # Long enough for an answer on a busy machine.
        embedder = embedder_for(server.base_url, seconds=2.0, retry_policy=RetryPolicy(attempts=1))
        server.misbehave(EmbeddingFault.SILENT, times=99, only_with="poison")
        with pytest.raises(UpstreamTimeout) as alone:
            await embedder.embed_documents(["poison"])
        assert not alone.value.counts_as_attempt
        await embedder.embed_documents(["harmless"])
        with pytest.raises(UpstreamTimeout) as among_others:
            await embedder.embed_documents(["poison"])
        assert among_others.value.counts_as_attempt
        await embedder.close()

    async def test_a_model_unknown_to_the_server_is_no_fault_of_the_text(
        self, server: EmbeddingServer
    ) -> None:
        wire = EmbeddingWire(
            EmbeddingEndpoint(server.base_url, KEY, "test", DIMS), "/embeddings", connections=1
        )
        error = wire._refused(400, '{"error": {"message": "The model `test` does not exist"}}')
        await wire.close()
        assert isinstance(error, Misconfigured)
        assert "serves the model 'test'" in error.message

    @pytest.mark.parametrize("header", ["soon", "-5", "nan", ""])
    async def test_a_retry_after_that_says_nothing_is_not_believed(
        self, server: EmbeddingServer, patient: RemoteEmbedder, header: str
    ) -> None:
        server.misbehave(EmbeddingFault.RATE_LIMITED, retry_after=header)
        assert (await patient.embed_documents(TEXTS)).shape == (3, DIMS)

    @pytest.mark.parametrize(
        ("kind", "error", "expected"),
        [
            (EmbeddingFault.REFUSED, IngestFailed, "400"),
            (EmbeddingFault.REDIRECT, Misconfigured, "307.*not followed"),
            (
                EmbeddingFault.NO_MODEL,
                Misconfigured,
                "404.*serves the model 'test'.*requeue --failed",
            ),
            (EmbeddingFault.NOT_A_NUMBER, IngestFailed, "not a number"),
            (EmbeddingFault.ZERO, IngestFailed, "zero"),
            (EmbeddingFault.MISSING, IngestFailed, "2 vectors for 3 texts"),
            (EmbeddingFault.HUGE, IngestFailed, "more than"),
            (EmbeddingFault.WRONG_DIMS, IngestFailed, "returns 31 dimensions.*says 32"),
        ],
    )
    async def test_what_will_not_pass_is_refused_at_once(
        self,
        server: EmbeddingServer,
        patient: RemoteEmbedder,
        kind: EmbeddingFault,
        error: type[LatentError],
        expected: str,
    ) -> None:
        server.misbehave(kind)
        with pytest.raises(error, match=expected) as caught:
            await patient.embed_documents(TEXTS)
        assert not caught.value.transient
        assert server.stats.requests == 1
        assert (await patient.embed_documents(TEXTS)).shape == (3, DIMS)

    @pytest.mark.parametrize(
        "key", [None, SecretStr("sk-wrong"), SecretStr('sk-a"b\\c/d'), SecretStr("sk-" * 99)]
    )
    async def test_a_wrong_key_is_reported_and_never_shown(
        self, server: EmbeddingServer, key: SecretStr | None
    ) -> None:
        embedder = embedder_for(server.base_url, key=key)
        with pytest.raises(Misconfigured, match="LLC_EMBED_API_KEY") as caught:
            await embedder.embed_query("x")
        assert not caught.value.transient
        assert caught.value.details == {"upstream_status": 401, "setting": "LLC_EMBED_API_KEY"}
        assert "sk-" not in str(caught.value.issue())
        await embedder.close()

    @pytest.mark.parametrize(
        "kind",
        [
            EmbeddingFault.SERVER_ERROR,
            EmbeddingFault.REFUSED,
            EmbeddingFault.RATE_LIMITED,
            EmbeddingFault.NO_MODEL,
        ],
    )
    async def test_a_key_that_the_server_shows_reaches_no_cause_and_no_log(
        self,
        server: EmbeddingServer,
        patient: RemoteEmbedder,
        kind: EmbeddingFault,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        caplog.set_level(logging.DEBUG)
        server.misbehave(kind, times=9)
        with pytest.raises(LatentError, match=r"\*{8}") as caught:
            await patient.embed_documents(TEXTS)
        summary = "".join(traceback.format_exception(caught.value))
        assert "sk-secret" not in f"{caught.value.issue()} {summary} {caplog.text}"

    @pytest.mark.parametrize("key", ["sk-se\ncret", "sk-sécret", "sk-\x00"])
    def test_a_key_that_no_header_can_hold_is_refused_and_not_shown(self, key: str) -> None:
        endpoint = EmbeddingEndpoint("http://e", SecretStr(key), "test", DIMS)
        with pytest.raises(Invalid, match="LLC_EMBED_API_KEY") as caught:
            TextClient(Kind.OPENAI, endpoint, connections=1)
        assert "sk-" not in str(caught.value.issue())

    async def test_one_failing_request_ends_the_call(self, server: EmbeddingServer) -> None:
        embedder = embedder_for(server.base_url, retry_policy=RetryPolicy(texts=1, requests=2))
        server.misbehave(EmbeddingFault.REFUSED, only_with="7", times=99)
        with pytest.raises(IngestFailed):
            await embedder.embed_documents([f"text {n}" for n in range(50)])
        await embedder.close()
        assert server.stats.requests < 12

    @pytest.mark.parametrize(
        "address", ["embedder.local/v1", "ftp://host/v1", "http://", "http://[::1"]
    )
    def test_an_address_that_is_none_is_refused(self, address: str) -> None:
        with pytest.raises(Invalid, match="LLC_EMBED_BASE_URL"):
            TextClient(Kind.OPENAI, EmbeddingEndpoint(address, None, "test", DIMS), connections=1)

    @pytest.mark.parametrize(
        "body",
        [
            {"data": "none"},
            {"data": [1, 2]},
            {},
            [],
            {"data": [{"index": 0}]},
            {"data": [{"index": 1, "embedding": [1.0] * DIMS}]},
            {"data": [{"index": [0], "embedding": [1.0] * DIMS}]},
            {"data": [{"index": 0, "embedding": "AAAA"}]},
            {"data": [{"index": 0, "embedding": [[1.0]] * DIMS}]},
            {"data": [{"index": 0, "embedding": ["x"] * DIMS}]},
            {"data": [{"index": 0, "embedding": [None] * DIMS}]},
        ],
    )
    async def test_an_answer_in_another_dialect_is_refused(
        self, server: EmbeddingServer, patient: RemoteEmbedder, body: Any
    ) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            data = json.dumps(body).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(data), data))
            await writer.drain()
            writer.close()

        other = await asyncio.start_server(answer, "127.0.0.1", 0)
        host, port = other.sockets[0].getsockname()
        embedder = embedder_for(f"http://{host}:{port}", retry_policy=RetryPolicy(attempts=1))
        with pytest.raises(IngestFailed):
            await embedder.embed_query("x")
        await embedder.close()
        other.close()


async def finished(*calls: Awaitable[None]) -> list[int]:
    """The order in which ``calls``, begun in turn, came to their end."""
    order: list[int] = []

    async def run(number: int, call: Awaitable[None]) -> None:
        await call
        order.append(number)

    await asyncio.gather(*(run(number, call) for number, call in enumerate(calls)))
    return order


class TestRate:
    def rate(self, per_minute: int, time: FakeClock) -> TextRate:
        return TextRate(per_minute, clock=time.clock, sleep=time.sleep)

    async def test_a_minutes_texts_may_go_at_once_and_the_next_wait(self, time: FakeClock) -> None:
        rate = self.rate(60, time)
        await rate.take(60, within=0)
        await rate.take(30, within=60)
        assert time.now == pytest.approx(1030)

    async def test_first_come_first_served(self, time: FakeClock) -> None:
        rate = self.rate(60, time)
        await rate.take(60, within=0)
        order = await finished(*(rate.take(n, within=600) for n in (30, 1, 10, 1)))
        assert order == [0, 1, 2, 3]
        assert time.now == pytest.approx(1042)

    async def test_queries_go_before_documents(self, time: FakeClock) -> None:
        rate = self.rate(60, time)
        await rate.take(60, within=0)
        order = await finished(
            rate.take(30, within=600),
            rate.take(30, within=600),
            rate.take(1, urgent=True, within=600),
        )
        assert order == [2, 0, 1]

    async def test_what_would_come_too_late_is_refused_at_once(self, time: FakeClock) -> None:
        rate = self.rate(60, time)
        await rate.take(60, within=0)
        with pytest.raises(RateLimited) as caught:
            await rate.take(30, within=20)
        assert caught.value.details["retry_after"] == pytest.approx(30)
        assert time.slept == []

    async def test_one_who_gives_up_does_not_hold_up_the_others(self, time: FakeClock) -> None:
        rate = self.rate(60, time)
        await rate.take(60, within=0)
        tasks = [asyncio.ensure_future(rate.take(10, within=600)) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        tasks[1].cancel()
        await tasks[2]
        assert time.now <= 1020 + 1e-6

    async def test_a_pause_holds_all(self, time: FakeClock) -> None:
        rate = self.rate(6000, time)
        await rate.pause(12)
        await rate.take(1, urgent=True, within=60)
        assert time.now == pytest.approx(1012)

    async def test_more_than_the_bucket_holds_is_a_mistake(self, time: FakeClock) -> None:
        with pytest.raises(ValueError, match="more than"):
            await self.rate(10, time).take(11, within=1)

    @settings(max_examples=50, deadline=None)
    @given(st.lists(st.integers(1, 20), min_size=1, max_size=30), st.integers(20, 200))
    async def test_no_minute_takes_more_than_twice_the_limit_and_no_time_is_wasted(
        self, sizes: list[int], per_minute: int
    ) -> None:
        time = FakeClock()
        rate = self.rate(per_minute, time)
        for size in sizes:
            await rate.take(size, within=1e9)
        waited = time.now - 1000
        assert waited == pytest.approx(
            max(0, (sum(sizes) - per_minute) * 60 / per_minute), abs=1e-6
        )

    async def test_a_call_larger_than_the_bucket_is_sent_in_parts(
        self, server: EmbeddingServer, time: FakeClock
    ) -> None:
        embedder = embedder_for(server.base_url, per_minute=10, time=time)
        await embedder.embed_documents(["x"] * 35)
        await embedder.close()
        assert server.stats.largest == 10
        assert time.now - 1000 == pytest.approx(150)


class TestPieces:
    @settings(max_examples=100)
    @given(st.text(max_size=300))
    def test_pieces_cover_all_but_blanks_in_order(self, text: str) -> None:
        offsets = PieceTokenizer().offsets(text)
        covered = {place for start, end in offsets for place in range(start, end)}
        assert sum(end - start for start, end in offsets) == len(covered)
        assert all(char.isspace() for place, char in enumerate(text) if place not in covered)
        assert PieceTokenizer().count([text]) == [len(offsets)]

    def test_long_words_and_ideographs_count_for_more(self) -> None:
        counts = PieceTokenizer().count(
            ["cat", "transformation", "日本語", "snake_case(x)", "1234567"]
        )
        assert counts == [1, 3, 3, 6, 3]


def of_space(embedder: str, version: str, dims: int) -> Any:
    return SimpleNamespace(embedder=embedder, version=version, dims=dims)


class TestNames:
    def embedders(self, tmp_path: Any, **given: Any) -> EmbedderRegistry:
        return EmbedderRegistry(Settings(_env_file=None, **given), tmp_path / "models", threads=1)

    def manifest(self, **given: Any) -> Manifest:
        return Manifest(id="c", name="C", **given)

    async def test_the_default_embedder_is_the_built_in_one(self, tmp_path: Any) -> None:
        embedders = self.embedders(tmp_path)
        model = embedders.model_of(self.manifest())
        assert (model.embedder, model.version, model.dims) == ("local", "all-MiniLM-L6-v2@1", 384)
        assert embedders.for_space(model) is embedders.for_space(model)
        await embedders.close()

    async def test_int8_has_a_version_of_its_own(self, tmp_path: Any) -> None:
        embedders = self.embedders(tmp_path)
        full, small = (
            embedders.model_of(self.manifest(embedder=name)) for name in ("local", "local-int8")
        )
        assert full.key != small.key
        await embedders.close()

    async def test_a_remote_embedder_is_requested_by_its_model_name(
        self, tmp_path: Any, server: EmbeddingServer
    ) -> None:
        embedders = self.embedders(tmp_path, embed_base_url=server.base_url, embed_api_key=KEY)
        for name in ("openai/org/model", "nomic-embed-multimodal-7b"):
            model = embedders.model_of(self.manifest(embedder=name, dims=DIMS))
            assert (model.version, model.window) == ("1", 512)
            vector = await embedders.for_space(model).embed_query("x")
            assert vector.shape == (DIMS,)
        await embedders.close()

    @pytest.mark.parametrize(
        ("manifest", "expected"),
        [
            ({"embedder": "locale"}, "did you mean 'local'"),
            ({"embedder": "word2vec"}, "latent models add"),
            ({"embedder": "openai/"}, "known are"),
            ({"embedder": "openai/model"}, "dims"),
            ({"dims": 768}, "768.*384"),
            ({"embedder_version": "2"}, "'2'.*all-MiniLM"),
        ],
    )
    def test_a_text_that_does_not_fit_is_reported(
        self, tmp_path: Any, manifest: dict[str, Any], expected: str
    ) -> None:
        embedders = self.embedders(tmp_path, embed_base_url="http://127.0.0.1:1/v1")
        with pytest.raises(Invalid, match=expected):
            embedders.model_of(self.manifest(**manifest))

    def test_a_container_may_be_made_before_its_remote_embedder_has_an_address(
        self, tmp_path: Any
    ) -> None:
        embedders = self.embedders(tmp_path)
        model = embedders.model_of(self.manifest(embedder="openai/m", dims=8))
        with pytest.raises(Unavailable, match="LLC_EMBED_BASE_URL"):
            embedders.for_space(model)

    def test_vectors_of_another_version_are_not_mixed_in(self, tmp_path: Any) -> None:
        with pytest.raises(Unavailable, match="all-MiniLM-L6-v2@0"):
            self.embedders(tmp_path).for_space(of_space("local", "all-MiniLM-L6-v2@0", 384))

    async def test_all_remote_models_share_one_limit(
        self, tmp_path: Any, server: EmbeddingServer
    ) -> None:
        embedders = self.embedders(
            tmp_path, embed_base_url=server.base_url, embed_api_key=KEY, embed_rate_limit_per_min=5
        )
        one, two = (of_space(f"openai/{name}", "1", DIMS) for name in "ab")
        await embedders.for_space(one).embed_documents(["x"] * 5)
        with pytest.raises(RateLimited):
            await embedders.for_space(two).embed_query("x")
        await embedders.close()


class TestServer:
    def test_its_vectors_are_the_same_in_every_process(self) -> None:
        command = (
            "from tests.support.hashed_embedder import HashedWords as H;"
            "print(H(8).vectors(['proteins fold', 'and unfold']).tolist())"
        )
        expected = subprocess.run(
            [sys.executable, "-c", command],
            capture_output=True,
            check=True,
            timeout=60,
            cwd=REPOSITORY,
        )
        here = HashedWords(8).vectors(["and unfold", "proteins fold"])[::-1]
        assert np.allclose(json.loads(expected.stdout), here)

    async def test_it_serves_as_a_process_until_its_input_closes(self) -> None:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.support.servers.embedding_server", "--dims", "16"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=REPOSITORY,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        async with asyncio.timeout(60):
            address = json.loads(await process.stdout.readline())["base_url"]
            embedder = embedder_for(address, dims=16)
            assert (await embedder.embed_documents(TEXTS)).shape == (3, 16)
            root = address.removesuffix("/v1")
            async with httpx.AsyncClient(trust_env=False) as client:
                await client.post(f"{root}/misbehave", json={"kind": "refused", "times": 1})
                with pytest.raises(IngestFailed):
                    await embedder.embed_query("x")
                stats = (await client.get(f"{root}/stats")).json()
            assert stats == {"requests": 2, "texts": 3, "images": 0, "largest": 3}
            await embedder.close()
            process.stdin.close()
            assert await process.wait() == 0
