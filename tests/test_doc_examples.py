"""Every command and code block of README and docs is read by the code that it is meant for."""

from __future__ import annotations

from pathlib import Path

import pytest

from latent_core.domain.manifest.model import is_installable, is_local
from latent_core.models.embedding.rate import TextRate
from latent_core.models.embedding.resolve import EmbedderRegistry
from latent_core.models.llm.resolve import LanguageModels
from latent_core.models.providers.entry import Kind
from latent_core.models.providers.registry import HAS_LANGUAGE_MODELS, TEXTS_PER_MINUTE, Providers
from latent_core.models.rerank.resolve import Rerankers
from tests.support import REPOSITORY
from tests.support.doc_examples.checks import page_problems
from tests.support.doc_examples.data import EmbedderExample, embedders_in, manifests_in
from tests.support.doc_examples.extras import extra_problems
from tests.support.doc_examples.pages import Page, all_pages, read_page

PAGES = all_pages()


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_the_examples_of_a_page_are_valid(page: Page) -> None:
    assert page_problems(page) == []


def test_all_kinds_of_examples_are_found() -> None:
    blocks = [block.language for page in PAGES for block in page.blocks()]
    assert {"sh", "python", "yaml", "json"} <= set(blocks)
    assert len(blocks) > 40
    assert sum(span.text.startswith("latent ") for page in PAGES for span in page.spans()) > 60


def test_the_readme_is_short_and_names_the_first_commands() -> None:
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 120
    assert max(map(len, text.splitlines())) <= 120
    for command in (
        "uvx --from latent-containers latent up",
        "latent search",
        "latent connect claude-code",
        "make smoke",
        "make test",
    ):
        assert f"\n{command}" in text


@pytest.mark.parametrize("package", ["core", "workers", "client", "cli", "mcp-server"])
def test_messages_name_the_distribution_and_its_extras(package: str) -> None:
    files = [REPOSITORY / ".env.example", *(REPOSITORY / package / "src").glob("**/*.py")]
    found = {file.name: extra_problems(file.read_text(encoding="utf-8")) for file in files}
    assert {name: problems for name, problems in found.items() if problems} == {}


EMBEDDINGS = list(
    embedders_in(read_page(REPOSITORY / "docs" / "how-to" / "embeddings.md").blocks())
)


@pytest.mark.parametrize(
    "example", EMBEDDINGS, ids=[f"{n}-{one.manifest.embedder}" for n, one in enumerate(EMBEDDINGS)]
)
async def test_an_example_of_an_embedder_is_complete(
    example: EmbedderExample, tmp_path: Path
) -> None:
    settings, manifest = example.settings_in(tmp_path), example.manifest
    registry, rerankers = EmbedderRegistry(settings, tmp_path), Rerankers.of(settings)
    try:
        missing = registry.lacking(manifest.embedder)
        if is_installable(manifest.embedder):  # the page installs it first
            assert missing is not None
            assert "latent models add nomic-ai/" in missing
            return
        assert missing is None
        stated = manifest.dims or is_local(manifest.embedder)
        known = manifest if stated else manifest.model_copy(update={"dims": 8})
        model = registry.for_space(registry.model_of(known)).model
        assert model.embedder == manifest.embedder
        assert model.reads_images is ("image" in manifest.modalities)
        provider = manifest.retrieval.rerank.provider
        assert provider == "none" or rerankers.offered(provider)
        rate = registry.rate_of(manifest.embedder)
        assert rate is None or rate[0] > TEXTS_PER_MINUTE
    finally:
        await registry.close()
        await rerankers.close()


def test_the_examples_of_embedders_cover_all_kinds(tmp_path: Path) -> None:
    kinds = set()
    remote = [example for example in EMBEDDINGS if not is_local(example.manifest.embedder)]
    for example in remote:
        registry = EmbedderRegistry(example.settings_in(tmp_path), tmp_path)
        found = registry.of_provider(example.manifest.embedder)
        assert found is not None
        kinds.add(found.provider.kind)
    assert kinds == set(Kind) - {Kind.ANTHROPIC}
    assert sum(example.providers is None for example in remote) == 1


LANGUAGE_MODELS = [
    example
    for example in manifests_in(read_page(REPOSITORY / "docs" / "models.md").blocks())
    if example.providers is not None
]


@pytest.mark.parametrize("example", LANGUAGE_MODELS, ids=lambda one: one.manifest.ask.provider)
async def test_an_example_of_a_language_model_is_complete(
    example: EmbedderExample, tmp_path: Path
) -> None:
    providers = Providers.of(example.settings_in(tmp_path))
    models = LanguageModels(providers, lambda _, n: TextRate(n))
    models.check(example.manifest)
    name = example.manifest.ask.provider
    assert name is not None
    assert models.named(name).model.name == name
    await models.close()


def test_the_examples_of_language_models_cover_all_kinds(tmp_path: Path) -> None:
    assert len(LANGUAGE_MODELS) == 5
    kinds = {
        found.provider.kind
        for one in LANGUAGE_MODELS
        if (found := Providers.of(one.settings_in(tmp_path)).find(one.manifest.ask.provider or ""))
    }
    assert kinds == HAS_LANGUAGE_MODELS


