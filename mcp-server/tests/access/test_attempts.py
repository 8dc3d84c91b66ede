"""Wrong tokens: whose are wrong too often waits, each address by itself."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from latent_core.domain.errors import RateLimited
from latent_gateway.auth.tokens import (
    MAX_ADDRESSES,
    MAX_FAILURES,
    SECONDS_PER_FAILURE,
    FailedAttempts,
)
from tests.support import REPOSITORY


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def guess(tried: FailedAttempts, address: str, times: int) -> None:
    for _ in range(times):
        tried.check(address)
        tried.failed(address)


def test_after_too_many_wrong_ones_an_address_waits_and_another_does_not() -> None:
    clock = Clock()
    tried = FailedAttempts(clock)
    guess(tried, "10.0.0.1", MAX_FAILURES)
    with pytest.raises(RateLimited) as refused:
        tried.check("10.0.0.1")
    assert refused.value.details["retry_after"] == SECONDS_PER_FAILURE
    tried.check("10.0.0.2")


def test_an_address_may_try_again_after_retry_after() -> None:
    clock = Clock()
    tried = FailedAttempts(clock)
    guess(tried, "10.0.0.1", MAX_FAILURES)
    with pytest.raises(RateLimited) as refused:
        tried.check("10.0.0.1")
    clock.now += refused.value.details["retry_after"]
    tried.check("10.0.0.1")
    tried.failed("10.0.0.1")
    with pytest.raises(RateLimited):
        tried.check("10.0.0.1")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80::2"),
    ],
)
def test_addresses_of_one_client_count_together(one: str, other: str) -> None:
    tried = FailedAttempts(Clock())
    guess(tried, one, MAX_FAILURES)
    with pytest.raises(RateLimited):
        tried.check(other)
    tried.check("2001:db8:1:3::1")


@given(st.lists(st.tuples(st.text(max_size=50), st.floats(0, 100)), max_size=60))
def test_no_more_are_let_through_than_the_time_allows(steps: list[tuple[str, float]]) -> None:
    clock = Clock()
    tried = FailedAttempts(clock)
    let_through = 0
    retry_afters: set[int] = set()
    for address, pause in steps:
        clock.now += pause
        tried.failed(address)
        try:
            tried.check("guesser")
        except RateLimited as refused:
            retry_afters.add(refused.details["retry_after"])
        else:
            let_through += 1
            tried.failed("guesser")
    assert all(1 <= seconds <= SECONDS_PER_FAILURE for seconds in retry_afters)
    assert let_through <= MAX_FAILURES + (clock.now - 1000.0) / SECONDS_PER_FAILURE + 1


def test_what_is_remembered_is_bounded() -> None:
    tried = FailedAttempts(Clock())
    for number in range(MAX_ADDRESSES + 500):
        tried.failed(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(tried._counts) == MAX_ADDRESSES


def test_the_alert_on_wrong_tokens_hears_of_one_address_that_guesses_without_end() -> None:
    """Only what is judged is counted as AUTH; what is told to wait is RATE_LIMIT."""
    alerts = (REPOSITORY / "docker" / "alerts.yml").read_text("utf-8")
    (threshold,) = re.findall(r'code="AUTH"\}\[10m\]\)\) > ([\d.]+)', alerts)
    assert float(threshold) < 1 / SECONDS_PER_FAILURE
