"""Signatures and required literals: what is excluded can never match."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, strategies as st

from latent_core.bm25.exact import CHARS, SIZES, places, required, signature

WORDS = st.text(alphabet="abcXYZ_äßÉ 日本\n.-0", min_size=0, max_size=12)


def bits(written: str) -> np.ndarray:
    return np.unpackbits(np.frombuffer(bytes.fromhex(written[1:]), np.uint8))


def covers(text: str, literals: list[str]) -> bool:
    own = bits(signature(text))
    return all(own[place] for place in places(literals, len(own)))


@given(WORDS, WORDS, WORDS, st.booleans(), st.sampled_from((1, 300, 3000)))
def test_a_text_has_the_bits_of_everything_it_holds_in_any_case(
    before: str, literal: str, after: str, upper: bool, times: int
) -> None:
    text = before * times + literal + after
    assert covers(text, [literal.upper() if upper else literal])


def test_a_signature_grows_with_its_text_and_tells_texts_apart() -> None:
    sizes = [4 * (len(signature("ab " * n)) - 1) for n in (10, CHARS[0], CHARS[1])]
    assert tuple(sizes) == SIZES
    other = "nothing of the kind is said here, but for some words that are quite common"
    assert not covers(other, ["getUserName"])
    assert covers("x = getusername()", ["getUserName"])


@pytest.mark.parametrize(
    ("pattern", "literals"),
    [
        (r"get_user\w+\(", ["get_user"]),
        (r"^class\s+(\w+Manager)\b", ["class", "Manager"]),
        (r"colou?r_of", ["colo", "r_of"]),
        (r"(abc){0,3}def", ["def"]),
        (r"a|b", []),
        (r"[[:alpha:]]foo", []),
        (r"\pL+xyz", []),
        (r"(", []),
    ],
)
def test_the_literals_of_a_pattern_are_those_every_match_holds(
    pattern: str, literals: list[str]
) -> None:
    assert required(pattern) == literals


PATTERNS = st.recursive(
    st.sampled_from(["a", "bc", "Xyz", r"\w", ".", "[ab]", r"\.", "^", r"\b"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join).map("({})".format),
        inner.map("(?:{})?".format),
        inner.map("({})+".format),
        inner.map("(?:{}){{0,2}}".format),
        inner.map("(?i:{})".format),
    ),
    max_leaves=8,
)


@given(PATTERNS, st.text(alphabet="abcXyzxY. ", max_size=30))
def test_whatever_matches_holds_the_literals(pattern: str, text: str) -> None:
    found = re.search(pattern, text)
    if found:
        held = found.group().casefold()
        assert all(literal.casefold() in held for literal in required(pattern))
