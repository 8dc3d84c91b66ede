"""The shipped manifests: annotated, complete, and the same with and without their comments."""

from __future__ import annotations

import pytest

from latent_core.domain.errors import NotFound
from latent_core.domain.manifest.changes import (
    EFFECTS,
    SAME_TEXTS,
    SCOPES,
    ChangeEffect,
    differences,
    effect_of,
    keeps_texts,
    scope_of,
)
from latent_core.domain.manifest.model import Chunker, Manifest, Pdf, known_keys
from latent_core.domain.manifest.templates import KINDS, names, template
from latent_core.domain.manifest.yaml_reader import read_manifest


def test_kinds_of_content_are_offered_first() -> None:
    assert names() == [*KINDS, "expressionist-art", "samples"]


@pytest.mark.parametrize("name", KINDS)
def test_a_template_says_what_it_is_for_and_explains_its_keys(name: str) -> None:
    found = template(name)
    assert found.manifest.id == name
    assert found.about
    assert found.about in " ".join(line.strip("# ") for line in found.source.splitlines())
    keys = [line for line in found.source.splitlines() if line and not line.startswith("#")]
    explained = [line for line in found.source.splitlines() if "#" in line]
    assert len(explained) >= 6, f"{len(keys)} lines of keys"


@pytest.mark.parametrize("name", KINDS)
def test_a_template_under_another_id_keeps_its_comments_and_means_the_same(name: str) -> None:
    found = template(name)
    words = {"id": "mine", "theme": 'tides: high, and "low" # not a comment'}
    source = found.written(words)
    assert source.count("#") >= found.source.count("#")
    assert read_manifest(source) == found.filled(words)
    assert read_manifest(source).name == "mine"
    assert read_manifest(found.written({"id": "mine", "name": "My own"})).name == "My own"
    assert read_manifest(found.written({})) == found.manifest


def test_an_unknown_template_names_the_nearest_one() -> None:
    with pytest.raises(NotFound, match="did you mean 'pictures'"):
        template("picture")


def test_every_key_with_an_effect_is_a_key_of_manifests() -> None:
    for key in {*EFFECTS, *SCOPES, *SAME_TEXTS}:
        *above, last = key.split(".")
        assert last in known_keys(above), key


def test_differences_are_dotted_keys_with_their_effect_and_scope() -> None:
    old = Manifest(id="a", name="A")
    new = old.model_copy(
        update={
            "theme": "t",
            "embedder": "x",
            "chunker": Chunker(size=99),
            "pdf": Pdf(render_dpi=72),
        }
    )
    found = {change.key: effect_of(change.key) for change in differences(old, new)}
    assert found == {
        "theme": ChangeEffect.IMMEDIATE,
        "embedder": ChangeEffect.REEMBED,
        "chunker.size": ChangeEffect.RECHUNK,
        "pdf.render_dpi": ChangeEffect.RECHUNK,
    }
    assert [s.value for s in scope_of("pdf.max_pages")] == ["pdf"]
    assert len(scope_of("chunker.size")) > 10
    assert keeps_texts("pdf.render_dpi")
    assert not keeps_texts("chunker.size")
    assert not keeps_texts("ingest.transcripts.tools")
