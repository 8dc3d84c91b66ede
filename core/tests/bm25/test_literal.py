"""Phrases in quotes: the same forms of words in the same order, whatever case, accents and punctuation."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from latent_core.bm25.analyser import analyse, placed
from latent_core.bm25.literal import LiteralPhrase, contains, places


def holds(text: str, phrase: str) -> bool:
    return contains(text, [LiteralPhrase.of(phrase)])


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("Rotate! It turns.", "rotate"),
        ("auto-rotate.py", "rotate"),
        ("on-line", "on line"),
        ("on line", "on-line"),
        ("Un cafe\u0301\nau lait", "CAFÉ AU LAIT"),
        ("to be, or not to be", "or not to be"),
        ("call getUserName()", "getusername"),
        ("C++ and C#", "c# "),
        ("東京都庁", "京都"),
        ("東京tokyo", "tokyo"),
        ("the keeper\u2019s lamp", "keeper's lamp"),
    ],
)
def test_a_phrase_is_found_as_it_stands(text: str, phrase: str) -> None:
    assert holds(text, phrase)
    (place,) = places(text, [LiteralPhrase.of(phrase)])
    assert holds(text[place[0] : place[1]], phrase)


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("rotated rotates rotation", "rotate"),
        ("user_name", "user name"),
        ("getUserName", "user"),
        ("lamp of the rotation", "rotation of the lamp"),
        ("the lamp", "lamps"),
        ("C+++", "c++"),
        ("foobar", "foo bar"),
        ("foo bar", "foobar"),
    ],
)
def test_other_forms_orders_and_parts_are_not_the_phrase(text: str, phrase: str) -> None:
    assert not holds(text, phrase)
    assert places(text, [LiteralPhrase.of(phrase)]) == []


ALPHABET = st.text(st.sampled_from("aAb1_ .-'é東都ー+#\n"), max_size=24)


@settings(max_examples=500, deadline=None)
@given(ALPHABET, ALPHABET)
def test_the_fast_check_agrees_with_the_places(text: str, phrase: str) -> None:
    one = LiteralPhrase.of(phrase)
    if one.words:
        assert contains(text, [one]) == bool(places(text, [one]))


@settings(max_examples=500, deadline=None)
@given(ALPHABET, st.integers(0, 23), st.integers(1, 8))
def test_every_word_of_a_phrase_of_a_text_is_indexed_for_it(
    text: str, start: int, size: int
) -> None:
    """Else the postings would leave out a chunk that contains the phrase."""
    terms = analyse(text, "english").positions
    for word in placed(" ".join(text.split()[start : start + size]), "english"):
        assert word.lexeme in terms