def block(language: str, *lines: str) -> str:
    return "\n".join([f"```{language}", *lines, "```"])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (block("sh", "latent search lamp --containers notes"), "No such option: --containers"),
        (block("sh", "latent serach lamp"), "no command 'serach'"),
        (block("sh", "latent backup everything"), "No such command 'everything'"),
        (block("sh", "latent jobs show"), "Missing argument"),
        (block("sh", "latent jobs show seven"), "a valid integer"),
        (block("sh", "latent connect emacs"), "'emacs' is not one of"),
        (block("sh", "git log | latent remember - -c notes --pinned"), "No such option: --pinned"),
        (block("sh", 'export T="$(latent token creat you)"'), "No such command 'creat'"),
        (block("sh", "uvx --from latent-containers latent up --prot 1"), "No such option: --prot"),
        ("Run `uvx latent-containers@latest`.", "latent-containers is no command"),
        (block("sh", "docker compose exec gateway latent docter"), "no command 'docter'"),
        (block("sh", "docker compose up --scale wroker=4"), "no service wroker"),
        (block("sh", "make smoek"), "no target smoek"),
        (block("sh", "make up STAK=compose"), "no variable STAK"),
        (block("sh", "python -m benchmarks.runs"), "no module benchmarks.runs"),
        (block("sh", "python -m benchmarks.run --onyl search"), "no option --onyl"),
        (block("sh", 'latent search x --filter \'{"pathh": "*.py"}\''), "the filter is refused"),
        (block("sh", "latnet up"), "not known to this check"),
        (block("sh", 'latent search "lamp'), "a quote is not closed"),
        (block("sh", "curl -s http://127.0.0.1:7801/v1/find"), "no route GET /v1/find"),
        (
            block("sh", "curl http://127.0.0.1:7801/v1/search \\", """  -d '{"querry": "lamp"}'"""),
            "the body is refused",
        ),
        (block("python", "async with x() as y: pass"), "'async with' outside async function"),
        (block("python", "from latent_client import Client"), "latent_client has no Client"),
        (block("python", "print(token)"), "token is not defined"),
        (
            block("python", "from latent_client import SyncClient", "SyncClient('', '').find()"),
            "SyncClient('', '') has no find",
        ),
        (
            block(
                "python",
                "from latent_client import SyncClient",
                "with SyncClient('http://h', 't') as memory:",
                "    memory.find('lamp')",
            ),
            "memory has no find",
        ),
        (
            block(
                "python",
                "from latent_core.wire.search import SearchRequest",
                "SearchRequest(containers=[], query='lamp', top_k=3, tok_k=3)",
            ),
            "tok_k",
        ),
        (block("yaml", "id: notes", "name: Notes", "embeder: local"), "embeder"),
        (block("yaml", "retrieval:", "  mode_default: best"), "mode_default"),
        (block("json", '{"a": 1,}'), "not JSON"),
        (block("json", '{"queries": [{"id": "a"}]}'), "query"),
        (block("env", "LLC_EMBED_URL=http://h"), "no setting LLC_EMBED_URL"),
        (block("env", "LLC_PORT=seventy"), "LLC_PORT"),
        (block("fish", "latent up"), "'fish' are not checked"),
        ("Run `latent doctor --mend`.", "No such option: --mend"),
        ("Set `LLC_SEARCH_TIMEOUT`.", "no setting LLC_SEARCH_TIMEOUT"),
        ("It is `GET /v1/container/{id}`.", "no route GET /v1/container/{id}"),
        ("Call `client.export_pages_of(x)`.", "no method export_pages_of"),
        ("Call `sync(client, x)`.", "no function sync"),
        ("See [there](nowhere.md).", "no nowhere.md"),
        ("See [there](../docs/nowhere.md#x).", "no ../docs/nowhere.md#x"),
        ("`pip install 'latent-containers[orc]'`", "latent-containers has no extra orc"),
        ("`pip install 'latent-workers[ocr]'`", "write latent-containers"),
    ],
)
def test_a_wrong_example_is_a_problem(tmp_path: Path, text: str, problem: str) -> None:
    assert problem in "\n".join(page_problems(Page(tmp_path / "page.md", text)))


@pytest.mark.parametrize(
    "text",
    [
        block(
            "sh", "latent jobs show ID", "latent jobs show <job id>   # the id of a line of `list`"
        ),
        block(
            "sh", "LLC_PORT=7802 latent up --verbose &", "cat notes.md | latent ingest - -c notes"
        ),
        block("sh", "latent ingest - -c notes < report.txt > log.txt"),
        "`latent backup fetch`, `latent jobs`, `latent …` and `make up STACK=compose` are commands.",
    ],
)
def test_abbreviations_and_placeholders_are_no_problem(tmp_path: Path, text: str) -> None:
    assert page_problems(Page(tmp_path / "page.md", text)) == []
