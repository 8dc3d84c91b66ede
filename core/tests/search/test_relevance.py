"""The relevance of a hit: what raises it, what it does not depend on, and what ``min_score`` keeps."""

from __future__ import annotations

from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, strategies as st

from latent_core.domain.errors import IssueCode
from latent_core.domain.vector_types import Matrix
from latent_core.search.judge import JudgedCandidates, RelevanceJudge
from latent_core.search.ranking import RankedCandidate
from latent_core.search.relevance import (
    MINILM_SCALE,
    CosineScale,
    WordScale,
    cosine_scale,
    is_weak,
    relevance,
)

measured = st.none() | st.floats(-2.0, 2.0)
scales = st.builds(
    lambda low, width: CosineScale(low, low + width), st.floats(-0.2, 0.8), st.floats(0.01, 0.6)
)


@given(nearness=measured, strength=st.none() | st.floats(0.0, 3.0))
def test_relevance_is_between_0_and_1_and_none_only_if_nothing_is_known(
    nearness: float | None, strength: float | None
) -> None:
    judged = relevance(nearness, strength)
    if nearness is None and strength is None:
        assert judged is None
    else:
        assert judged is not None
        assert 0.0 <= judged <= 1.0
        assert judged == relevance(nearness, strength)


@given(
    first=st.floats(-2.0, 2.0), second=st.floats(-2.0, 2.0), other=st.none() | st.floats(-2.0, 3.0)
)
def test_relevance_never_falls_when_one_channel_finds_a_better_match(
    first: float, second: float, other: float | None
) -> None:
    low, high = sorted((first, second))
    for weaker, stronger in (
        (relevance(low, other), relevance(high, other)),
        (relevance(other, low), relevance(other, high)),
    ):
        assert weaker is not None
        assert stronger is not None
        assert weaker <= stronger


@given(
    scale=scales, cosine=st.floats(-0.5, 1.0), factor=st.floats(0.1, 1.0), shift=st.floats(0.0, 0.8)
)
def test_a_model_that_puts_all_texts_nearer_together_gives_the_same_nearness(
    scale: CosineScale, cosine: float, factor: float, shift: float
) -> None:
    moved = CosineScale(scale.unrelated * factor + shift, scale.alike * factor + shift)
    assert moved.nearness(cosine * factor + shift) == pytest.approx(
        scale.nearness(cosine), abs=1e-6
    )


@given(
    attainable=st.floats(0.1, 100.0),
    terms=st.integers(1, 60),
    shares=st.tuples(*[st.floats(0, 1)] * 2),
)
def test_more_words_of_the_query_never_count_less(
    attainable: float, terms: int, shares: tuple[float, float]
) -> None:
    words = WordScale(attainable, terms)
    low, high = sorted(share * attainable for share in shares)
    assert words.strength(low) <= words.strength(high)


def test_the_same_share_of_a_long_question_counts_more() -> None:
    assert WordScale(10.0, 16).strength(4.0) > WordScale(10.0, 2).strength(4.0)


