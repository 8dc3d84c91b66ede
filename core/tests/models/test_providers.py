"""Providers: the file, the names, and each kind's API against a stand-in that takes what the original takes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from latent_core.domain.errors import (
    IngestFailed,
    InputRefused,
    Invalid,
    LatentError,
    Misconfigured,
    ServiceUnreachable,
    UpstreamError,
    UpstreamTimeout,
)
from latent_core.domain.manifest.model import Manifest
from latent_core.models.embedding.api.dialects import TextClient
from latent_core.models.embedding.api.open import RemoteEmbedders, remote_model
from latent_core.models.embedding.api.remote import RemoteEmbedder
from latent_core.models.embedding.api.wire import EmbeddingEndpoint
from latent_core.models.embedding.batcher import Batcher, RefusedTexts
from latent_core.models.embedding.rate import TextRate
from latent_core.models.embedding.resolve import MEASURED_SECONDS, EmbedderRegistry
from latent_core.models.providers.entry import Kind, read_providers
from latent_core.models.providers.registry import (
    TEXTS_PER_MINUTE,
    Provider,
    ProviderModel,
    Providers,
)
from latent_core.settings import Settings
from tests.support.clock import FakeClock
from tests.support.contracts.embedding import EmbedderContract
from tests.support.servers.provider_server import (
    MODEL,
    ORIGINALS,
    ProviderServer,
    failed_page,
    html_page,
    rate_limited,
)

DIMS = 64
KEY = "sk-secret-of-the-provider"
EMBEDDING = sorted(ORIGINALS)


def settings_with(folder: Path, text: str, **given: Any) -> Settings:
    file = folder / "providers.yaml"
    file.write_text(text, encoding="utf-8")
    return Settings(_env_file=None, providers=file, **given)


def entry(server: ProviderServer, folder: Path, *, name: str = "work", more: str = "") -> str:
    """A file with one provider."""
    key = ""
    if server.key is not None:
        (folder / "key").write_text(f"{server.key}\n", encoding="utf-8")
        key = ", key_file: key"
    kind = server.kind.value
    return (
        f"providers:\n- {{name: {name}, kind: {kind}, base_url: '{server.base_url}'{key}{more}}}\n"
    )


def registry_of(server: ProviderServer, folder: Path, *, more: str = "") -> EmbedderRegistry:
    return EmbedderRegistry(settings_with(folder, entry(server, folder, more=more)), folder)


def manifest(embedder: str = f"work/{MODEL}", **given: Any) -> Manifest:
    return Manifest(id="c", name="C", embedder=embedder, **given)


async def opened(registry: EmbedderRegistry, **given: Any) -> RemoteEmbedder:
    """The embedder of a new container."""
    chosen = manifest(**given)
    await registry.measure(chosen)
    embedder = registry.for_space(registry.model_of(chosen))
    assert isinstance(embedder, RemoteEmbedder)
    return embedder


@pytest_asyncio.fixture(scope="class", loop_scope="class", params=EMBEDDING)
async def embedder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[RemoteEmbedder]:
    folder = tmp_path_factory.mktemp("providers")
    async with ProviderServer(request.param, dims=DIMS, key=KEY) as server:
        registry = registry_of(server, folder)
        yield await opened(registry)
        await registry.close()


@pytest.mark.asyncio(loop_scope="class")
class TestContract(EmbedderContract):
    pass


@pytest.fixture(params=EMBEDDING)
async def server(request: pytest.FixtureRequest) -> AsyncIterator[ProviderServer]:
    async with ProviderServer(request.param, dims=DIMS, key=KEY) as running:
        yield running


class TestFile:
    def read(self, folder: Path, text: str) -> Any:
        file = folder / "providers.yaml"
        file.write_text(text, encoding="utf-8")
        return read_providers(file)

    def test_an_entry_has_all_that_a_server_needs(self, tmp_path: Path) -> None:
        (one,) = self.read(
            tmp_path,
            "providers:\n- name: gpu\n  kind: vllm\n  base_url: http://gpu:8000/v1\n  key_file: gpu.key\n"
            "  rate: 600\n  concurrency: 2\n  price: 0.02\n  window: 8192\n",
        )
        assert (one.name, one.kind, one.rate, one.concurrency) == ("gpu", Kind.VLLM, 600, 2)
        assert (one.price, one.window, one.key_file) == (0.02, 8192, tmp_path / "gpu.key")
        with pytest.raises(ValueError, match="frozen"):
            one.rate = 5

    def test_every_kind_of_the_plan_can_be_named(self, tmp_path: Path) -> None:
        lines = [f"- {{name: a-{kind}, kind: {kind}, base_url: 'http://h'}}" for kind in Kind]
        assert {one.kind for one in self.read(tmp_path, "providers:\n" + "\n".join(lines))} == set(
            Kind
        )

    @pytest.mark.parametrize(
        ("lines", "expected"),
        [
            ("- {name: a, kind: openai, key: sk-visible}", "line 2: unknown key.*key_file"),
            ("- {name: a, kind: openay}", "line 2.*kind.*'openai'"),
            ("- {name: a, kind: vllm}", "base_url is needed"),
            ("- {name: a/b, kind: openai}", "use 1 to 40 of"),
            ("- {name: A, kind: openai}", "use 1 to 40 of"),
            ("- {name: api, kind: cohere}", "a meaning of its own"),
            ("- {name: local-gpu, kind: ollama}", "a meaning of its own"),
            ("- {name: openai, kind: ollama}", "'openai' means a provider of kind openai"),
            ("- {name: a, kind: openai, base_url: 'ftp://h'}", "http://"),
            ("- {name: a, kind: openai, base_url: 'http://u:sk-visible@h'}", "contains a password"),
            ("- {name: a, kind: openai, rate: 0}", "rate.*greater than"),
            ("- {name: a, kind: openai, options: {num_ctx: 1}}", "by kind ollama only"),
            ("- {name: a, kind: openai}\n- {name: a, kind: jina}", "two providers are named 'a'"),
            ("- {name: a, name: b, kind: openai}", "already defined on line 2"),
            ("- &x {name: a, kind: openai}\n- *x", "aliases"),
            ("  a: b: c", "line 2"),
        ],
    )
    def test_what_is_wrong_is_named_with_its_line_and_never_shows_a_secret(
        self, tmp_path: Path, lines: str, expected: str
    ) -> None:
        with pytest.raises(Invalid, match=expected) as caught:
            self.read(tmp_path, f"providers:\n{lines}\n")
        assert "LLC_PROVIDERS" in caught.value.message
        assert "sk-visible" not in str(caught.value.issue())

    @pytest.mark.parametrize("text", ["[]", "a: 1", "providers: {}"])
    def test_a_file_that_is_no_list_of_providers_is_refused(
        self, tmp_path: Path, text: str
    ) -> None:
        with pytest.raises(Invalid, match="LLC_PROVIDERS"):
            self.read(tmp_path, text)

    def test_a_file_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(Invalid, match=r"none\.yaml: cannot be read"):
            read_providers(tmp_path / "none.yaml")


class TestNames:
    ENTRY = "providers:\n- {name: work, kind: openai, base_url: 'http://h'}\n- {name: thinker, kind: anthropic}\n"

    def registry(self, folder: Path, text: str = ENTRY, **given: Any) -> EmbedderRegistry:
        return EmbedderRegistry(settings_with(folder, text, **given), folder)

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("wrok/text-embedding-3-small", "did you mean 'work/text-embedding-3-small'"),
            ("opnai/m", "did you mean 'openai/m'"),
            ("elsewhere/m", "known are jina, nomic, openai, thinker, vllm, work; LLC_PROVIDERS"),
            ("thinker/claude", "'thinker' is of kind anthropic, which has language models only"),
            ("work/", "is not known"),
        ],
    )
    def test_a_name_that_is_no_embedder_is_refused_with_what_may_be_meant(
        self, tmp_path: Path, name: str, expected: str
    ) -> None:
        with pytest.raises(Invalid, match=expected):
            self.registry(tmp_path).model_of(manifest(name, dims=8))

    def test_a_container_whose_provider_has_gone_says_so(self, tmp_path: Path) -> None:
        made = self.registry(tmp_path).model_of(manifest("work/m", dims=8))
        without = EmbedderRegistry(Settings(_env_file=None), tmp_path)
        assert "there is no provider 'work'" in (without.lacking("work/m") or "")
        with pytest.raises(Misconfigured, match="LLC_PROVIDERS"):
            without.for_space(made)

    def test_the_contracts_settings_are_providers_of_fixed_names(self, tmp_path: Path) -> None:
        settings = Settings(_env_file=None, embed_base_url="http://one", embed_window=900)
        found = {one.name: one for one in Providers.of(settings)}
        assert set(found) == {"openai", "vllm", "jina", "nomic"}
        assert (found["vllm"].base_url, found["vllm"].window) == ("http://one", 900)
        assert Providers.of(settings).find("nomic-embed-multimodal-7b") == ProviderModel(
            found["vllm"], "nomic-embed-multimodal-7b"
        )

    def test_an_entry_replaces_the_provider_of_the_same_fixed_name_only(
        self, tmp_path: Path
    ) -> None:
        text = "providers:\n- {name: openai, kind: openai, base_url: 'http://other'}\n"
        registry = self.registry(tmp_path, text, embed_base_url="http://one")
        assert {one.name: one.base_url for one in registry.providers if one.name != "nomic"} == {
            "openai": "http://other",
            "vllm": "http://one",
            "jina": "http://one",
        }

    def test_only_the_contracts_embedder_has_a_limit_by_default(self, tmp_path: Path) -> None:
        text = "providers:\n- {name: slow, kind: openai, rate: 60, price: 2}\n- {name: free, kind: jina}\n"
        registry = self.registry(tmp_path, text, embed_base_url="http://one")
        assert registry.rate_of("nomic-embed-multimodal-7b") == (
            TEXTS_PER_MINUTE,
            "LLC_EMBED_RATE_LIMIT_PER_MIN",
        )
        assert registry.rate_of("openai/m") is None
        assert registry.rate_of("free/m") is None
        rate = registry.rate_of("slow/m")
        assert rate is not None
        assert rate[0] == 60
        assert "provider 'slow'" in rate[1]
        assert (registry.price_of("slow/m"), registry.price_of("local")) == (2, 0)
        configured = self.registry(tmp_path, text, embed_rate_limit_per_min=7)
        assert configured.rate_of("openai/m") == (7, "LLC_EMBED_RATE_LIMIT_PER_MIN")

    @pytest.mark.parametrize(
        ("content", "expected"),
        [(None, "key cannot be read"), (b"\n", "one key"), (b"\xff\xfe", "not text")],
    )
    def test_a_key_that_cannot_be_read_is_the_state_of_its_provider(
        self, tmp_path: Path, content: bytes | None, expected: str
    ) -> None:
        if content is not None:
            (tmp_path / "key").write_bytes(content)
        text = "providers:\n- {name: work, kind: jina, key_file: key}\n- {name: keyless, kind: cohere}\n"
        registry = self.registry(tmp_path, text)
        assert expected in (registry.lacking("work/m") or "")
        assert "needs a key: set key_file of the provider 'keyless'" in (
            registry.lacking("keyless/m") or ""
        )
        assert registry.model_of(manifest("work/m", dims=8)).dims == 8


class TestDims:
    async def test_dims_come_from_the_first_answer(
        self, server: ProviderServer, tmp_path: Path
    ) -> None:
        registry = registry_of(server, tmp_path)
        embedder = await opened(registry)
        assert embedder.model.dims == DIMS
        assert len(server.requests) == 1
        await registry.measure(manifest())
        assert len(server.requests) == 1  # known from now on
        await registry.close()

    async def test_dims_of_the_manifest_are_requested_if_the_model_has_more(
        self, server: ProviderServer, tmp_path: Path
    ) -> None:
        registry = registry_of(server, tmp_path)
        embedder = await opened(registry, dims=16)
        rows = await embedder.embed_documents(["a text about gulls", "another"])
        assert rows.shape == (2, 16)
        assert np.allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-5)
        assert server.requests[-1].dims == 16
        await registry.close()

    async def test_dims_that_the_model_cannot_have_are_refused_with_both_numbers(
        self, server: ProviderServer, tmp_path: Path
    ) -> None:
        if server.kind is Kind.NOMIC:
            pytest.skip("its requests always name the dimensions")
        registry = registry_of(server, tmp_path)
        embedder = await opened(registry, dims=100)
        with pytest.raises(IngestFailed, match=r"returns 64 dimensions.*says 100"):
            await embedder.embed_documents(["a"])
        await registry.close()

    async def test_dims_are_measured_again_after_a_minute_since_the_model_may_be_another_one(
        self, tmp_path: Path
    ) -> None:
        clock = FakeClock()
        async with ProviderServer(Kind.OLLAMA, dims=DIMS) as server:
            registry = EmbedderRegistry(
                settings_with(tmp_path, entry(server, tmp_path)), tmp_path, clock=clock.clock
            )
            await registry.measure(manifest())
            server.dims = 24
            await registry.measure(manifest())
            assert registry.model_of(manifest()).dims == DIMS
            clock.now += MEASURED_SECONDS
            await registry.measure(manifest())
            assert registry.model_of(manifest()).dims == 24
            assert len(server.requests) == 2
            embedder = registry.for_space(registry.model_of(manifest()))
            assert (await embedder.embed_documents(["gulls"])).shape == (1, 24)
        clock.now += MEASURED_SECONDS
        with pytest.raises(LatentError, match=r"dimensions of work/.* are not known"):
            await registry.measure(manifest())
        await registry.close()

    async def test_a_server_that_is_down_is_named_and_dims_need_none(self, tmp_path: Path) -> None:
        text = "providers:\n- {name: work, kind: ollama, base_url: 'http://127.0.0.1:1'}\n"
        registry = EmbedderRegistry(settings_with(tmp_path, text), tmp_path)
        with pytest.raises(
            ServiceUnreachable, match=f"work/{MODEL}.*refuses connections.*Set dims"
        ):
            await registry.measure(manifest())
        await registry.measure(manifest(dims=8))
        assert registry.model_of(manifest(dims=8)).dims == 8


class TestWire:
    ADDRESSES = {
        Kind.OLLAMA: ("", "/", "/v1", "/api"),
        Kind.COHERE: ("", "/v1", "/v2/"),
        Kind.GEMINI: ("", "/v1", "/v1beta"),
    }

    async def test_base_addresses_work_with_and_without_a_version(
        self, server: ProviderServer, tmp_path: Path
    ) -> None:
        for ending in self.ADDRESSES.get(server.kind, ("", "/", "/v1", "/v1/")):
            text = entry(server, tmp_path).replace(server.base_url, server.base_url + ending)
            registry = EmbedderRegistry(settings_with(tmp_path, text), tmp_path)
            embedder = await opened(registry)
            assert (await embedder.embed_query("x")).shape == (DIMS,)
            await registry.close()

    async def test_documents_and_queries_are_named_where_the_api_has_types(
        self, tmp_path: Path
    ) -> None:
        types = {
            Kind.NOMIC: ("search_document", "search_query"),
            Kind.VOYAGE: ("document", "query"),
            Kind.COHERE: ("search_document", "search_query"),
        }
        for kind, expected in types.items():
            async with ProviderServer(kind, dims=DIMS, key=KEY) as server:
                registry = registry_of(server, tmp_path)
                embedder = await opened(registry, dims=DIMS)
                await embedder.embed_documents(["a"])
                await embedder.embed_query("b")
                assert tuple(one.input_type for one in server.requests) == expected
                await registry.close()

    @pytest.mark.parametrize(
        ("model", "version", "expected"),
        [
            ("jina-embeddings-v3", None, ("retrieval.passage", "retrieval.query")),
            ("jina-code-embeddings-0.5b", None, ("nl2code.passage", "nl2code.query")),
            ("jina-embeddings-v2-base-en", None, (None, None)),
            ("jina-embeddings-v3", "1", (None, None)),
        ],
    )
    async def test_jinas_task_depends_on_the_model_and_on_the_version_of_the_vectors(
        self,
        tmp_path: Path,
        model: str,
        version: str | None,
        expected: tuple[str | None, str | None],
    ) -> None:
        async with ProviderServer(Kind.JINA, dims=DIMS, key=KEY) as server:
            registry = registry_of(server, tmp_path)
            name = f"work/{model}"
            embedder = await opened(registry, embedder=name, dims=DIMS, embedder_version=version)
            await embedder.embed_documents(["a"])
            await embedder.embed_query("b")
            await registry.close()
        assert tuple(one.input_type for one in server.requests) == expected

    async def test_geminis_task_is_a_field_or_a_prompt(self, tmp_path: Path) -> None:
        async with ProviderServer(Kind.GEMINI, dims=DIMS, key=KEY) as server:
            registry = registry_of(server, tmp_path)
            embedder = await opened(registry, dims=DIMS)
            await embedder.embed_documents(["a"])
            await embedder.embed_query("b")
            await registry.close()
        assert [one.texts for one in server.requests] == [
            ["title: none | text: a"],
            ["task: search result | query: b"],
        ]

    async def test_options_of_ollama_are_sent_and_a_refusal_is_requested(
        self, tmp_path: Path
    ) -> None:
        async with ProviderServer(Kind.OLLAMA, dims=DIMS) as server:
            registry = registry_of(server, tmp_path, more=", options: {num_ctx: 4096}")
            embedder = await opened(registry)
            await embedder.embed_documents(["a"])
            await registry.close()
        path, body = server.calls[-1]
        assert path == "/api/embed"
        assert (body["options"], body["truncate"]) == ({"num_ctx": 4096}, False)

    async def test_no_request_has_more_texts_than_the_api_takes(
        self, server: ProviderServer, tmp_path: Path
    ) -> None:
        registry = registry_of(server, tmp_path)
        embedder = await opened(registry)
        texts = [f"text {n}" for n in range(70)]
        rows = await embedder.embed_documents(texts)
        assert rows.shape == (70, DIMS)
        await registry.close()


def paced(server: ProviderServer, clock: FakeClock) -> RemoteEmbedder:
    """An embedder whose waits are those of ``clock``."""
    provider = Provider("work", server.kind, server.base_url)
    registry = RemoteEmbedders(lambda _, n: TextRate(n, clock=clock.clock, sleep=clock.sleep))
    model = remote_model(f"work/{MODEL}", "2", DIMS, provider)
    embedder = registry.open(model, ProviderModel(provider, MODEL))
    embedder._sleep = clock.sleep
    return embedder


class TestTrouble:
    @pytest.mark.parametrize(
        ("headers", "seconds"),
        [
            ({"retry_after": "7"}, 7),
            ({"x_ratelimit_remaining_requests": "0", "x_ratelimit_reset_requests": "1m3s"}, 63),
            ({"x_ratelimit_remaining_tokens": "0", "x_ratelimit_reset_tokens": "250ms"}, 0.25),
            (
                {
                    "retry_after": "2",
                    "x_ratelimit_remaining_tokens": "0",
                    "x_ratelimit_reset_tokens": "9s",
                },
                2,
            ),
        ],
    )
    async def test_a_refused_request_waits_as_long_as_its_headers_say(
        self, server: ProviderServer, headers: dict[str, str], seconds: float
    ) -> None:
        server.key, clock = None, FakeClock()
        embedder = paced(server, clock)
        server.spoil.append(rate_limited(**headers))
        if seconds > 30:  # documents go back to the queue
            with pytest.raises(LatentError) as caught:
                await embedder.embed_documents(["a"])
            assert caught.value.details["retry_after"] == seconds
        else:
            await embedder.embed_documents(["a"])
            assert seconds <= clock.now - 1000 <= seconds * 1.1 + 1
        await embedder.close()

    async def test_an_exhausted_limit_pauses_before_the_server_has_to_refuse(self) -> None:
        async with ProviderServer(Kind.OPENAI, dims=DIMS) as server:
            clock = FakeClock()
            embedder = paced(server, clock)
            server.headers = {
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": "12s",
            }
            await embedder.embed_documents(["a"])
            assert clock.now == 1000
            await embedder.embed_documents(["b"])
            assert clock.now == pytest.approx(1012)
            await embedder.close()

    async def test_a_slow_server_is_given_up_at_the_deadline(self, server: ProviderServer) -> None:
        server.key, server.never_answers = None, True
        endpoint = EmbeddingEndpoint(server.base_url, None, MODEL, DIMS, seconds=0.3)
        client = TextClient(server.kind, endpoint, connections=1)
        with pytest.raises(UpstreamTimeout, match="deadline"):
            await client.embed(["a"])
        await client.close()

    async def test_an_html_page_is_no_answer(self, server: ProviderServer) -> None:
        server.key, clock = None, FakeClock()
        embedder = paced(server, clock)
        for page in (html_page, failed_page):
            server.spoil += [page] * 5
            with pytest.raises(UpstreamError, match="HTML page titled 502 Bad Gateway") as caught:
                await embedder.embed_documents(["a"])
            assert "<" not in caught.value.message
        await embedder.close()

    async def test_a_missing_vector_fails_the_request(self, server: ProviderServer) -> None:
        server.key = None
        embedder = paced(server, FakeClock())

        def without_last(answer: Any) -> Any:
            match server.kind:
                case Kind.TEI:
                    return answer[:-1]
                case Kind.COHERE:
                    answer["embeddings"]["float"].pop()
                case _:
                    answer.get("data", answer.get("embeddings")).pop()
            return answer

        server.spoil.append(without_last)
        with pytest.raises(IngestFailed, match="2 vectors for 3 texts"):
            await embedder.embed_documents(["a", "b", "c"])
        await embedder.close()

    @pytest.mark.parametrize("kind", [Kind.OPENAI, Kind.VLLM, Kind.JINA, Kind.VOYAGE])
    async def test_vectors_in_another_order_are_placed_by_their_index(self, kind: Kind) -> None:
        async with ProviderServer(kind, dims=DIMS) as server:
            embedder = paced(server, FakeClock())
            server.spoil.append(lambda answer: {**answer, "data": answer["data"][::-1]})
            rows = await embedder.embed_documents(["a b", "c d"])
            assert np.allclose(rows, server.vectors(["a b", "c d"]), atol=1e-6)
            await embedder.close()

    async def test_a_wrong_key_is_named_by_its_provider_and_never_shown(
        self, server: ProviderServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        text = entry(server, tmp_path)
        server.key = "another"
        registry = EmbedderRegistry(settings_with(tmp_path, text), tmp_path)
        with pytest.raises(Misconfigured, match="key_file of the provider 'work'") as caught:
            await registry.measure(manifest())
        assert KEY not in f"{caught.value.issue()} {caplog.text}"
        await registry.close()


class TestLongTexts:
    def long(self, words: int) -> str:
        return " ".join(f"w{n}" for n in range(words))

    async def test_a_text_that_is_refused_for_its_length_is_sent_in_parts(
        self, server: ProviderServer
    ) -> None:
        server.key, server.window = None, 100
        if server.kind in (Kind.NOMIC, Kind.GEMINI):
            pytest.skip("these APIs cut texts and cannot be asked to refuse them")
        embedder = paced(server, FakeClock())
        (row,) = await embedder.embed_documents([self.long(180)])
        assert float(row @ server.vectors([self.long(180)])[0]) > 0.95
        await embedder.close()

    async def test_one_text_that_is_too_long_costs_the_others_of_its_batch_nothing(
        self, server: ProviderServer
    ) -> None:
        server.key, server.window = None, 100
        texts = [*(f"short text {n}" for n in range(9)), self.long(180), "forbidden-word", "end"]
        embedder = paced(server, FakeClock())
        batcher, refused = Batcher(embedder), RefusedTexts()
        rows = await batcher.embed(texts, refused=refused)
        assert set(refused) == {10}
        others = [n for n in range(len(texts)) if n not in (9, 10)]
        sent = server.requests[-1].texts
        if "title: none" not in sent[0]:  # Gemini's texts have a prompt
            expected = server.vectors([texts[n] for n in others])
            assert np.allclose(rows[others], expected, atol=1e-5)
        assert np.allclose(np.linalg.norm(rows[[*others, 9]], axis=1), 1.0, atol=1e-5)
        await batcher.close()
        await embedder.close()

    async def test_a_long_query_is_sent_in_parts_too(self) -> None:
        async with ProviderServer(Kind.COHERE, dims=DIMS, window=50) as server:
            embedder = paced(server, FakeClock())
            assert (await embedder.embed_query(self.long(80))).shape == (DIMS,)
            assert {one.input_type for one in server.requests} == {"search_query"}
            await embedder.close()

    async def test_a_refused_content_is_an_error_of_that_text(self, server: ProviderServer) -> None:
        server.key = None
        embedder = paced(server, FakeClock())
        with pytest.raises(InputRefused) as caught:
            await embedder.embed_documents(["forbidden-word"])
        assert not caught.value.too_long
        await embedder.close()

    @pytest.mark.parametrize("kind", [Kind.OLLAMA, Kind.VLLM, Kind.TEI])
    async def test_texts_are_split_to_the_window_that_the_server_reports(self, kind: Kind) -> None:
        async with ProviderServer(kind, dims=DIMS, window=98, facts=100) as server:
            embedder = paced(server, FakeClock())
            texts = [self.long(150), "short"]
            rows = await embedder.embed_documents(texts)
            assert rows.shape == (2, DIMS)
            assert all(len(text.split()) <= 98 for one in server.requests for text in one.texts)
            assert len(server.requests) == 1
            if kind is Kind.TEI:
                assert embedder.texts_a_request == 8
            await embedder.close()

    async def test_concurrent_first_calls_all_wait_for_the_reported_window(self) -> None:
        async with ProviderServer(Kind.OLLAMA, dims=DIMS, facts=50) as server:
            embedder = paced(server, FakeClock())
            rows = await asyncio.gather(*(embedder.embed_documents([self.long(80)]) for _ in "ab"))
            assert np.allclose(*rows)
            assert max(len(text.split()) for one in server.requests for text in one.texts) < 50
            await embedder.close()

    async def test_nomic_cuts_at_what_its_model_reads_and_the_job_says_so(self) -> None:
        """Its API cannot refuse a long text: it cuts it, or takes the mean of its parts, which would hide that."""
        async with ProviderServer(Kind.NOMIC, dims=DIMS, window=120) as server:
            embedder = paced(server, FakeClock())
            await embedder.embed_documents(["short"])
            assert embedder.trouble is None
            await embedder.embed_documents([self.long(300)])
            await embedder.embed_query("short")
            assert "cuts long texts without an error" in (embedder.trouble or "")
            assert {request.truncate for request in server.requests} == {True}
            await embedder.close()

    @pytest.mark.parametrize(("truncates", "reported"), [(True, True), (False, False)])
    async def test_a_server_that_cuts_silently_is_known_after_one_long_text(
        self, truncates: bool, reported: bool
    ) -> None:
        window = 120 if truncates else 100_000
        async with ProviderServer(
            Kind.OPENAI, dims=DIMS, window=window, truncates=truncates
        ) as server:
            embedder = paced(server, FakeClock())
            await embedder.embed_documents(["short"])
            assert (embedder.trouble, len(server.requests)) == (None, 1)
            await embedder.embed_documents([self.long(300), "short"])
            assert (embedder.trouble is not None) is reported
            assert len(server.requests) == 3
            await embedder.embed_documents([self.long(300)])
            assert len(server.requests) == 4
            await embedder.close()
