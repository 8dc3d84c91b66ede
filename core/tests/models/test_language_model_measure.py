"""``latent models test``: what is measured of a language model before a container permits it."""

from __future__ import annotations

import io
from typing import Any

import pymupdf
import pytest
from PIL import Image
from pydantic import SecretStr

from latent_core.domain.errors import InputRefused, Misconfigured, UpstreamError
from latent_core.models.llm.measure import NUMBER, measure_language_model, page_with, red
from latent_core.models.providers.entry import Kind
from latent_core.models.providers.registry import READS, Provider, ProviderModel
from latent_core.wire.models import LanguageModelTest, SchemaSupport
from tests.support.servers.llm_answers import reading
from tests.support.servers.llm_dialects import ChatCompletions, RefusalError, SeenRequest
from tests.support.servers.llm_server import MODEL, Fault, LanguageModelServer, Lie

KEY = "sk-very-secret-key-0123456789"


async def measured(server: LanguageModelServer, **given: Any) -> LanguageModelTest:
    kind = given.pop("kind", Kind.OPENAI)
    provider = Provider("work", kind, server.base_url, SecretStr(KEY), **given)
    return await measure_language_model(f"work/{MODEL}", ProviderModel(provider, MODEL))


@pytest.mark.parametrize("kind", [Kind.OPENAI, Kind.OLLAMA, Kind.VLLM, Kind.ANTHROPIC])
async def test_latency_schema_pictures_and_cost_of_each_kind_are_measured(kind: Kind) -> None:
    async with LanguageModelServer(key=KEY, answer=reading) as server:
        server.usage = lambda *_: (1000, 100)
        found = await measured(server, kind=kind, reads=READS, input_price=1.0, output_price=10.0)
    assert found.json_schema is SchemaSupport.ENFORCED
    assert (found.reads_images, found.reads_pdf, found.reads_long) == (True, True, True)
    assert min(found.latency_p50_ms, found.first_part_ms or 0.0) > 0
    calls = found.tokens_read // 1000
    assert (found.tokens_written, found.cost) == (calls * 100, round(calls * 0.002, 6))
    assert len(server.seen) == calls
    assert found.warnings == []


async def test_a_server_that_ignores_schemas_and_pictures_is_found_out() -> None:
    async with LanguageModelServer(key=KEY, answer=lambda _: "hello") as server:
        found = await measured(server, reads=READS)
    assert found.json_schema is SchemaSupport.IGNORED
    assert (found.reads_images, found.reads_pdf) == (False, False)
    schema, long, reads = found.warnings
    assert (found.reads_long, "is not read whole" in long) == (False, True)
    assert "does not enforce JSON schemas" in schema
    assert "reads nothing: set reads: []" in reads


async def test_a_server_that_refuses_schemas_pictures_and_streams_is_measured_too() -> None:
    def without_schemas(seen: SeenRequest) -> str:
        if seen.schema is not None or seen.streamed:
            raise RefusalError(400, "Unrecognized request argument")
        return reading(seen)

    chat = ChatCompletions(reads_images=False, reads_pdf=False)
    async with LanguageModelServer(key=KEY, answer=without_schemas, chat=chat) as server:
        found = await measured(server)
    assert found.json_schema is SchemaSupport.REFUSED
    assert (found.first_part_ms, found.reads_images, found.reads_pdf) == (None, False, False)
    assert ["stream" in found.warnings[0], "schemas" in found.warnings[1]] == [True, True]


async def test_a_limit_is_waited_for_and_the_first_error_ends_the_test() -> None:
    async with LanguageModelServer(key=KEY, answer=reading) as server:
        server.script = [Fault(Lie.RATE_LIMITED, "0")]
        assert (await measured(server, reads=READS)).warnings == []
        server.script = [Lie.SERVER_ERROR]
        with pytest.raises(UpstreamError):
            await measured(server)
        server.script = [Lie.UNREADABLE_REQUEST]
        with pytest.raises(InputRefused):
            await measured(server)
        server.key = "another"
        with pytest.raises(Misconfigured) as raised:
            await measured(server)
    assert KEY not in raised.value.message


def test_the_pictures_of_the_test_show_what_it_expects() -> None:
    with pymupdf.open(stream=page_with(NUMBER), filetype="pdf") as pdf:
        assert NUMBER in pdf[0].get_text()
    with Image.open(io.BytesIO(red())) as picture:
        assert picture.convert("RGB").getpixel((9, 9)) == (208, 16, 16)