def texts(count: int, *, dims: int = 64, common: float = 0.0, seed: int = 7) -> Matrix:
    """Unit vectors; with ``common`` they lean to one side, as those of many models do."""
    rows = np.random.default_rng(seed).normal(size=(count, dims)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows[:, 0] += np.float32(common)
    unit: Matrix = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def test_the_scale_of_a_container_comes_from_its_own_chunks() -> None:
    numbers = np.arange(200)
    narrow = cosine_scale(texts(200), numbers, None)
    leaning = cosine_scale(texts(200, common=2.0), numbers, None)
    assert narrow is not None
    assert leaning is not None
    assert abs(narrow.unrelated) < 0.05
    assert leaning.unrelated > 0.7
    assert narrow.unrelated < narrow.alike < leaning.alike < 1.0


def test_windows_of_one_chunk_and_copies_of_a_text_are_no_pair() -> None:
    rows = texts(100)
    plain = cosine_scale(rows, np.arange(100), None)
    copied = cosine_scale(np.concatenate([rows, rows]), np.arange(200), None)
    near = np.concatenate([rows, rows + texts(100, seed=8) * np.float32(0.5)])
    near /= np.linalg.norm(near, axis=1, keepdims=True)
    windows = cosine_scale(near, np.arange(200) % 100, None)
    assert plain is not None
    assert copied is not None
    assert windows is not None
    assert copied.alike == pytest.approx(plain.alike, abs=0.02)
    assert windows.alike == pytest.approx(plain.alike, abs=0.02)


def test_a_container_of_few_chunks_has_the_usual_scale_of_its_model_or_none() -> None:
    few = texts(3)
    assert cosine_scale(few, np.arange(3), MINILM_SCALE) == MINILM_SCALE
    assert cosine_scale(few, np.arange(3), None) is None
    some = cosine_scale(texts(12), np.arange(12), MINILM_SCALE)
    assert some is not None
    assert some.unrelated == pytest.approx(MINILM_SCALE.unrelated, abs=0.02)


def judge_of(
    cosines: dict[int, float], scores: dict[int, float], *, complete: bool = False
) -> RelevanceJudge:
    return RelevanceJudge(
        cosines=cosines,
        cosine_end=None if complete else min(cosines.values()),
        cosine_scale=MINILM_SCALE,
        scores=scores,
        score_end=0.0 if complete else min(scores.values()),
        word_scale=WordScale(20.0, 3),
    )


def test_an_answer_is_relevant_and_nonsense_is_not() -> None:
    judge = judge_of({1: 0.62, 2: 0.12}, {1: 14.0}, complete=True)
    answer, nonsense = judge.relevances([1, 2])
    assert answer is not None
    assert nonsense is not None
    assert answer > 0.9
    assert nonsense < 0.1
    assert not is_weak(answer)
    assert is_weak(nonsense)


@given(
    cosines=st.lists(st.floats(-0.2, 1.0), min_size=2, max_size=8),
    scores=st.lists(st.floats(0.0, 20.0), min_size=2, max_size=8),
    bound=st.floats(0.0, 1.0),
)
def test_no_candidate_beyond_the_lists_reaches_a_relevance_that_their_ends_rule_out(
    cosines: list[float], scores: list[float], bound: float
) -> None:
    by_cosine = dict(enumerate(sorted(cosines, reverse=True)))
    by_score = dict(enumerate(sorted(scores, reverse=True)))
    known = judge_of(
        {n: c for n, c in by_cosine.items() if n < len(cosines) - 1},
        {n: s for n, s in by_score.items() if n < len(scores) - 1},
    )
    whole = judge_of(by_cosine, by_score)
    beyond = max(len(cosines), len(scores)) - 1
    (found,) = whole.relevances([beyond])
    assert found is not None
    if known.nothing_beyond_reaches(bound):
        assert found < bound


def candidate(chunk_no: int, judged: float | None) -> RankedCandidate:
    return RankedCandidate("c", chunk_no, UUID(int=chunk_no), 0.5, relevance=judged)


def test_what_min_score_omits_is_counted_and_the_best_of_it_named() -> None:
    none_left = JudgedCandidates([], [candidate(1, 0.31), candidate(2, 0.12)])
    (issue,) = none_left.issues(0.6)
    assert issue.code is IssueCode.NO_HITS
    assert "None of 2 matching documents reaches min_score 0.6" in issue.message
    assert "0.31" in issue.message
    some_left = JudgedCandidates([candidate(3, 0.9)], none_left.below)
    (issue,) = some_left.issues(0.6)
    assert issue.code is IssueCode.POLICY
    assert issue.details["below"] == 2
    assert JudgedCandidates([candidate(3, 0.9)], []).issues(0.6) == []
    assert some_left.issues(None) == []


def test_weaker_chunks_of_a_document_that_is_shown_are_no_omitted_document() -> None:
    weaker = candidate(3, 0.2)._replace(chunk_no=4)
    assert JudgedCandidates([candidate(3, 0.9)], [weaker]).issues(0.6) == []


def test_hits_without_a_relevance_stay_and_an_issue_says_so() -> None:
    (issue,) = JudgedCandidates([candidate(1, None)], []).issues(0.6)
    assert "no effect" in issue.message
