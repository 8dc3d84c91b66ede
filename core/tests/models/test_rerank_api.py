"""Rerankers over HTTP, against a real server that speaks every dialect and can be told to misbehave."""

from __future__ import annotations

import asyncio
import json
import logging
import typing
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from hypothesis import given, settings, strategies as st
from pydantic import SecretStr

from latent_core.domain.errors import Invalid, LatentError, RateLimited, TimedOut, Unavailable
from latent_core.domain.manifest.model import RERANKERS, parse_manifest
from latent_core.models.embedding.onnx_format import ElementType, Graph
from latent_core.models.providers.entry import Kind
from latent_core.models.rerank.api import (
    ApiReranker,
    Dialect,
    RerankEndpoint,
    RerankRetryPolicy,
    dialect_of,
    endpoint_of,
    read_scores,
)
from latent_core.models.rerank.resolve import DIALECTS, Provider, Rerankers
from latent_core.settings import Settings
from tests.support.contracts.rerank import QUERY, TEXTS, RerankerContract, scores_of, soon
from tests.support.servers.rerank_server import PATHS, RerankFault, RerankServer, overlap

KEY = SecretStr("sk-secret")
EXPECTED = [overlap(QUERY, text) for text in TEXTS]


def dialect_at(path: str) -> Dialect:
    original = path.split("/")[1]
    return Dialect.CONTRACT if original == "scores" else Dialect(original)


@dataclass
class Naps:
    """Sleeps that take no time."""

    taken: list[float] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        self.taken.append(seconds)


def reranker_at(
    url: str,
    dialect: Dialect | None = None,
    *,
    key: SecretStr | None = KEY,
    naps: Naps | None = None,
    attempts: int = 3,
) -> ApiReranker:
    return ApiReranker(
        RerankEndpoint(url, key, "reranker-1", dialect),
        retry_policy=RerankRetryPolicy(attempts=attempts, first_wait=0.25),
        sleep=(naps or Naps()).sleep,
        jitter=lambda _, high: high,
    )


@pytest.fixture
async def server() -> AsyncIterator[RerankServer]:
    async with RerankServer(key=KEY.get_secret_value()) as server:
        yield server


@pytest.fixture
def naps() -> Naps:
    return Naps()


@pytest.fixture
async def patient(server: RerankServer, naps: Naps) -> AsyncIterator[ApiReranker]:
    reranker = reranker_at(server.url(), naps=naps)
    yield reranker
    await reranker.close()


@pytest_asyncio.fixture(scope="class", loop_scope="class", params=PATHS)
async def reranker(request: pytest.FixtureRequest) -> AsyncIterator[ApiReranker]:
    async with RerankServer(key=KEY.get_secret_value()) as server:
        reranker = reranker_at(server.url(request.param), dialect_at(request.param))
        yield reranker
        await reranker.close()


@pytest.mark.asyncio(loop_scope="class")
class TestContract(RerankerContract):
    """In every dialect."""


