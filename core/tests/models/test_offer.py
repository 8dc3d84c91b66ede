"""What a manifest asks for and this installation has not: refused by name, or taken out of an archive's."""

from __future__ import annotations

from typing import Any

import pytest

from latent_core.domain.errors import Invalid
from latent_core.domain.manifest import model
from latent_core.domain.manifest.model import (
    MODEL_BLOCKS,
    Manifest,
    check_offered,
    parse_manifest,
    settled,
)
from latent_core.settings import Settings


def manifest(**keys: Any) -> Manifest:
    return parse_manifest({"id": "notes", "name": "Notes", **keys})


def in_bucket(name: str) -> Manifest:
    return manifest(storage={"blobs": {"bucket": name}})


@pytest.mark.parametrize("key", [*MODEL_BLOCKS])
def test_a_key_that_would_have_no_effect_is_refused_by_name(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = manifest(**{key: {"enabled": True, "provider": "work/m"}})
    monkeypatch.setattr(model, "SUPPORTED_BLOCKS", frozenset(MODEL_BLOCKS) - {key})
    with pytest.raises(Invalid, match=rf"{key}\.enabled is true, but this version"):
        check_offered(given, "ours")
    monkeypatch.setattr(model, "SUPPORTED_BLOCKS", frozenset(MODEL_BLOCKS))
    assert check_offered(given, "ours") == []


@pytest.mark.parametrize("key", [*MODEL_BLOCKS])
def test_a_use_of_a_model_that_names_none_is_refused_with_the_remedy(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "SUPPORTED_BLOCKS", frozenset(MODEL_BLOCKS))
    with pytest.raises(Invalid, match=rf"{key}\.provider names no language model.*LLC_PROVIDERS"):
        check_offered(manifest(**{key: {"enabled": True}}), "ours")
    assert check_offered(manifest(**{key: {"provider": "work/m"}}), "ours") == []
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
