"""Marks: exactly the words that the analyser indexes under a term of the query, found without analysing them all."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from latent_core.bm25.analyser import query_terms, spans
from latent_core.search.snippet import make_snippet

WORDS = st.sampled_from(
    [
        "die",
        "dying",
        "dies",
        "lie",
        "lying",
        "sky",
        "skies",
        "happy",
        "happiness",
        "generate",
        "generously",
        "painting",
        "painted",
        "Painters",
        "on-line",
        "online",
        "getUserName",
        "user_name",
        "os.path",
        "user's",
        "C++",
        "c#",
        "F#",
        "HTTPServer",
        "utf8",
        "the",
        "of",
        "a",
        "I",
        "x1",
        "early",
        "earlier",
        "news",
        "U.S.A.",
        "naïve",
        "café",
        "Müller",
        "straße",
    ]
)
LANGUAGES = st.sampled_from(["english", "simple", "german", "spanish", "indonesian"])


def marked(text: str, query: str, language: str) -> list[str]:
    terms = query_terms(query, [language])
    found = make_snippet(text, language, terms, 10_000, spans)
    return [found.text[start:end] for start, end in found.highlights]


@settings(max_examples=300, deadline=None)
@given(st.lists(WORDS, max_size=12), st.lists(WORDS, max_size=3), LANGUAGES)
def test_what_is_marked_is_what_the_analyser_finds(
    words: list[str], query_words: list[str], language: str
) -> None:
    text, query = " ".join(words), " ".join(query_words)
    required = set(query_terms(query, [language]))
    expected = [
        text[s.start : s.end] for s in spans(text, language) if required.intersection(s.terms)
    ]
    assert marked(text, query, language) == expected


@pytest.mark.parametrize(
    ("query", "word"),
    [("die", "dying"), ("lies", "lying"), ("user", "getUserName"), ("path", "os.path")],
)
def test_a_word_that_begins_otherwise_than_its_term_is_marked(query: str, word: str) -> None:
    assert marked(f"and {word} too", query, "english") == [word]
