"""What a token looks like: ours are known by their shape, and a wrong character is noticed without asking anybody."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, strategies as st

from latent_core.domain.errors import Invalid
from latent_core.domain.token import (
    ALPHABET,
    PREFIX,
    check_principal,
    digest,
    new_token,
    well_formed,
)

TOKEN = new_token()


def test_a_new_token_is_well_formed_and_like_no_other() -> None:
    tokens = [new_token() for _ in range(200)]
    assert all(well_formed(token) for token in tokens)
    assert len({token[len(PREFIX) : -6] for token in tokens}) == 200
    assert {len(token) for token in tokens} == {len(PREFIX) + 49}


def test_its_bits_are_spread_over_all_it_can_hold() -> None:
    """256 bits fill 43 letters but for the last, which holds what is left of them."""
    tokens = [new_token() for _ in range(500)]
    for place in range(len(PREFIX), len(PREFIX) + 42):
        assert len({token[place] for token in tokens}) > 50


@given(place=st.integers(0, len(TOKEN) - 1), letter=st.sampled_from(ALPHABET + "_-é \n"))
def test_one_wrong_character_is_noticed(place: int, letter: str) -> None:
    assume(TOKEN[place] != letter)
    assert not well_formed(f"{TOKEN[:place]}{letter}{TOKEN[place + 1 :]}")


@given(st.integers(0, len(TOKEN) - 1))
def test_one_that_was_cut_is_noticed(length: int) -> None:
    assert not well_formed(TOKEN[:length])
    assert not well_formed(TOKEN + TOKEN[:length] if length else f"{TOKEN} ")


@given(st.text())
def test_whatever_is_sent_has_a_digest(token: str) -> None:
    assert len(digest(token)) == 32
    assert len(digest(f"{token}\ud800")) == 32


@pytest.mark.parametrize(
    "name", ["agent:claude", "person:ada.l@example.org", "local:you", "ci:a/b+c"]
)
def test_a_principal_is_a_kind_and_a_name(name: str) -> None:
    assert check_principal(name) == name


@pytest.mark.parametrize(
    "name", ["*", "claude", "agent:", ":claude", "agent:*", "Agent:x", "agent:a b", ""]
)
def test_what_is_none_is_refused_with_the_shape_it_should_have(name: str) -> None:
    with pytest.raises(Invalid, match="agent:claude"):
        check_principal(name)
