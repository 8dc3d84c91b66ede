"""Fusion: rules that must hold whatever the lists hold."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings, strategies as st

from latent_core.domain.manifest.model import Fusion, FusionMethod
from latent_core.search.fuse import ABOVE, BELOW, RankedList, fuse
from latent_core.search.shares import influence


def _ranked(pairs: list[tuple[int, float]]) -> RankedList[int]:
    best_first = sorted(pairs, key=lambda p: (-p[1], p[0]))
    return RankedList([o for o, _ in best_first], [s for _, s in best_first])


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
    found: dict[str, RankedList[int]], method: FusionMethod
) -> None:
    fused = fuse(found, Fusion(method=method))
    keys = [f.key for f in fused]
    assert sorted(keys) == sorted({key for r in found.values() for key in r.keys})
    assert all(-1e-12 <= f.score <= 1 + 1e-12 for f in fused)
    assert [f.score for f in fused] == sorted((f.score for f in fused), reverse=True)


@settings(max_examples=80)
@given(lists, methods, st.randoms(use_true_random=False))
def test_the_order_of_the_channels_does_not_matter(
    found: dict[str, RankedList[int]], method: FusionMethod, rng: random.Random
) -> None:
    names = list(found)
    rng.shuffle(names)
    assert fuse({n: found[n] for n in names}, Fusion(method=method)) == fuse(
        found, Fusion(method=method)
    )


def test_the_best_of_every_list_scores_1() -> None:
    one = RankedList([7, 3], [9.0, 1.0])
    assert fuse({"bm25": one, "vector": one}, Fusion())[0].score == pytest.approx(1.0)


def test_ranks_count_from_one_and_k_is_the_manifests() -> None:
    fused = fuse({"bm25": RankedList([1, 2], [5.0, 4.0])}, Fusion(k=10))
    assert [f.rrf for f in fused] == pytest.approx([1.0, 11 / 12])


def test_a_channel_of_weight_0_changes_no_order_among_the_others() -> None:
    how = Fusion(weights={"vector": 0.0})
    fused = fuse(
        {"bm25": RankedList([1, 2], [5.0, 4.0]), "vector": RankedList([2, 1], [0.9, 0.1])}, how
    )
    assert [f.key for f in fused] == [1, 2]


def test_equal_scores_are_ordered_by_key() -> None:
    fused = fuse({"bm25": RankedList([9], [1.0]), "vector": RankedList([4], [1.0])}, Fusion())
    assert [f.key for f in fused] == [4, 9]


def test_no_lists_fuse_to_nothing() -> None:
    assert fuse({}, Fusion()) == []


@pytest.mark.parametrize("scores", [[3.0], [2.0, 2.0]])
def test_dbsf_gives_what_lies_at_the_mean_to_a_list_that_says_nothing(scores: list[float]) -> None:
    fused = fuse(
        {"bm25": RankedList(list(range(len(scores))), scores)}, Fusion(method=FusionMethod.DBSF)
    )
    assert {f.score for f in fused} == {BELOW / (BELOW + ABOVE)}


def test_dbsf_tells_hits_far_above_the_others_apart() -> None:
    words = RankedList(list(range(60)), [60.0, 40.0, *[1.0] * 58])
    meaning = RankedList([1, 0], [0.9, 0.8])
    best, second, *_ = fuse({"bm25": words, "vector": meaning}, Fusion(method=FusionMethod.DBSF))
    assert (best.key, second.key) == (0, 1)
    assert best.score > second.score


def test_weighted_is_the_mean_of_min_max_scores() -> None:
    how = Fusion(method=FusionMethod.WEIGHTED, weights={"vector": 0.6, "bm25": 0.4})
    fused = fuse(
        {"vector": RankedList([1, 2, 3], [0.9, 0.5, 0.1]), "bm25": RankedList([3, 2], [8.0, 4.0])},
        how,
    )
    assert {f.key: pytest.approx(f.score) for f in fused} == {1: 0.6, 2: 0.3, 3: 0.4}


AUTO = Fusion(method=FusionMethod.AUTO)


def _order(found: dict[str, RankedList[int]], how: Fusion = AUTO) -> list[int]:
    return [f.key for f in fuse(found, how)]


def test_auto_keeps_the_hit_that_one_channel_is_certain_of() -> None:
    words = RankedList(list(range(60)), [20.0, *[4.0] * 59])
    meaning = RankedList(list(range(99, 39, -1)), [0.5 - n / 1000 for n in range(60)])
    assert _order({"bm25": words, "vector": meaning})[0] == 0
    assert _order({"bm25": words, "vector": meaning}, Fusion())[0] != 0
    alike = RankedList(list(range(60)), [4.0 - n / 1000 for n in range(60)])
    certain = RankedList(list(range(99, 39, -1)), [0.8, *[0.3] * 59])
    assert _order({"bm25": alike, "vector": certain})[0] == 99


@settings(max_examples=100)
@given(lists, st.floats(0.1, 50))
def test_auto_has_no_unit_for_keyword_scores(
    found: dict[str, RankedList[int]], unit: float
) -> None:
    words = {n: r for n, r in found.items() if n == "bm25"}
    scaled = {n: RankedList(r.keys, [s * unit for s in r.scores]) for n, r in words.items()}
    assert [f.score for f in fuse(scaled, AUTO)] == pytest.approx(
        [f.score for f in fuse(words, AUTO)]
    )


cosines = st.dictionaries(st.integers(0, 30), st.floats(0, 1), min_size=2, max_size=20).map(
    lambda d: _ranked(list(d.items()))
)


@settings(max_examples=100)
@given(cosines, st.floats(0.1, 1))
def test_auto_reads_embedders_with_high_cosines_as_it_reads_others(
    found: RankedList[int], narrow: float
) -> None:
    higher = RankedList(found.keys, [1 - narrow * (1 - s) for s in found.scores])
    assert [f.score for f in fuse({"vector": higher}, AUTO)] == pytest.approx(
        [f.score for f in fuse({"vector": found}, AUTO)], abs=1e-6
    )


@settings(max_examples=150)
@given(lists)
def test_auto_puts_what_is_better_in_every_channel_first(found: dict[str, RankedList[int]]) -> None:
    scores = {n: dict(zip(r.keys, r.scores, strict=True)) for n, r in found.items()}
    fused = {f.key: f.score for f in fuse(found, AUTO)}
    for one in fused:
        for other in fused:
            if all(one in its and its[one] >= its.get(other, -1) for its in scores.values()):
                assert fused[one] >= fused[other] - 1e-12


def test_auto_multiplies_its_weights_with_those_of_the_manifest() -> None:
    words, meaning = RankedList([1, 2], [5.0, 4.0]), RankedList([2, 1], [0.9, 0.1])
    found = {"bm25": words, "vector": meaning}
    assert _order(found) == [2, 1]
    foreign = AUTO.model_copy(update={"weights": {"vector": 0.01}})
    assert _order(found, foreign) == [1, 2]
    by_vectors = AUTO.model_copy(update={"weights": {"bm25": 0.0}})
    assert [f.score for f in fuse(found, by_vectors)] == pytest.approx([0.8 / 0.9, 0.0])


def test_auto_orders_what_only_weak_vectors_find_behind_the_keyword_hits() -> None:
    words = RankedList([1, 2, 3], [9.0, 6.0, 3.0])
    meaning = RankedList([8, 9, 3], [0.7, 0.6, 0.1])
    weak = AUTO.model_copy(update={"weights": {"vector": 0.01}})
    assert _order({"bm25": words, "vector": meaning}, weak) == [1, 2, 3, 8, 9]


def test_a_deeper_round_keeps_the_order_of_auto() -> None:
    rng = random.Random(7)
    numbers = rng.sample(range(400), 400)
    words = [30.0 / (n + 1) for n in range(200)]
    meaning = [0.9 - n / 400 for n in range(200)]
    first = {
        "bm25": RankedList(numbers[:100], words[:100]),
        "vector": RankedList(numbers[50:150], meaning[:100]),
    }
    deeper = {
        "bm25": RankedList(numbers[:200], words),
        "vector": RankedList(numbers[50:250], meaning),
    }
    assert _order(deeper)[:100] == _order(first)[:100]


def test_auto_counts_a_second_exact_match_less_than_the_first() -> None:
    matches = RankedList([1, 2], [40.0, 2.0])
    meaning = RankedList([2, 1], [0.8, 0.2])
    assert _order({"exact": matches, "vector": meaning}) == [2, 1]


def test_auto_tells_how_far_each_channel_moves_a_candidate() -> None:
    certain, vague = [0.9, 0.2, 0.1], [5.0, 5.0]
    found = influence({"vector": certain, "bm25": vague}, {})
    spans = {"vector": 1.5 * 0.8 / 0.9, "bm25": 0.5}
    assert found == pytest.approx({n: s / sum(spans.values()) for n, s in spans.items()})
    assert found["vector"] > influence({"vector": certain, "bm25": vague}, {"bm25": 3})["vector"]
    assert influence({"bm25": [], "vector": []}, {}) == {}
