"""Wrong tokens: who guesses waits, and who is known does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from latent_core.domain.errors import RateLimited
from latent_gateway.auth import attempts
from latent_gateway.auth.attempts import MOST_ADDRESSES, MOST_FAILURES, SECONDS_A_FAILURE, Attempts


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def guess(
    tried: Attempts, address: str, times: int, of: Callable[[int], bytes] = lambda n: b"%d" % n
) -> None:
    for number in range(times):
        tried.check(address, of(number))
        tried.failed(address, of(number))


def test_after_too_many_wrong_ones_an_address_waits_and_another_does_not() -> None:
    clock = Clock()
    tried = Attempts(clock)
    guess(tried, "10.0.0.1", MOST_FAILURES)
    with pytest.raises(RateLimited) as refused:
        tried.check("10.0.0.1", b"another")
    assert refused.value.details["retry_after"] == SECONDS_A_FAILURE
    tried.check("10.0.0.2", b"another")


def test_who_waits_as_long_as_told_may_try_again() -> None:
    clock = Clock()
    tried = Attempts(clock)
    guess(tried, "10.0.0.1", MOST_FAILURES)
    with pytest.raises(RateLimited) as refused:
        tried.check("10.0.0.1", b"x")
    clock.now += refused.value.details["retry_after"]
    tried.check("10.0.0.1", b"x")
    tried.failed("10.0.0.1", b"x")
    with pytest.raises(RateLimited):
        tried.check("10.0.0.1", b"y")


def test_a_token_that_was_good_before_is_not_held_up_by_its_neighbours() -> None:
    tried = Attempts(Clock())
    tried.succeeded(b"good")
    guess(tried, "127.0.0.1", MOST_FAILURES)
    tried.check("127.0.0.1", b"good")


def test_one_that_is_good_no_more_counts_like_any_other() -> None:
    tried = Attempts(Clock())
    tried.succeeded(b"revoked")
    guess(tried, "127.0.0.1", MOST_FAILURES)
    tried.failed("127.0.0.1", b"revoked")
    with pytest.raises(RateLimited):
        tried.check("127.0.0.1", b"revoked")


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
        tried.check(other, b"x")
    tried.check("2001:db8:1:3::1", b"x")


@given(st.lists(st.tuples(st.text(max_size=50), st.floats(0, 100)), max_size=60))
def test_no_more_are_let_through_than_the_time_allows(steps: list[tuple[str, float]]) -> None:
    clock = Clock()
    tried = Attempts(clock)
    let_through = 0
    told: set[int] = set()
    for number, (address, pause) in enumerate(steps):
        clock.now += pause
        tried.failed(address, b"a%d" % number)
        try:
            tried.check("guesser", b"b%d" % number)
        except RateLimited as refused:
            told.add(refused.details["retry_after"])
        else:
            let_through += 1
            tried.failed("guesser", b"b%d" % number)
    assert all(1 <= seconds <= SECONDS_A_FAILURE for seconds in told)
    assert let_through <= MOST_FAILURES + (clock.now - 1000.0) / SECONDS_A_FAILURE + 1


def test_what_is_remembered_is_bounded() -> None:
    tried = Attempts(Clock())
    for number in range(MOST_ADDRESSES + 500):
        tried.failed(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", b"x")
        tried.succeeded(b"%d" % number)
    assert len(tried._failures) == MOST_ADDRESSES
    assert len(tried._known) == attempts.MOST_KNOWN
