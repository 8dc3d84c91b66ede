"""Fusion: rules that must hold whatever the lists hold."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings, strategies as st

from latent_core.domain.manifest import Fusion, FusionMethod
from latent_gateway.search.fuse import ABOVE, BELOW, Ranked, fuse


def _ranked(pairs: list[tuple[int, float]]) -> Ranked:
    best_first = sorted(pairs, key=lambda p: (-p[1], p[0]))
    return Ranked([o for o, _ in best_first], [s for _, s in best_first])


lists = st.dictionaries(
    st.sampled_from(["bm25", "vector", "exact"]),
    st.dictionaries(st.integers(0, 30), st.floats(-1, 50, allow_nan=False), max_size=20).map(
        lambda d: _ranked(list(d.items()))
    ),
    max_size=3,
)
methods = st.sampled_from(list(FusionMethod))


@settings(max_examples=150)
@given(lists, methods)
def test_every_candidate_appears_once_with_a_score_between_0_and_1(
    found: dict[str, Ranked], method: FusionMethod
) -> None:
    fused = fuse(found, Fusion(method=method))
    ords = [f.ord for f in fused]
    assert sorted(ords) == sorted({o for r in found.values() for o in r.ords})
    assert all(-1e-12 <= f.score <= 1 + 1e-12 for f in fused)
    assert [f.score for f in fused] == sorted((f.score for f in fused), reverse=True)


@settings(max_examples=80)
@given(lists, methods, st.randoms(use_true_random=False))
def test_the_order_of_the_channels_does_not_matter(
    found: dict[str, Ranked], method: FusionMethod, rng: random.Random
) -> None:
    names = list(found)
    rng.shuffle(names)
    assert fuse({n: found[n] for n in names}, Fusion(method=method)) == fuse(
        found, Fusion(method=method)
    )


def test_the_best_of_every_list_scores_1() -> None:
    one = Ranked([7, 3], [9.0, 1.0])
    assert fuse({"bm25": one, "vector": one}, Fusion())[0].score == pytest.approx(1.0)


def test_ranks_count_from_one_and_k_is_the_manifests() -> None:
    fused = fuse({"bm25": Ranked([1, 2], [5.0, 4.0])}, Fusion(k=10))
    assert [f.rrf for f in fused] == pytest.approx([1.0, 11 / 12])


def test_a_channel_of_weight_0_changes_no_order_among_the_others() -> None:
    how = Fusion(weights={"vector": 0.0})
    fused = fuse({"bm25": Ranked([1, 2], [5.0, 4.0]), "vector": Ranked([2, 1], [0.9, 0.1])}, how)
    assert [f.ord for f in fused] == [1, 2]


def test_equal_scores_are_ordered_by_ord() -> None:
    fused = fuse({"bm25": Ranked([9], [1.0]), "vector": Ranked([4], [1.0])}, Fusion())
    assert [f.ord for f in fused] == [4, 9]


def test_no_lists_fuse_to_nothing() -> None:
    assert fuse({}, Fusion()) == []


@pytest.mark.parametrize("scores", [[3.0], [2.0, 2.0]])
def test_dbsf_gives_what_lies_at_the_mean_to_a_list_that_says_nothing(scores: list[float]) -> None:
    fused = fuse(
        {"bm25": Ranked(list(range(len(scores))), scores)}, Fusion(method=FusionMethod.DBSF)
    )
    assert {f.score for f in fused} == {BELOW / (BELOW + ABOVE)}


def test_dbsf_tells_hits_far_above_the_others_apart() -> None:
    words = Ranked(list(range(60)), [60.0, 40.0, *[1.0] * 58])
    meaning = Ranked([1, 0], [0.9, 0.8])
    best, second, *_ = fuse({"bm25": words, "vector": meaning}, Fusion(method=FusionMethod.DBSF))
    assert (best.ord, second.ord) == (0, 1)
    assert best.score > second.score


def test_weighted_is_the_mean_of_min_max_scores() -> None:
    how = Fusion(method=FusionMethod.WEIGHTED, weights={"vector": 0.6, "bm25": 0.4})
    fused = fuse(
        {"vector": Ranked([1, 2, 3], [0.9, 0.5, 0.1]), "bm25": Ranked([3, 2], [8.0, 4.0])}, how
    )
    assert {f.ord: pytest.approx(f.score) for f in fused} == {1: 0.6, 2: 0.3, 3: 0.4}
