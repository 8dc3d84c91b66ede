"""Names of definitions as terms: the definition and the words of a query meet in one term."""

from __future__ import annotations

import numpy as np
import pytest

from latent_core.bm25.analyser import NAME_COUNT, analyse, query_terms
from latent_core.bm25.language import CODE
from latent_core.bm25.names import MAX_WORDS, defined_names, is_name, query_names
from latent_core.bm25.port import KeywordHits, TermUse
from latent_core.bm25.segment import MAX_LEXEME_BYTES


@pytest.mark.parametrize(
    ("symbol", "query"),
    [
        ("findEdge", "find edge"),
        ("find_edge", "Find Edge"),
        ("setdefault", "set default"),
        ("HTTPServer", "http-server"),
        ("größe", "GRÖSSE"),
        ("__init__", "init"),
    ],
)
def test_a_name_and_its_words_are_one_term(symbol: str, query: str) -> None:
    assert defined_names({"symbol": symbol})[0] in query_names(query)


def test_a_definition_has_its_name_alone_and_after_the_name_around_it() -> None:
    meta = {"symbol": "close", "parents": ["net", "Client"]}
    assert defined_names(meta) == ["=close", "=clientclose"]
    assert defined_names({"symbol": "close"}) == ["=close"]
    assert defined_names(meta | {"continued": True}) == []
    assert defined_names({"symbol": "+"}) == []
    assert defined_names({}) == []


def test_all_words_of_a_query_count_twice_and_neighbours_once() -> None:
    assert query_names("find edge") == ["=findedge", "=findedge"]
    assert query_names("where is Client.close") == [
        "=whereisclientclose",
        *("=whereisclientclose", "=whereis", "=isclientclose", "=clientclose"),
    ]
    assert query_names("retries") == ["=retries", "=retries"]
    assert query_names("?!") == query_names("") == []


def test_names_in_a_long_query_are_bounded() -> None:
    words = [f"w{n}" for n in range(1000)]
    assert len(query_names(" ".join(words))) < 100
    assert "=w0w1w2w3" in query_names(" ".join(words))
    whole = "".join(words[:MAX_WORDS])
    assert query_names(" ".join(words[:MAX_WORDS])).count(f"={whole}") == 2
    assert all(len(one.encode()) <= MAX_LEXEME_BYTES for one in query_names("x" * 8000))


def test_no_word_of_a_text_is_a_name_and_names_leave_its_length_as_it_is() -> None:
    text = "= =findedge a=b"
    bare, named = analyse(text, CODE), analyse(text, CODE, "", ["=findedge"])
    assert not any(map(is_name, [*bare.positions, *query_terms(text, [CODE])]))
    assert named.length == bare.length
    assert named.tfs == bare.tfs | {"=findedge": NAME_COUNT}


def test_a_text_that_defines_nothing_is_no_less_relevant() -> None:
    none = np.empty(0)
    uses = (TermUse("edge", 1, 3, 2.0), TermUse("=edge", 2, 0, 9.0))
    found = KeywordHits(none.astype(np.int64), none, none, 0, 10, uses, 0)
    assert (found.attainable, [use.term for use in found.words]) == (2.0, ["edge"])