class TestRequests:
    async def test_the_request_is_that_of_the_contract_by_default(
        self, server: RerankServer
    ) -> None:
        reranker = ApiReranker(RerankEndpoint(server.url(), KEY))
        assert await scores_of(reranker, TEXTS) == pytest.approx(EXPECTED)
        await reranker.close()
        (request,) = server.requests
        assert request.body == {
            "query": QUERY,
            "documents": TEXTS,
            "top_k": len(TEXTS),
            "return_documents": False,
        }
        assert request.headers["authorization"] == "Bearer sk-secret"

    async def test_more_texts_than_a_server_takes_go_in_several_requests(
        self, server: RerankServer
    ) -> None:
        texts = [f"rye {n}" for n in range(70)]
        reranker = reranker_at(server.url("/tei/rerank"), Dialect.TEI)
        assert await scores_of(reranker, texts) == [overlap(QUERY, text) for text in texts]
        await reranker.close()
        assert [len(request.body["texts"]) for request in server.requests] == [32, 32, 6]

    async def test_a_dialect_that_the_server_does_not_speak_is_refused_and_named(
        self, server: RerankServer
    ) -> None:
        reranker = reranker_at(server.url("/voyage/v1/rerank"), Dialect.COHERE)
        with pytest.raises(Invalid, match="LLC_RERANK_DIALECT"):
            await scores_of(reranker, TEXTS)
        await reranker.close()

    @pytest.mark.parametrize(
        ("url", "dialect", "endpoint"),
        [
            ("https://api.cohere.com", Dialect.COHERE, "https://api.cohere.com/v2/rerank"),
            ("https://api.cohere.com/v2/", Dialect.COHERE, "https://api.cohere.com/v2/rerank"),
            ("https://api.jina.ai/v1/rerank", Dialect.JINA, "https://api.jina.ai/v1/rerank"),
            ("https://api.voyageai.com/v1", Dialect.VOYAGE, "https://api.voyageai.com/v1/rerank"),
            ("http://ranker:8000/any/way?a=b", Dialect.CONTRACT, "http://ranker:8000/any/way?a=b"),
            ("http://ranker:8000/v1", Dialect.CONTRACT, "http://ranker:8000/v1"),
            ("https://api.jina.ai.example", Dialect.CONTRACT, "https://api.jina.ai.example/"),
        ],
    )
    def test_hosts_tell_dialects_and_bases_are_completed(
        self, url: str, dialect: Dialect, endpoint: str
    ) -> None:
        given = httpx.URL(url)
        assert dialect_of(given) is dialect
        assert str(endpoint_of(given, dialect)) == endpoint

    @pytest.mark.parametrize(
        ("url", "message"),
        [
            ("ranker.local/v1", "LLC_RERANK_API_URL"),
            ("ftp://host/v1", "LLC_RERANK_API_URL"),
            ("http://", "LLC_RERANK_API_URL"),
            ("http://[::1", "LLC_RERANK_API_URL"),
            ("http://me:sk-secret@ranker/v1", "LLC_RERANK_API_KEY"),
        ],
    )
    def test_an_address_that_is_none_is_refused(self, url: str, message: str) -> None:
        with pytest.raises(Invalid, match=message) as caught:
            ApiReranker(RerankEndpoint(url))
        assert "sk-" not in str(caught.value.issue())

    def test_a_dialect_that_names_its_model_is_not_used_without_one(self) -> None:
        with pytest.raises(Invalid, match="LLC_RERANK_MODEL"):
            ApiReranker(RerankEndpoint("https://api.cohere.com", KEY))


