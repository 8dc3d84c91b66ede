"""Merging the channels of several containers: whose hit comes first."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given, strategies as st

from latent_core.domain.manifest.model import Fusion, FusionMethod
from latent_core.search.fuse import RankedList
from latent_core.search.merge import fused, merged
from latent_core.search.relevance import CosineScale


def container(name: str, model: str = "local") -> Any:
    return SimpleNamespace(id=name, space=SimpleNamespace(embedder=model, lineage="1"))


def retrieved(
    name: str, fusion: Fusion = Fusion(), model: str = "local", **lists: dict[int, float]
) -> Any:
    documents: dict[int, UUID] = {no: uuid4() for scores in lists.values() for no in scores}
    return SimpleNamespace(
        plan=SimpleNamespace(container=container(name, model), fusion=fusion),
        lists={
            channel: RankedList(list(scores), list(scores.values()))
            for channel, scores in lists.items()
        },
        documents=documents,
        cosine_scale=None,
    )


def order(*found: Any) -> list[tuple[str, int]]:
    return [(c.container_id, c.chunk_no) for c in fused(found)]


@pytest.mark.parametrize("method", [FusionMethod.RRF, FusionMethod.DBSF, FusionMethod.AUTO])
def test_the_best_hit_of_a_container_about_something_else_comes_after_the_right_ones(
    method: FusionMethod,
) -> None:
    how = Fusion(method=method)
    right = retrieved("right", how, bm25={1: 9.0, 2: 7.0}, vector={1: 0.8, 2: 0.7})
    other = retrieved("other", how, bm25={1: 1.0}, vector={1: 0.2})
    assert order(other, right) == [("right", 1), ("right", 2), ("other", 1)]


def test_one_container_is_fused_as_before() -> None:
    alone = retrieved("a", bm25={3: 2.0, 1: 1.0}, vector={1: 0.9, 3: 0.8})
    assert order(alone) == [("a", 1), ("a", 3)]
    assert fused([alone])[0].score == pytest.approx((1 / 61 + 1 / 62) / (2 / 61))


@pytest.mark.parametrize("method", list(FusionMethod))
def test_a_container_without_summaries_loses_nothing_to_one_whose_summaries_do_not_match(
    method: FusionMethod,
) -> None:
    with_channel = Fusion(method=method, weights={"summaries": 0.5})
    summarised = retrieved(
        "a", with_channel, bm25={1: 9.0, 2: 2.0}, vector={1: 0.9, 2: 0.3}, summaries={2: 0.1}
    )
    plain = retrieved("b", Fusion(method=method), bm25={1: 9.0}, vector={1: 0.9})
    scores = {(c.container_id, c.chunk_no): c.score for c in fused([summarised, plain])}
    assert scores["b", 1] == pytest.approx(scores["a", 1], rel=0.02), "the same texts"


def test_each_container_keeps_its_weights() -> None:
    foreign = Fusion(weights={"vector": 0.01})
    words = retrieved("foreign", foreign, bm25={1: 9.0}, vector={2: 0.9})
    meaning = retrieved("english", bm25={2: 8.0}, vector={2: 0.5})
    assert order(words, meaning) == [("foreign", 1), ("english", 2), ("foreign", 2)]


def test_a_container_whose_channel_failed_competes_with_the_others() -> None:
    failed = retrieved("failed", bm25={1: 9.0})
    whole = retrieved("whole", bm25={1: 5.0}, vector={1: 0.6})
    assert {c.container_id: c.score for c in fused([failed, whole])}["failed"] == pytest.approx(1.0)


@given(
    parts=st.lists(
        st.tuples(
            st.dictionaries(st.integers(0, 8), st.floats(0.1, 9), max_size=6),
            st.dictionaries(st.integers(0, 8), st.floats(-1, 1), max_size=6),
        ),
        min_size=2,
        max_size=4,
    ),
    common=st.lists(st.floats(0.1, 9), min_size=9, max_size=9),
    method=st.sampled_from(FusionMethod),
)
def test_each_container_keeps_the_order_that_it_has_alone(
    parts: list[tuple[dict[int, float], dict[int, float]]],
    common: list[float],
    method: FusionMethod,
) -> None:
    how = Fusion(method=method)
    found = [
        retrieved(f"c{n}", how, bm25=best_first(words), vector=best_first(meaning))
        for n, (words, meaning) in enumerate(parts)
    ]
    alone = [order(one) for one in found]
    for one in found:
        words = one.lists["bm25"]
        scores = [common[no] for no in words.keys]
        one.lists["bm25"] = RankedList(words.keys, words.scores, scores)
    together = fused(found)
    assert all(a.score >= b.score for a, b in pairwise(together))
    for n, own in enumerate(alone):
        its = [c for c in together if c.container_id == f"c{n}"]
        assert [(c.container_id, c.chunk_no) for c in its] == own
        scores = [c.score for c in fused([found[n]])]
        for (a, b), (one, next_one) in zip(pairwise(scores), pairwise(its), strict=True):
            assert a != b or one.score == next_one.score, "equal ones are shown by age"


def best_first(scores: dict[int, float]) -> dict[int, float]:
    return dict(sorted(scores.items(), key=lambda one: -one[1]))


def test_a_containers_places_are_those_of_the_statistics_of_all() -> None:
    """By its own statistics the second text is better, and by those of all the first."""
    one = retrieved("a", bm25={2: 5.0, 1: 4.0})
    one.lists["bm25"] = RankedList([2, 1], [5.0, 4.0], [1.0, 8.0])
    other = retrieved("b", bm25={1: 3.0})
    other.lists["bm25"] = RankedList([1], [3.0], [3.0])
    assert order(one, other) == [("a", 2), ("b", 1), ("a", 1)]


def test_the_order_of_the_containers_does_not_matter() -> None:
    one = retrieved("a", bm25={1: 3.0, 2: 2.0}, vector={2: 0.5})
    two = retrieved("b", bm25={1: 3.0}, vector={1: 0.5, 4: 0.4})
    assert order(one, two) == order(two, one)


def test_cosines_of_one_model_are_compared_as_they_are() -> None:
    lists = merged([retrieved("a", vector={1: 0.9, 2: 0.1}), retrieved("b", vector={1: 0.5})])
    assert lists["vector"].keys == [("a", 1), ("b", 1), ("a", 2)]
    assert lists["vector"].scores == [0.9, 0.5, 0.1]


def test_cosines_of_different_models_are_compared_on_the_scales_of_their_models() -> None:
    """0.84 says little of a model whose unrelated texts have 0.8, and 0.6 says much of one where they have 0.1."""
    low = retrieved("low", vector={1: 0.6, 2: 0.2, 3: 0.1})
    high = retrieved("high", model="e5", vector={1: 0.84, 2: 0.88})
    low.cosine_scale, high.cosine_scale = CosineScale(0.1, 0.7), CosineScale(0.8, 0.9)
    lists = merged([low, high])
    assert lists["vector"].keys == [("low", 1), ("high", 2), ("high", 1), ("low", 2), ("low", 3)]
    assert lists["vector"].scores == pytest.approx([0.6, 0.58, 0.34, 0.2, 0.1])


def test_a_model_without_a_scale_does_not_lead_by_its_high_cosines() -> None:
    known = retrieved("known", vector={1: 0.6, 2: 0.2, 3: 0.1})
    known.cosine_scale = CosineScale(0.1, 0.7)
    new = retrieved("new", model="e5", vector={1: 0.85, 2: 0.8})
    assert merged([known, new])["vector"].keys[0] == ("known", 1)
    single = retrieved("single", model="e5", vector={1: 0.85})
    assert merged([known, single])["vector"].keys[0] == ("known", 1)


def test_auto_reads_the_cosines_of_different_models_on_one_scale() -> None:
    auto = Fusion(method=FusionMethod.AUTO)
    vague = {n: 0.80 + 0.001 * n for n in range(20)}
    certain = {n: 0.10 + 0.001 * n for n in range(18)} | {98: 0.40, 99: 0.70}
    words = dict.fromkeys(range(20), 3.0)
    found = fused(
        [
            retrieved("vague", auto, "e5", bm25=words, vector=vague),
            retrieved("certain", auto, bm25={98: 3.0, 99: 3.0}, vector=certain),
        ]
    )
    assert [(c.container_id, c.chunk_no) for c in found[:2]] == [("certain", 99), ("certain", 98)]
    assert found[0].score > found[1].score > found[2].score


def test_equal_scores_are_ordered_by_rrf() -> None:
    how = Fusion(method=FusionMethod.WEIGHTED)
    found = retrieved("a", how, vector={0: 0.9, 1: 0.9, 3: 0.1}, bm25={9: 5.0, 8: 1.0})
    assert [(c.chunk_no, c.score) for c in fused([found])] == [
        (0, 0.5),
        (9, 0.5),
        (1, 0.5),
        (8, 0.0),
        (3, 0.0),
    ]
