"""Marks: exactly the words that the analyser indexes under a term of the query, found without analysing them all."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings, strategies as st

from latent_core.bm25.analyser import query_terms, spans
from latent_core.search.snippet import make_snippet
from latent_core.search.word_matches import KEEP_BEGINNINGS, beginnings, word_matches

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
LANGUAGES = st.sampled_from(["english", "code", "simple", "german", "spanish", "indonesian"])
ENDINGS = st.sampled_from(
    [
        "s",
        "es",
        "ies",
        "ied",
        "ed",
        "edly",
        "ing",
        "ingly",
        "y",
        "ly",
        "li",
        "er",
        "est",
        "ness",
        "ful",
        "fulness",
        "less",
        "ly",
        "ously",
        "ization",
        "ational",
        "tional",
        "ability",
        "bli",
        "iviti",
        "ivity",
        "ality",
        "alism",
        "ence",
        "ance",
        "able",
        "ible",
        "ement",
        "ment",
        "ent",
        "ism",
        "ate",
        "iti",
        "ous",
        "ive",
        "ize",
        "sion",
        "tion",
        "ion",
        "logi",
        "ogist",
        "bly",
    ]
)
ENGLISH = st.builds(
    "".join,
    st.lists(st.text("aeiouytlndrsgbcmp", min_size=1, max_size=4) | ENDINGS, max_size=4),
)
ASCII = st.text("abeinoSTXy19_ .'-+#\n\t(", max_size=60)


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


@settings(max_examples=2000, deadline=None)
@given(ENGLISH)
@example("ability")
@example("dyings")
@example("skies")
def test_a_word_begins_as_its_term_except_for_two_letters(word: str) -> None:
    for span in spans(word, "english"):
        for term in span.terms:
            assert word.startswith(tuple(beginnings(frozenset({term})))), term


@settings(max_examples=500, deadline=None)
@given(ASCII, ASCII, st.sampled_from(sorted(KEEP_BEGINNINGS)))
def test_words_in_any_ascii_text_are_found_as_the_analyser_finds_them(
    text: str, query: str, language: str
) -> None:
    terms = set(query_terms(query, [language]))
    found = list(word_matches(text, language, terms, spans))
    expected = [
        (s.start, s.end, both)
        for s in spans(text, language)
        if (both := terms.intersection(s.terms))
    ]
    assert found == expected
