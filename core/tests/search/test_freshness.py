"""Freshness by the contract's formula."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from latent_core.domain.manifest.model import Freshness
from latent_core.search.ranking import boosted, freshness_factor

NOW = datetime(2026, 11, 21, tzinfo=UTC)
ON = Freshness(enabled=True, decay_lambda=0.02)


@pytest.mark.parametrize(("days", "boost"), [(0, 2.0), (30, 1.55), (100, 1.14)])
def test_the_boost_is_that_of_the_contract(days: int, boost: float) -> None:
    modified = NOW - timedelta(days=days)
    assert boosted(1.0, freshness_factor(ON, NOW, modified, None)) == pytest.approx(
        boost, abs=0.005
    )


def test_the_source_s_own_time_comes_before_that_of_its_first_fetch() -> None:
    old, young = NOW - timedelta(days=1000), NOW
    assert freshness_factor(ON, NOW, old, young) < 0.001
    assert freshness_factor(ON, NOW, None, young) == 1.0


def test_what_is_dated_in_the_future_is_as_young_as_can_be() -> None:
    assert freshness_factor(ON, NOW, NOW + timedelta(days=400), None) == 1.0


def test_nothing_is_boosted_unless_the_manifest_says_so_and_a_time_is_known() -> None:
    assert freshness_factor(Freshness(), NOW, NOW, NOW) == 0.0
    assert freshness_factor(ON, NOW, None, None) == 0.0


@given(st.floats(0, 1e5), st.floats(0, 1e5), st.floats(0, 1))
def test_a_younger_source_never_counts_for_less(one: float, other: float, score: float) -> None:
    young, old = sorted((one, other))
    boosts = [
        boosted(score, freshness_factor(ON, NOW, NOW - timedelta(days=days), None))
        for days in (young, old)
    ]
    assert 2 * score >= boosts[0] >= boosts[1] >= score
