"""Texts in languages that the embedder was not trained on: how much their vectors weigh."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from latent_core.db.conditions import FilterCondition
from latent_core.db.containers import Container, Space
from latent_core.domain.ids import SpaceId
from latent_core.domain.manifest.model import Fusion, FusionMethod, Manifest, Retrieval, SearchMode
from latent_core.search.plan import (
    CODE_WEIGHT,
    FOREIGN_WEIGHT,
    ContainerPlan,
    is_foreign,
    make_plan,
)
from latent_core.wire.containers import ContainerState
from latent_core.wire.search import SearchRequest

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SPANISH = {"spanish": 9, "english": 2}


def container(embedder: str, chunks: dict[str, int], how: Fusion = Fusion()) -> Container:
    manifest = Manifest(id="notas", name="Notas", retrieval=Retrieval(fusion=how))
    space = Space(SpaceId(1), "notas", embedder, "1", 3)
    return Container(
        "notas", manifest, "e", ContainerState.ACTIVE, space, tuple(chunks), NOW, NOW, chunks
    )


def fusion_of(
    of: Container,
    requested_fusion: Fusion | None = None,
    *,
    by_picture: bool = False,
    mode: SearchMode = SearchMode.HYBRID,
) -> Fusion:
    channels = ("bm25", "vector")
    return ContainerPlan(
        of,
        mode,
        channels,
        FilterCondition(),
        by_picture=by_picture,
        requested_fusion=requested_fusion,
    ).fusion


@pytest.mark.parametrize(
    ("embedder", "chunks", "foreign"),
    [
        ("local", SPANISH, True),
        ("local-int8", SPANISH, True),
        ("local", {"english": 5, "code": 5, "german": 9}, False),
        ("local", {"simple": 3}, True),
        ("local", {}, False),
        ("local:/models/multilingual", SPANISH, False),
        ("openai/text-embedding-3-small", SPANISH, False),
    ],
)
def test_texts_are_foreign_where_the_majority_is_in_languages_the_embedder_does_not_read(
    embedder: str, chunks: dict[str, int], foreign: bool
) -> None:
    assert is_foreign(container(embedder, chunks)) is foreign


def test_vectors_of_foreign_texts_weigh_less_unless_somebody_says_what_they_weigh() -> None:
    assert fusion_of(container("local", SPANISH)).weights == {"vector": FOREIGN_WEIGHT}
    requested_fusion = Fusion(method=FusionMethod.DBSF, weights={"exact": 2.0})
    assert fusion_of(container("local", SPANISH), requested_fusion) == Fusion(
        method=FusionMethod.DBSF, weights={"exact": 2.0, "vector": FOREIGN_WEIGHT}
    )
    weighted_fusion = Fusion(weights={"vector": 1.0})
    assert fusion_of(container("local", SPANISH), weighted_fusion) == weighted_fusion
    assert fusion_of(container("local", SPANISH, weighted_fusion)) == weighted_fusion


def test_vectors_of_source_code_weigh_more_with_auto() -> None:
    auto = Fusion(method=FusionMethod.AUTO)
    code = {"code": 5, "english": 4}
    assert fusion_of(container("local", code, auto)).weights == {"vector": CODE_WEIGHT}
    assert fusion_of(container("local", code)) == Fusion()
    assert fusion_of(container("local", {"code": 4, "english": 5}, auto)) == auto
    assert fusion_of(container("local", {}, auto)) == auto
    weighted = auto.model_copy(update={"weights": {"vector": 1.0}})
    assert fusion_of(container("local", code, weighted)) == weighted


def test_auto_counts_places_between_words_and_pictures() -> None:
    auto = Fusion(method=FusionMethod.AUTO)
    seeing = container("vllm/nomic-embed-multimodal-7b", {"english": 9}, auto)
    assert fusion_of(seeing) == auto
    assert fusion_of(seeing, mode=SearchMode.CROSSMODAL) == Fusion()
    assert fusion_of(seeing, by_picture=True) == Fusion()
    texts = container("local", {"english": 9}, auto)
    assert fusion_of(texts, mode=SearchMode.CROSSMODAL) == auto


def test_containers_with_different_methods_are_fused_by_places() -> None:
    auto = Fusion(method=FusionMethod.AUTO, weights={"exact": 2.0})
    one, other = container("local", {}, auto), container("local", {})

    def methods(*chosen: Container, requested: Fusion | None = None) -> list[Fusion]:
        request = SearchRequest(query="lamp", top_k=5, fusion=requested)
        by_id = {f"c{n}": c for n, c in enumerate(chosen)}
        return [part.fusion for part in make_plan(request, by_id, list(by_id), 2.0).containers]

    assert methods(one, one) == [auto, auto]
    assert methods(one, other) == [Fusion(weights={"exact": 2.0}), Fusion()]
    assert methods(one, other, requested=auto) == [auto, auto]


def test_others_are_fused_as_they_were() -> None:
    assert fusion_of(container("local", {"english": 9})) == Fusion()
    assert fusion_of(container("local", SPANISH), by_picture=True) == Fusion()
