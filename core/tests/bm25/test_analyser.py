# ruff: noqa: RUF001  # characters that look like others are what is tested here
"""The analyser: one pure function for documents and queries, and a term vector Postgres always takes."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from hypothesis import given, settings, strategies as st

from latent_core.bm25.analyser import (
    MAX_LENGTH,
    MAX_POSITION,
    MAX_TF,
    analyse,
    query_terms,
    spans,
    term_vector,
    unindexed,
)
from latent_core.bm25.language import detect_language
from latent_core.bm25.segment import MAX_LEXEME_BYTES
from latent_core.bm25.stopwords import STOP_WORDS

LANGUAGES = ("english", "german", "french", "russian", "arabic", "simple")
# Characters that word boundaries, quoting and folding trip over, besides all others.
TRICKY = st.sampled_from(
    list("aAbZ09_.-'\\\"’ʼ‐\u00ad\u200d\u0301éßİıøñ東京カｶ한าहि́٣½ﬁǅ:,*&|!() \n\x00")
)
TEXTS = st.text(st.one_of(TRICKY, st.characters(codec="utf-8")), max_size=200)


def terms(text: str, language: str = "english") -> list[str]:
    return list(analyse(text, language).positions)


def test_words_are_folded_stemmed_and_counted_at_their_positions() -> None:
    found = analyse("The Cats sat; a CAT was sitting.", "english")
    assert found.positions == {"cat": [2, 5], "sat": [3], "sit": [7]}
    assert found.length == 4
    assert found.tfs == {"cat": 2, "sat": 1, "sit": 1}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("getUserName", {"getusernam", "get", "user", "name"}),
        ("HTTPServer", {"httpserver", "http", "server"}),
        ("user_name", {"user_name", "user", "name"}),
        ("__init__", {"__init__", "init"}),
        ("os.path.join", {"os.path.join", "os", "path", "join"}),
        ("self.user_name", {"self.user_name", "self", "user_name", "user", "name"}),
        ("utf8", {"utf8", "utf", "8"}),
        ("x86_64", {"x86_64", "x", "86", "64"}),
        ("C++ and C#", {"c++", "c#"}),
        ("PDFs", {"pdf"}),
        ("ÉcoleNormale", {"ecolenormal", "ecol", "normal"}),
    ],
)
def test_identifiers_are_indexed_whole_and_in_parts(text: str, expected: set[str]) -> None:
    assert set(terms(text)) >= expected


def test_a_digest_is_one_term_and_not_a_heap_of_crumbs() -> None:
    assert terms("3fa9c1e7b2d4") == ["3fa9c1e7b2d4"]
    assert len(terms("aB" * 100)) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("on-line", "online"),
        ("on‐line", "on-line"),
        ("café", "cafe"),
        ("cafe\u0301", "café"),
        ("STRASSE", "straße"),
        ("ﬁnance", "finance"),
        ("co\u00adoperate", "cooperate"),
        ("the author’s", "the author's"),
        ("dog's", "dogs"),
        ("U.S.A.", "USA"),
        ("Ｐｙｔｈｏｎ", "python"),
        ("٣٤", "34"),
        ("Øresund", "oresund"),
    ],
)
def test_spellings_of_one_word_meet(one: str, other: str) -> None:
    assert set(terms(one)) & set(terms(other))


def test_stop_words_and_contractions_leave_nothing_behind() -> None:
    assert terms("Don't you think that it's what they'll do?") == ["think"]
    assert terms("l'homme qu'il aime", "french") == ["homm", "aim"]


def test_stop_words_are_those_of_the_language_and_simple_has_none() -> None:
    assert terms("the die is cast", "english") == ["die", "cast"]
    assert terms("die Häuser", "german") == ["haus"]
    assert terms("the houses", "simple") == ["the", "houses"]
    assert terms("the houses", "klingon") == ["the", "houses"]


def test_scripts_without_spaces_are_pairs_and_ideographs_are_found_alone() -> None:
    found = terms("東京タワーは高い", "simple")
    assert {"東京", "京", "タワ", "ワー", "高"} <= set(found)
    assert set(terms("東京", "simple")) <= set(found)
    assert set(terms("Python入門", "simple")) >= {"python", "入門"}


def test_words_of_scripts_with_vowel_signs_stay_whole() -> None:
    assert terms("हिन्दी भाषा", "simple") == ["हिन्दी", "भाषा"]


def test_cyrillic_letters_keep_what_distinguishes_them() -> None:
    assert terms("мой", "simple") == ["мой"]
    assert terms("ёлка", "simple") == terms("елка", "simple")


def test_long_tokens_are_cut_at_a_whole_character() -> None:
    for text in ("x" * 5000, "é" * 5000, "中" * 5000, "a.b" * 3000):
        assert all(len(term.encode()) <= MAX_LEXEME_BYTES for term in terms(text))
    assert len(terms("x" * 5000)) == 1


def test_limits_of_a_term_vector_are_kept_by_what_is_counted() -> None:
    long = analyse("word " * 30_000 + "tail " * 100, "simple")
    assert long.tfs == {"word": MAX_TF, "tail": 1}
    assert max(max(places) for places in long.positions.values()) == MAX_POSITION
    assert analyse("word " * 70_000, "simple").length == MAX_LENGTH


def test_a_text_of_very_many_distinct_words_still_makes_a_vector(postgres_dsn: str) -> None:
    literal = term_vector(analyse(" ".join(f"word{n:x}" for n in range(70_000)), "simple"))
    with psycopg.connect(postgres_dsn) as conn:
        assert conn.execute("SELECT length(%s::tsvector)", (literal,)).fetchone() != (0,)


@pytest.fixture(scope="module")
def connection(postgres_dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres_dsn, autocommit=True) as conn:
        yield conn


@settings(max_examples=1000, deadline=None)
@given(text=TEXTS, language=st.sampled_from(LANGUAGES))
def test_postgres_takes_every_term_vector_and_gives_it_back(
    connection: psycopg.Connection, text: str, language: str
) -> None:
    analysed = analyse(text, language)
    statement = "SELECT lexeme, positions FROM unnest(%s::tsvector)"
    stored = connection.execute(statement, (term_vector(analysed),)).fetchall()
    assert dict(stored) == analysed.positions
    assert analysed.length >= sum(analysed.tfs.values())


@settings(max_examples=1000, deadline=None)
@given(text=TEXTS, language=st.sampled_from(LANGUAGES))
def test_a_text_is_found_by_its_own_words(text: str, language: str) -> None:
    held = analyse(text, language).tfs
    assert set(query_terms(text, [language])) == set(held)
    marked = {term for span in spans(text, language) for term in span.terms}
    assert marked == set(held)


@settings(max_examples=1000, deadline=None)
@given(text=TEXTS)
def test_composed_and_decomposed_text_is_the_same_text(text: str) -> None:
    composed = analyse(unicodedata.normalize("NFC", text), "english")
    assert analyse(unicodedata.normalize("NFD", text), "english") == composed


def test_threads_share_the_analyser() -> None:
    texts = [f"running{n} connections relational{n} houses" for n in range(300)]
    alone = [analyse(text, language) for text in texts for language in ("english", "german")]
    with ThreadPoolExecutor(8) as pool:
        jobs = [(text, language) for text in texts for language in ("english", "german")]
        together = list(pool.map(lambda job: analyse(*job), jobs))
    assert together == alone


def test_a_query_is_analysed_in_every_language_and_each_term_is_looked_up_once() -> None:
    assert query_terms("running Häuser", ["english", "german"]) == [
        "run",
        "hauser",
        "running",
        "haus",
    ]
    assert query_terms("cats cats dogs", ["english", "english"]) == ["cat", "cat", "dog"]


def test_a_query_of_stop_words_asks_for_nothing() -> None:
    assert query_terms("to be or not to be", ["english"]) == []
    assert query_terms("", ["english"]) == []
    assert query_terms("anything", []) == []


def test_stop_words_of_one_language_are_known_under_their_stems_in_another() -> None:
    silent = unindexed(frozenset({"english", "spanish"}))
    assert silent["de"] == ("spanish",)
    assert silent["the"] == ("english",)
    assert "house" not in silent
    assert unindexed(frozenset({"english", "simple"}))["which"] == ("english",)


def test_spans_tell_where_tokens_stand() -> None:
    text = "Tell getUserName, the café's owner."
    assert [text[s.start : s.end] for s in spans(text, "english")] == [
        "Tell",
        "getUserName",
        "café's",
        "owner",
    ]


SAMPLES = {
    "english": "The committee has approved the plan for the new station, which will be built in the city.",
    "german": "Der Ausschuss hat den Plan für den neuen Bahnhof gebilligt, der in der Stadt gebaut wird.",
    "french": "Le comité a approuvé le plan de la nouvelle gare, qui sera construite dans la ville.",
    "spanish": "El comité ha aprobado el plan de la nueva estación, que será construida en la ciudad.",
    "italian": "Il comitato ha approvato il piano della nuova stazione, che sarà costruita nella città.",
    "portuguese": "O comité aprovou o plano da nova estação, que será construída na cidade com uma ponte.",
    "dutch": "Het comité heeft het plan voor het nieuwe station goedgekeurd, dat in de stad wordt gebouwd.",
    "russian": "Комитет одобрил план строительства нового вокзала, который будет построен в городе.",
    "greek": "Η επιτροπή ενέκρινε το σχέδιο για τον νέο σταθμό που θα χτιστεί στην πόλη.",
    "arabic": "وافقت اللجنة على خطة المحطة الجديدة التي ستبنى في المدينة",
    "simple": "委員会は市内に建設される新しい駅の計画を承認した。",
}


@pytest.mark.parametrize("language", SAMPLES)
def test_a_sentence_tells_its_language(language: str) -> None:
    assert detect_language(SAMPLES[language]) == language


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2.5 * 7 = 17.5",
        "Aerodynamics",
        "Comment on a Paper on Parallel Processing",
        "Los Angeles",
        "def f(d, n): return d[n], y, m",
        "Kubernetes Ingress NGINX Controller",
    ],
)
def test_latin_script_without_evidence_is_english(text: str) -> None:
    assert detect_language(text) == "english"


@pytest.mark.parametrize(
    "text",
    [
        "def first(items):\n    found = [one for one in items if one]\n    return found[0] if found else None",
        "func main() {\n\tif err := run(); err != nil {\n\t\tlog.Fatal(err)\n\t}\n}",
    ],
)
def test_what_is_indented_and_full_of_brackets_is_code(text: str) -> None:
    assert detect_language(text) == "code"


@pytest.mark.parametrize(
    "text",
    [
        "Algorithm 97 (Shortest Path) [H]\n\n(CACM 5, 1962)",
        "A list (see below):\n\n    first point\n    second point\n\nand what follows from both of them.",
        "def gruss(name):\n    # der Name ist nicht leer und wird auch so gesagt wie er ist\n    return name",
    ],
)
def test_prose_with_brackets_and_code_in_other_words_than_english_are_not(text: str) -> None:
    assert detect_language(text) != "code"


def test_code_keeps_the_words_that_prose_leaves_out_and_stems_the_others() -> None:
    assert set(analyse("if not items: return", "code").tfs) == {"if", "not", "item", "return"}
    assert set(analyse("if not items: return", "english").tfs) == {"item", "return"}


def test_stop_words_stand_in_one_list_a_language_and_none_is_a_phrase() -> None:
    assert set(STOP_WORDS) == set(list(SAMPLES)[:7])
    assert all(word.split() == [word] for words in STOP_WORDS.values() for word in words)


def test_fields_add_their_words_after_those_of_the_text() -> None:
    alone, with_fields = (
        analyse("The lamp", "english"),
        analyse("The lamp", "english", "Argand\noil"),
    )
    assert with_fields.positions == {**alone.positions, "argand": [3], "oil": [4]}
    assert with_fields.length == alone.length + 2
    assert analyse("The lamp", "english", "") == alone
