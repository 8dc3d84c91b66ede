"""What a manifest asks for and this installation has not: refused by name, or taken out of an archive's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from latent_core.domain.errors import Invalid
from latent_core.domain.manifest.language_models import MODEL_BLOCKS
from latent_core.domain.manifest.model import Manifest, check_offered, parse_manifest, settled
from latent_core.models.embedding.rate import TextRate
from latent_core.models.llm.resolve import LanguageModels
from latent_core.models.providers.registry import Providers
from latent_core.settings import Settings


def manifest(**keys: Any) -> Manifest:
    return parse_manifest({"id": "notes", "name": "Notes", **keys})


def in_bucket(name: str) -> Manifest:
    return manifest(storage={"blobs": {"bucket": name}})


@pytest.mark.parametrize("key", [*MODEL_BLOCKS])
def test_a_use_of_a_model_that_names_none_is_refused_with_the_remedy(key: str) -> None:
    with pytest.raises(Invalid, match=rf"{key}\.provider names no language model.*LLC_PROVIDERS"):
        check_offered(manifest(**{key: {"enabled": True}}), "ours")
    assert check_offered(manifest(**{key: {"provider": "work/m"}}), "ours") == []
    named = manifest(**{key: {"enabled": True, "provider": "work/m"}})
    assert check_offered(named, "ours") == []
    kept, skipped = settled(manifest(**{key: {"enabled": True}}, theme="lamps"))
    assert (kept, skipped) == (manifest(theme="lamps"), [f"{key}.enabled"])


@pytest.mark.parametrize("name", ["gpt", "/gpt", "work/"])
def test_a_language_model_is_named_with_its_provider(name: str) -> None:
    with pytest.raises(Invalid, match="names no language model: give <provider>/<model>"):
        manifest(ask={"provider": name})


def test_a_bucket_may_be_named_on_a_server() -> None:
    assert check_offered(in_bucket("theirs"), "ours") == []
    assert check_offered(manifest(), "ours") == []


def test_a_bucket_is_accepted_and_reported_as_unused_where_blobs_are_files() -> None:
    (issue,) = check_offered(in_bucket("theirs"), None)
    assert "storage.blobs.bucket has no effect" in issue.message
    assert "LLC_S3_ENDPOINT" in issue.message


def test_what_is_not_offered_is_taken_out_of_an_archives_manifest_and_the_rest_stays() -> None:
    manifest_given = manifest(
        storage={"blobs": {"bucket": "theirs"}}, summaries={"enabled": True}, theme="lamps"
    )
    kept, skipped = settled(manifest_given)
    assert skipped == ["summaries.enabled"]
    assert kept == manifest(storage={"blobs": {"bucket": "theirs"}}, theme="lamps")


def test_there_is_a_bucket_only_where_an_s3_server_is() -> None:
    assert Settings.model_construct(s3_bucket="ours", s3_endpoint=None).blob_bucket is None
    assert Settings.model_construct(s3_bucket="ours", s3_endpoint="h:1").blob_bucket == "ours"


ENTRIES = """\
providers:
- {name: work, kind: openai, key_file: key, price: 1}
- {name: here, kind: ollama}
- {name: eyes, kind: vllm, base_url: 'http://localhost:1', reads: [images]}
- {name: mind, kind: anthropic, key_file: key}
- {name: words, kind: voyage, key_file: key}
"""


@pytest.fixture
def known(tmp_path: Path) -> LanguageModels:
    (tmp_path / "key").write_text("sk-0", encoding="utf-8")
    (tmp_path / "providers.yaml").write_text(ENTRIES, encoding="utf-8")
    settings = Settings.model_construct(providers=tmp_path / "providers.yaml")
    return LanguageModels(Providers.of(settings), lambda _, n: TextRate(n))


@pytest.mark.parametrize(
    ("key", "provider", "message"),
    [
        ("summaries", "wrok/m", r"summaries\.provider: .* did you mean 'work/m'"),
        ("ask", "words/m", r"ask\.provider: .* kind voyage, which has no language models"),
        (
            "captions",
            "here/m",
            r"captions\.provider: .*'here' read no images.*add reads: \[images\]",
        ),
        ("extraction", "here/m", r"extraction\.provider: .*read no images or PDFs"),
        ("speech", "mind/m", r"speech\.provider: .*anthropic transcribe no speech"),
    ],
)
def test_a_block_is_refused_if_its_provider_is_unknown_or_cannot_do_it(
    known: LanguageModels, key: str, provider: str, message: str
) -> None:
    given = manifest(**{key: {"enabled": True, "provider": provider}}, theme="lamps")
    with pytest.raises(Invalid, match=message) as raised:
        known.check(given)
    assert raised.value.details["keys"] == [key]
    known.check(manifest(**{key: {"enabled": False, "provider": provider}}))
    assert known.settled(given) == (manifest(theme="lamps"), [f"{key}.enabled"])


@pytest.mark.parametrize(
    ("key", "provider"),
    [
        ("summaries", "here/m"),
        ("extraction", "eyes/m"),
        ("extraction", "mind/m"),
        ("captions", "work/m"),
        ("speech", "work/m"),
        ("ask", "mind/m"),
    ],
)
def test_a_block_whose_provider_can_do_it_is_accepted(
    known: LanguageModels, key: str, provider: str
) -> None:
    known.check(manifest(**{key: {"enabled": True, "provider": provider}}))


def test_a_limit_of_cost_needs_a_price(known: LanguageModels) -> None:
    limit = {"model_budget": {"cost": 5}}
    known.check(manifest(ask={"enabled": True, "provider": "work/m"}, **limit))
    with pytest.raises(Invalid, match=r"model_budget\.cost has no effect on ask.*input_price"):
        known.check(manifest(ask={"enabled": True, "provider": "here/m"}, **limit))
