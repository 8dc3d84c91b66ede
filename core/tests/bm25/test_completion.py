"""The completions of a half word, against a naive reading of all terms."""

from __future__ import annotations

import itertools
import string
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from latent_core.bm25 import completion, postings
from latent_core.bm25.analyser import analyse
from latent_core.bm25.completion import MAX_COMPLETIONS, Completions, OpenWord, completions
from latent_core.bm25.packing import ChunkTerms, columns_of
from latent_core.db.connection import Database

NUMBERS = itertools.count()
LETTERS = st.text("ab\u00e9\u5317", min_size=1, max_size=4)


async def stocked(database: Database, texts: Sequence[str], language: str = "english") -> str:
    container = f"completed-{next(NUMBERS)}"
    analysed = [analyse(text, language) for text in texts]
    chunks = [ChunkTerms(n, one.length, one.tfs) for n, one in enumerate(analysed)]
    async with database.transaction() as conn:
        await postings.write(conn, container, chunks)
    return container


async def completed(
    database: Database, containers: Sequence[str], query: str, language: str = "english"
) -> Completions:
    word = OpenWord.of(query)
    assert word is not None
    async with database.reading() as conn:
        return await completions(conn, containers, word, [language])


async def terms_of(database: Database, texts: Sequence[str], query: str) -> dict[str, set[str]]:
    container = await stocked(database, texts)
    found = await completed(database, [container], query)
    return {name: set(terms) for name, terms in found.terms.items()}


@settings(
    max_examples=40,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(words=st.lists(LETTERS, min_size=1, max_size=12), typed=LETTERS)
async def test_a_beginning_stands_for_every_term_that_begins_with_it(
    database: Database, words: list[str], typed: str
) -> None:
    container = await stocked(database, [" ".join(words)], "simple")
    found = await completed(database, [container], typed, "simple")
    every = analyse(" ".join(words), "simple").positions
    last = analyse(typed, "simple").positions
    for name, terms in found.terms.items():
        assert name[:-1] in last
        assert set(terms) == {term for term in every if term.startswith(name[:-1])}
    absent = [one for one in last if one + "*" not in found.terms and typed.endswith(one)]
    assert not [term for term in every if term.startswith(tuple(absent))]


async def test_the_common_terms_of_a_short_beginning_come_first_and_are_bounded(
    database: Database,
) -> None:
    rare = [f"za{n}x" for n in range(2 * MAX_COMPLETIONS)]
    container = await stocked(database, [" ".join(rare), "zyx", "zyx zyy", "zyx zyy"], "simple")
    (terms,) = (await completed(database, [container], "z", "simple")).terms.values()
    assert terms[:2] == ("zyx", "zyy")
    assert len(terms) == MAX_COMPLETIONS


async def test_a_beginning_of_too_many_rows_is_completed_from_the_largest_part(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "MAX_ROWS", 40)
    texts = [
        "zoom " * 3
        + " ".join(f"z{'abcdefghi'[part]}{letter}" for letter in string.ascii_lowercase[: 8 + part])
        for part in range(9)
    ]
    container = f"completed-{next(NUMBERS)}"
    for number, text in enumerate(texts):
        analysed = analyse(text, "simple")
        columns = columns_of([ChunkTerms(number, analysed.length, analysed.tfs)])
        async with database.transaction() as conn:
            prepared = postings.prepare(container, columns)
            await postings.write_prepared(conn, container, prepared, settled=True)
    (terms,) = (await completed(database, [container], "z", "simple")).terms.values()
    assert "zoom" in terms
    (terms,) = (await completed(database, [container], "zh", "simple")).terms.values()
    assert len(terms) == 15


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("authentication", ["au", "authent", "authentic", "authentica", "authenticatio"]),
        ("running", ["r", "run", "runni", "runnin"]),
        ("happiness", ["happ", "happi", "happine", "happines"]),
        ("relational", ["relat", "relatio", "relationa"]),
        ("databases", ["data", "database"]),
        ("zebrafish", ["zeb", "zebrafis"]),
    ],
)
async def test_a_word_is_found_with_every_letter_that_is_typed(
    database: Database, text: str, typed: list[str]
) -> None:
    (stem,) = analyse(text, "english").positions
    for beginning in typed:
        (terms,) = (await terms_of(database, [text], beginning)).values()
        assert terms == {stem}, beginning


async def test_without_a_list_of_endings_the_longest_stem_is_taken(database: Database) -> None:
    container = await stocked(database, ["talossani talo"], "finnish")
    (terms,) = (await completed(database, [container], "talossanik", "finnish")).terms.values()
    assert len(terms) == 1
    assert "talossanik".startswith(terms)
    assert not (await completed(database, [container], "kirja", "finnish")).terms


async def test_of_an_identifier_the_last_part_and_the_whole_are_open(database: Database) -> None:
    found = await terms_of(database, ["getUserName user_names native"], "getUserNa")
    assert found == {"na*": {"name", "nativ"}, "getuserna*": {"getusernam"}}
    word = OpenWord.of("call getUserNa")
    assert word is not None
    assert word.parts == ["get", "user"]
    assert (word.start, OpenWord.of("getUserNa "), OpenWord.of('"fog"'), OpenWord.of("")) == (
        5,
        None,
        None,
        None,
    )


async def test_a_stop_word_may_become_another_word(database: Database) -> None:
    assert await terms_of(database, ["the theory of thermals"], "the") == {
        "the*": {"theori", "thermal"}
    }


async def test_completions_cover_several_containers_and_know_whole_words(
    database: Database,
) -> None:
    one, other = await stocked(database, ["harbour"]), await stocked(database, ["harbinger"])
    found = await completed(database, [one, other], "harb")
    assert (set(found.terms["harb*"]), found.is_word) == ({"harbour", "harbing"}, False)
    assert (await completed(database, [one], "harbours")).is_word
    assert not (await completed(database, [one], "harbi")).terms


@pytest.mark.parametrize("query", ["vitamin c", "the c", "part 3"])
def test_a_letter_after_other_words_stands_for_itself(query: str) -> None:
    assert OpenWord.of(query) is None


@pytest.mark.parametrize(("query", "text"), [("c", "c"), ("vitamin ce", "ce"), ("検索 索", "索")])
def test_other_last_words_are_still_open(query: str, text: str) -> None:
    word = OpenWord.of(query)
    assert word is not None
    assert word.text == text