class TestTrouble:
    @pytest.mark.parametrize(
        "kind",
        [
            RerankFault.SERVER_ERROR,
            RerankFault.HUNG_UP,
            RerankFault.GARBAGE,
            RerankFault.TRUNCATED,
        ],
    )
    async def test_passing_trouble_is_waited_out_with_growing_pauses(
        self, server: RerankServer, patient: ApiReranker, naps: Naps, kind: RerankFault
    ) -> None:
        server.misbehave(kind, times=2)
        assert await scores_of(patient, TEXTS) == pytest.approx(EXPECTED)
        assert naps.taken == [0.25, 0.5]

    async def test_trouble_that_stays_is_unavailable(
        self, server: RerankServer, patient: ApiReranker
    ) -> None:
        server.misbehave(RerankFault.SERVER_ERROR, times=99)
        with pytest.raises(Unavailable, match="500"):
            await scores_of(patient, TEXTS)
        assert len(server.requests) == 3

    @pytest.mark.parametrize("kind", [RerankFault.RATE_LIMITED, RerankFault.OVERLOADED])
    async def test_retry_after_is_honoured(
        self, server: RerankServer, patient: ApiReranker, naps: Naps, kind: RerankFault
    ) -> None:
        server.misbehave(kind, retry_after="7")
        await scores_of(patient, TEXTS)
        assert naps.taken == [7.0]

    @pytest.mark.parametrize("as_date", [False, True])
    async def test_nothing_is_tried_again_when_the_deadline_leaves_no_time(
        self, server: RerankServer, patient: ApiReranker, naps: Naps, as_date: bool
    ) -> None:
        later = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
        server.misbehave(RerankFault.RATE_LIMITED, retry_after=later if as_date else "3600")
        with pytest.raises(RateLimited) as caught:
            await scores_of(patient, TEXTS)
        assert caught.value.details["retry_after"] == pytest.approx(3600, abs=60)
        assert (naps.taken, len(server.requests)) == ([], 1)

    async def test_a_server_that_requests_a_pause_is_called_again_after_it(
        self, server: RerankServer
    ) -> None:
        hasty = ApiReranker(
            RerankEndpoint(server.url(), KEY), retry_policy=RerankRetryPolicy(longest_pause=0.05)
        )
        patient = reranker_at(server.url())
        server.misbehave(RerankFault.RATE_LIMITED, times=2, retry_after="3600")
        for reranker in (hasty, patient):
            with pytest.raises(RateLimited, match="429"):
                await scores_of(reranker, TEXTS)
        with pytest.raises(RateLimited, match="another"):
            await scores_of(patient, TEXTS)
        assert len(server.requests) == 2
        async with asyncio.timeout(30.0):
            while True:
                with suppress(RateLimited):
                    assert await scores_of(hasty, TEXTS) == pytest.approx(EXPECTED)
                    break
                await asyncio.sleep(0)
        await hasty.close()
        await patient.close()

    @pytest.mark.parametrize("header", ["soon", "-5", "nan", ""])
    async def test_a_retry_after_that_says_nothing_is_not_believed(
        self, server: RerankServer, patient: ApiReranker, header: str
    ) -> None:
        server.misbehave(RerankFault.RATE_LIMITED, retry_after=header)
        assert await scores_of(patient, TEXTS) == pytest.approx(EXPECTED)

    async def test_a_silent_server_is_given_up_at_the_deadline(
        self, server: RerankServer, patient: ApiReranker
    ) -> None:
        server.misbehave(RerankFault.SILENT)
        with pytest.raises(TimedOut, match="deadline"):
            await patient.rerank(QUERY, TEXTS, asyncio.get_running_loop().time() + 0.05)
        assert await scores_of(patient, TEXTS) == pytest.approx(EXPECTED)

    async def test_a_server_that_is_not_there_is_unavailable(self) -> None:
        async with RerankServer() as gone:
            url = gone.url()
        reranker = reranker_at(url)
        with pytest.raises(Unavailable, match="cannot be reached: it refuses connections"):
            await scores_of(reranker, TEXTS)
        await reranker.close()

    @pytest.mark.parametrize(
        ("kind", "message"),
        [
            (RerankFault.REFUSED, "422"),
            (RerankFault.REDIRECT, "307"),
            (RerankFault.WRONG_COUNT, "5 scores for 6 texts"),
            (RerankFault.DUPLICATE, "two scores"),
            (RerankFault.OUT_OF_RANGE, "text 6 of 6"),
            (RerankFault.NOT_A_NUMBER, "not a finite number"),
            (RerankFault.HUGE, "more than"),
        ],
    )
    async def test_what_will_not_pass_is_refused_whole_and_at_once(
        self, server: RerankServer, patient: ApiReranker, kind: RerankFault, message: str
    ) -> None:
        server.misbehave(kind)
        with pytest.raises(Invalid, match=message):
            await scores_of(patient, TEXTS)
        assert len(server.requests) == 1
        assert await scores_of(patient, TEXTS) == pytest.approx(EXPECTED)

    @pytest.mark.parametrize(
        "kind", [RerankFault.SERVER_ERROR, RerankFault.REFUSED, RerankFault.HUNG_UP]
    )
    async def test_the_key_is_never_shown_even_when_the_server_shows_it(
        self, server: RerankServer, kind: RerankFault, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        server.misbehave(kind, times=9)
        reranker = reranker_at(server.url())
        with pytest.raises(LatentError) as caught:
            await scores_of(reranker, TEXTS)
        await reranker.close()
        summary = f"{caught.value.issue()} {caplog.text} {reranker.name} {reranker!r}"
        assert "sk-" not in summary

    @pytest.mark.parametrize("key", [None, SecretStr("sk-wrong")])
    async def test_a_wrong_rerank_key_is_reported_and_never_shown(
        self, server: RerankServer, key: SecretStr | None
    ) -> None:
        reranker = reranker_at(server.url(), key=key)
        with pytest.raises(Invalid, match="LLC_RERANK_API_KEY") as caught:
            await scores_of(reranker, TEXTS)
        await reranker.close()
        assert "sk-" not in str(caught.value.issue())

    @pytest.mark.parametrize("key", ["sk-se\ncret", "sk-sécret", "sk-\x00"])
    def test_a_key_that_no_header_can_hold_is_refused_and_not_shown(self, key: str) -> None:
        with pytest.raises(Invalid, match="LLC_RERANK_API_KEY") as caught:
            ApiReranker(RerankEndpoint("http://ranker", SecretStr(key)))
        assert "sk-" not in str(caught.value.issue())

    async def test_an_answer_nested_deeper_than_any_parser_goes_is_no_answer(
        self, server: RerankServer
    ) -> None:
        server.say(b"[" * 20_000)
        reranker = reranker_at(server.url(), attempts=1)
        with pytest.raises(Unavailable, match="JSON"):
            await scores_of(reranker, TEXTS)
        await reranker.close()


class TestAnswers:
    @pytest.mark.parametrize(
        "body",
        [
            "null",
            "3",
            "{}",
            '{"results": {}}',
            '{"results": [1, 2]}',
            '{"results": [{"index": 0}, {"index": 1}]}',
            '{"results": [{"relevance_score": 1}, {"relevance_score": 2}]}',
            '{"results": [{"index": "0", "score": 1}, {"index": 1, "score": 1}]}',
            '{"results": [{"index": true, "score": 1}, {"index": 0, "score": 1}]}',
            '{"results": [{"index": -1, "score": 1}, {"index": 0, "score": 1}]}',
            '{"results": [{"index": 0, "score": null}, {"index": 1, "score": 1}]}',
            '{"scores": [1]}',
            '{"scores": [1, "2"]}',
            '{"scores": [1, true]}',
            '{"scores": [1, Infinity]}',
            '{"scores": [1, 1e999]}',
            '{"scores": [1, ' + "9" * 400 + "]}",
            '{"scores": "12"}',
        ],
    )
    def test_what_is_not_one_number_a_text_is_refused(self, body: str) -> None:
        with pytest.raises(Invalid, match="the reranker"):
            read_scores(json.loads(body), 2, "the reranker")

    @settings(max_examples=100)
    @given(st.lists(st.floats(-1e6, 1e6), max_size=20), st.randoms(use_true_random=False))
    def test_every_shape_in_any_order_gives_the_same_scores(
        self, scores: list[float], random: typing.Any
    ) -> None:
        order = list(enumerate(scores))
        random.shuffle(order)
        results = [{"index": index, "relevance_score": score} for index, score in order]
        bare = [{"index": index, "score": score} for index, score in order]
        for answer in ({"results": results}, {"data": results}, bare, {"scores": scores}):
            assert read_scores(answer, len(scores), "x") == scores


class TestResolve:
    """Which reranker a manifest's provider means."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / "tokenizer.json").touch()
        graph = Graph("sum of ids")
        ids = graph.input("input_ids", ElementType.INT64, ["texts", "tokens"])
        graph.node("ReduceMax", [ids], "logits", axes=[1], keepdims=1)
        graph.output("logits", ElementType.INT64, ["texts", 1])
        (tmp_path / "model.onnx").write_bytes(graph.model())
        return tmp_path

    async def test_what_is_configured_is_used_the_server_first(
        self, server: RerankServer, folder: Path
    ) -> None:
        both = Rerankers.of(Settings(rerank_api_url=server.url(), rerank_folder=folder))
        local = Rerankers.of(Settings(rerank_folder=folder))
        preferring = Rerankers.of(
            Settings(rerank_api_url=server.url(), rerank_folder=folder, rerank_provider="local")
        )
        assert both.named() is both.named("api") is both.api
        assert both.named("local") is both.local
        assert local.named() is local.local
        assert preferring.named() is preferring.local
        assert preferring.named("api") is preferring.api
        for rerankers in (both, local, preferring):
            await rerankers.close()

    @pytest.mark.parametrize(
        ("provider", "message"),
        [
            ("none", "LLC_RERANK_API_URL or LLC_RERANK_FOLDER"),
            ("api", "LLC_RERANK_API_URL"),
            ("local", "LLC_RERANK_FOLDER"),
        ],
    )
    def test_what_is_not_configured_is_unavailable_and_says_what_to_set(
        self, provider: Provider, message: str
    ) -> None:
        with pytest.raises(Unavailable, match=message):
            Rerankers.of(Settings()).named(provider)

    @pytest.mark.parametrize("provider", RERANKERS)
    def test_the_value_none_disables_reranking(self, provider: Provider, folder: Path) -> None:
        off = Settings(rerank_provider="none", rerank_api_url="http://ranker", rerank_folder=folder)
        with pytest.raises(Unavailable, match="turned off"):
            Rerankers.of(off).named(provider)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (Settings(rerank_provider="api"), "LLC_RERANK_API_URL"),
            (Settings(rerank_provider="local"), "LLC_RERANK_FOLDER"),
            (Settings(rerank_folder=Path("/nowhere")), "LLC_RERANK_FOLDER"),
            (Settings(rerank_api_url="http://r", rerank_dialect="jina"), "LLC_RERANK_MODEL"),
        ],
    )
    def test_settings_that_do_not_fit_are_refused_at_the_start(
        self, given: Settings, message: str
    ) -> None:
        with pytest.raises(Invalid, match=message):
            Rerankers.of(given)

    @pytest.mark.parametrize("path", PATHS)
    async def test_settings_choose_the_dialect(self, server: RerankServer, path: str) -> None:
        given = Settings(
            rerank_api_url=server.url(path),
            rerank_api_key=KEY,
            rerank_model="reranker-1",
            rerank_dialect=dialect_at(path).value,
        )
        rerankers = Rerankers.of(given)
        scores = await rerankers.named("api").rerank(QUERY, TEXTS, soon())
        await rerankers.close()
        assert scores == pytest.approx(EXPECTED)

    @pytest.mark.parametrize("kind", sorted(DIALECTS))
    async def test_a_model_of_a_provider_reranks_whatever_the_end_of_its_address(
        self, server: RerankServer, tmp_path: Path, kind: Kind
    ) -> None:
        (tmp_path / "key").write_text(KEY.get_secret_value(), encoding="utf-8")
        file = tmp_path / "providers.yaml"
        for ending in ("", "/v1", "/v1/"):
            address = server.url(f"/{DIALECTS[kind]}{ending}")
            file.write_text(
                f"providers: [{{name: far, kind: {kind.value}, base_url: '{address}', key_file: key}}]",
                encoding="utf-8",
            )
            name = "far/org/reranker-1"
            by_manifest = Rerankers.of(Settings(providers=file))
            by_setting = Rerankers.of(Settings(providers=file, rerank_provider=name))
            for reranker in (by_manifest.named(name), by_setting.named()):
                assert await reranker.rerank(QUERY, TEXTS, soon()) == pytest.approx(EXPECTED)
            if kind is not Kind.TEI:
                assert server.requests[-1].body["model"] == "org/reranker-1"
            await by_manifest.close()
            await by_setting.close()

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("fra/m", "did you mean 'far/m'"),
            ("nowhere/m", "there is no provider 'nowhere'"),
            ("plain/m", "'plain' is of kind openai, which has no rerankers; kinds with"),
        ],
    )
    def test_a_name_that_is_no_reranker_is_refused(
        self, tmp_path: Path, name: str, expected: str
    ) -> None:
        file = tmp_path / "providers.yaml"
        file.write_text("providers: [{name: far, kind: cohere}, {name: plain, kind: openai}]")
        with pytest.raises(Invalid, match=expected):
            Rerankers.of(Settings(providers=file)).check(name)
        with pytest.raises(Invalid, match="LLC_RERANK_PROVIDER"):
            Rerankers.of(Settings(providers=file, rerank_provider=name))
        rerankers = Rerankers.of(Settings(providers=file))
        assert not rerankers.offered(name)
        assert not rerankers.offered("far/m")  # it has no key
        with pytest.raises(Unavailable, match="needs a key: set key_file of the provider 'far'"):
            rerankers.named("far/m")

    def test_a_wrong_name_in_a_manifest_is_corrected(self) -> None:
        with pytest.raises(Invalid, match="did you mean 'local'"):
            parse_manifest({"id": "a", "name": "A", "retrieval": {"rerank": {"provider": "lokal"}}})

    def test_settings_name_every_dialect(self) -> None:
        named = typing.get_args(Settings.model_fields["rerank_dialect"].annotation)
        assert set(named) == {"auto", *Dialect}
