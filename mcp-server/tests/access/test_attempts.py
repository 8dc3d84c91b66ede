"""Wrong tokens: whose are wrong too often waits, each address by itself."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from latent_core.domain.errors import RateLimited
from latent_gateway.auth.attempts import MOST_ADDRESSES, MOST_FAILURES, SECONDS_A_FAILURE, Attempts
from tests.support import REPOSITORY


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def guess(tried: Attempts, address: str, times: int) -> None:
    for _ in range(times):
        tried.check(address)
        tried.failed(address)


def test_after_too_many_wrong_ones_an_address_waits_and_another_does_not() -> None:
    clock = Clock()
    tried = Attempts(clock)
    guess(tried, "10.0.0.1", MOST_FAILURES)
    with pytest.raises(RateLimited) as refused:
        tried.check("10.0.0.1")
    assert refused.value.details["retry_after"] == SECONDS_A_FAILURE
    tried.check("10.0.0.2")


def test_who_waits_as_long_as_told_may_try_again() -> None:
    clock = Clock()
    tried = Attempts(clock)
    guess(tried, "10.0.0.1", MOST_FAILURES)
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
    tried = Attempts(Clock())
    guess(tried, one, MOST_FAILURES)
    with pytest.raises(RateLimited):
        tried.check(other)
    tried.check("2001:db8:1:3::1")


@given(st.lists(st.tuples(st.text(max_size=50), st.floats(0, 100)), max_size=60))
def test_no_more_are_let_through_than_the_time_allows(steps: list[tuple[str, float]]) -> None:
    clock = Clock()
    tried = Attempts(clock)
    let_through = 0
    told: set[int] = set()
    for address, pause in steps:
        clock.now += pause
        tried.failed(address)
        try:
            tried.check("guesser")
        except RateLimited as refused:
            told.add(refused.details["retry_after"])
        else:
            let_through += 1
            tried.failed("guesser")
    assert all(1 <= seconds <= SECONDS_A_FAILURE for seconds in told)
    assert let_through <= MOST_FAILURES + (clock.now - 1000.0) / SECONDS_A_FAILURE + 1


def test_what_is_remembered_is_bounded() -> None:
    tried = Attempts(Clock())
    for number in range(MOST_ADDRESSES + 500):
        tried.failed(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(tried._failures) == MOST_ADDRESSES


def test_the_alert_on_wrong_tokens_hears_of_one_address_that_guesses_without_end() -> None:
    """Only what is judged is counted as AUTH; what is told to wait is RATE_LIMIT."""
    alerts = (REPOSITORY / "docker" / "alerts.yml").read_text("utf-8")
    (asked,) = re.findall(r'code="AUTH"\}\[10m\]\)\) > ([\d.]+)', alerts)
    assert float(asked) < 1 / SECONDS_A_FAILURE
