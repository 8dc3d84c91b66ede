"""``latent models test``: what is measured of a model before anything is ingested."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from latent_core.domain.errors import IngestFailed, Misconfigured, RateLimited
from latent_core.models.embedding.measure import MAX_WORDS, measure_remote, two_ends
from latent_core.models.providers.entry import Kind
from latent_core.models.providers.registry import Provider, ProviderModel
from latent_core.wire.models import ModelTest, WindowBasis
from tests.support.servers.provider_server import MODEL, ORIGINALS, ProviderServer, rate_limited

DIMS = 48


async def measured(server: ProviderServer, **given: Any) -> ModelTest:
    provider = Provider("work", server.kind, server.base_url, **given)
    return await measure_remote(f"work/{MODEL}", ProviderModel(provider, MODEL))


@pytest.mark.parametrize("kind", sorted(ORIGINALS))
async def test_dims_window_and_speed_of_every_kind_are_measured(kind: Kind) -> None:
    async with ProviderServer(kind, dims=DIMS, window=300) as server:
        result = await measured(server, price=0.5, window=200)
    cuts = kind in (Kind.NOMIC, Kind.GEMINI)  # they cannot be asked to refuse a text
    assert (result.kind, result.dims, result.truncates) == (kind.value, DIMS, cuts)
    assert result.window is not None
    assert 300 * 0.85 <= result.window <= 300
    assert result.window_basis is WindowBasis.PROBED
    assert min(result.latency_p50_ms, result.texts_per_second, result.tokens_per_second) > 0
    assert (result.price_per_million, result.rate_per_minute) == (0.5, None)
    assert bool(result.warnings) is cuts


@pytest.mark.parametrize("kind", [Kind.OLLAMA, Kind.VLLM, Kind.TEI, Kind.OPENAI])
async def test_a_reported_window_is_taken_and_checked_with_one_longer_text(kind: Kind) -> None:
    async with ProviderServer(kind, dims=DIMS, window=498, facts=500) as server:
        result = await measured(server, window=400)
        longest = max(len(text.split()) for one in server.requests for text in one.texts)
    assert (result.window, result.window_basis) == (498, WindowBasis.REPORTED)
    assert (result.truncates, result.warnings) == (False, [])
    assert 500 < longest < 700


async def test_a_server_that_cuts_silently_is_found_out() -> None:
    for facts in (None, 500):
        async with ProviderServer(
            Kind.OPENAI, dims=DIMS, window=498, facts=facts, truncates=True
        ) as server:
            result = await measured(server, window=200)
        assert result.truncates is True
        assert "without an error" in result.warnings[0]
        assert result.window is not None
        assert 400 < result.window <= 498


async def test_a_window_that_is_declared_too_large_is_named_with_the_value_to_set() -> None:
    async with ProviderServer(Kind.TEI, dims=DIMS, window=254, facts=256) as server:
        result = await measured(server, window_setting="window of the provider 'work' in p.yaml")
    (warning,) = result.warnings
    assert "window of 512 tokens, but the model reads 254: set window of the provider" in warning


async def test_a_report_that_does_not_hold_is_named() -> None:
    async with ProviderServer(Kind.OLLAMA, dims=DIMS, facts=520) as server:
        result = await measured(server)
    assert "but read a longer text whole" in result.warnings[0]


async def test_no_text_is_longer_than_the_bound() -> None:
    async with ProviderServer(Kind.JINA, dims=DIMS) as server:
        result = await measured(server)
        longest = max(len(text.split()) for one in server.requests for text in one.texts)
    assert (longest, result.window_basis, result.truncates) == (
        MAX_WORDS,
        WindowBasis.LOWER_BOUND,
        None,
    )


async def test_limits_are_those_of_the_settings_and_of_the_servers_headers() -> None:
    async with ProviderServer(Kind.OPENAI, dims=DIMS, window=100) as server:
        server.headers = {
            "x-ratelimit-limit-requests": "3000",
            "x-ratelimit-limit-tokens": "1000000",
        }
        server.spoil.append(rate_limited(retry_after="0"))
        result = await measured(server, rate=60, window=64)
    assert result.rate_per_minute == 60
    assert result.server_limits == {"requests": "3000", "tokens": "1000000"}
    assert result.tokens_used > 0


async def test_a_server_that_refuses_everything_ends_the_test_with_its_reason() -> None:
    async with ProviderServer(Kind.COHERE, dims=DIMS, key="another") as server:
        with pytest.raises(Misconfigured, match="401"):
            await measured(server)
        server.key = None
        server.spoil.append(rate_limited(retry_after="3600"))
        with pytest.raises(RateLimited, match="429"):
            await measured(server)
        server.spoil.append(lambda answer: {"id": answer["id"]})
        with pytest.raises(IngestFailed, match="does not speak Cohere's dialect"):
            await measured(server)


def test_two_ends_differ_in_their_last_words_only() -> None:
    for words in (16, 64, 1000):
        one, other = (text.split() for text in two_ends(words))
        assert len(one) == len(other) == words
        differing = [n for n, pair in enumerate(zip(one, other, strict=True)) if len(set(pair)) > 1]
        assert differing == list(range(differing[0], words))
        assert len(differing) <= max(16, words * 0.06)


def test_the_key_is_in_no_message_of_the_test(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-verysecretkey", encoding="utf-8")
    provider = Provider("work", Kind.JINA, "http://127.0.0.1:1", key_file=tmp_path / "key")
    assert "sk-very" not in repr(provider)
