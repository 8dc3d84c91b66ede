"""``latent models test`` as a command: table, JSON, exit codes, and no key anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import orjson
import pytest

from latent_cli.exits import FAILED, FOUND, USAGE
from latent_cli.main import run
from latent_core.models.providers.entry import Kind
from tests.support.servers.llm_answers import reading
from tests.support.servers.llm_server import LanguageModelServer
from tests.support.servers.provider_server import MODEL, ProviderServer

KEY = "sk-never-to-be-shown"


@pytest.fixture
async def server() -> AsyncIterator[ProviderServer]:
    async with ProviderServer(Kind.TEI, dims=32, key=KEY, window=254, facts=256) as running:
        yield running


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Writes the file of providers, and a key beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LLC_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("LLC_PROVIDERS", str(tmp_path / "providers.yaml"))
    (tmp_path / "key").write_text(KEY, encoding="utf-8")

    def written(entry: str) -> None:
        text = f"providers:\n- {{name: work, key_file: key, {entry}}}\n- {{name: mind, kind: anthropic}}\n"
        (tmp_path / "providers.yaml").write_text(text, encoding="utf-8")

    return written


async def called(*arguments: str) -> int:
    return await asyncio.to_thread(run, ["models", "test", *arguments])


async def test_it_prints_a_table_and_ends_with_0_if_all_is_well(
    server: ProviderServer, write: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    write(f"kind: tei, base_url: '{server.base_url}', window: 254, price: 0.02")
    assert await called(f"work/{MODEL}") == 0
    out, err = capsys.readouterr()
    for words in ("dims", "32", "254 tokens (reported by the server)", "are refused", "0.02 per"):
        assert words in out
    assert err == ""
    assert KEY not in out


async def test_what_should_be_changed_is_a_warning_and_exit_4(
    server: ProviderServer, write: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    write(f"kind: tei, base_url: '{server.base_url}'")
    assert await called(f"work/{MODEL}", "--json") == FOUND
    answer = orjson.loads(capsys.readouterr().out)
    assert (answer["dims"], answer["window"], answer["window_basis"]) == (32, 254, "reported")
    assert "set window of the provider 'work'" in answer["warnings"][0]


@pytest.mark.parametrize(
    ("name", "code", "expected"),
    [
        ("wrok/m", USAGE, "did you mean 'work/m'"),
        ("mind/claude", FAILED, "needs a key: set key_file of the provider 'mind'"),
        ("work/m", FAILED, "refuses connections"),
    ],
)
async def test_what_cannot_be_tested_ends_with_its_reason(
    write: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
    name: str,
    code: int,
    expected: str,
) -> None:
    write("kind: ollama, base_url: 'http://127.0.0.1:1'")
    assert await called(name) == code
    out, err = capsys.readouterr()
    assert expected in err
    assert KEY not in f"{out}{err}"


async def test_a_language_model_is_measured_and_its_entry_compared(
    write: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    async with LanguageModelServer(key=KEY, answer=reading) as server:
        entry = f"kind: openai, base_url: '{server.base_url}', input_price: 2, output_price: 8"
        write(f"{entry}, reads: [images, pdf]")
        assert await called("work/m", "--language-model") == 0
        out, err = capsys.readouterr()
        for words in ("a language model", "enforced", "PDFs", "2 read, 8 written", "cost"):
            assert words in out
        assert (err, "not read" in out, KEY in out) == ("", False, False)
        write(entry)
        assert await called("work/m", "--language-model", "--json") == FOUND
    answer = orjson.loads(capsys.readouterr().out)
    assert (answer["json_schema"], answer["reads_pdf"]) == ("enforced", True)
    assert "set reads: [images, pdf]" in answer["warnings"][0]
    assert "not read" not in str(answer)


async def test_a_provider_with_language_models_only_needs_no_option(
    write: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    async with LanguageModelServer(key=KEY, answer=reading) as server:
        write(f"kind: anthropic, base_url: '{server.base_url}'")
        assert await called("work/claude", "--json") == 0
        assert {seen.path for seen in server.seen} == {"/v1/messages"}
    assert orjson.loads(capsys.readouterr().out)["input_price"] is None


async def test_a_local_model_is_measured_without_any_server(
    write: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    write("kind: ollama")
    assert await called("local", "--json") == 0
    answer = orjson.loads(capsys.readouterr().out)
    assert (answer["kind"], answer["dims"], answer["window"]) == ("local", 384, 254)
    assert answer["truncates"] is False
    assert answer["tokens_per_second"] > 0


async def test_the_settings_are_shown_without_keys(
    write: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    write("kind: ollama")
    assert await asyncio.to_thread(run, ["config"]) == 0
    out = capsys.readouterr().out
    assert "providers.yaml" in out
    assert KEY not in out
