"""Snippets: an exact excerpt around the query's words."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from latent_core.bm25.analyser import query_terms, spans
from latent_core.search.snippet import Snippet, excerpt, make_snippet

FILLER = "Nothing of note happened in that year and the keepers wrote little. " * 20


def _snippet(text: str, query: str, max_chars: int = 120) -> Snippet:
    return make_snippet(text, "english", query_terms(query, ["english"]), max_chars, spans)


def test_the_window_is_where_the_words_stand_not_where_the_text_begins() -> None:
    found = _snippet(FILLER + "The lamp was lit by paraffin until 1911. " + FILLER, "paraffin lamp")
    assert "lamp was lit by paraffin" in found.text
    assert found.cut_before
    assert found.cut_after


def test_inflected_forms_are_marked() -> None:
    found = _snippet("Two keepers were painting the railings.", "painted railing")
    assert [found.text[a:b] for a, b in found.highlights] == ["painting", "railings"]
    assert found.marked() == "Two keepers were **painting** the **railings**."


def test_a_short_text_is_shown_whole() -> None:
    found = _snippet("Short.", "absent")
    assert found == Snippet("Short.", [], cut_before=False, cut_after=False)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=600), st.text(max_size=40), st.integers(20, 200))
def test_a_snippet_is_an_exact_excerpt_within_its_limit(text: str, query: str, limit: int) -> None:
    text = text.encode("utf-8", "replace").decode()
    found = _snippet(text, query.encode("utf-8", "replace").decode(), limit)
    assert found.text in text
    assert len(found.text) <= limit
    last = 0
    for start, end in found.highlights:
        assert last <= start < end <= len(found.text)
        last = end
    assert found.marked().replace("**", "").strip(".") == found.text.replace("**", "").strip(".")


def test_no_word_is_cut_at_the_end() -> None:
    found = _snippet("alpha beta gamma delta epsilon zeta eta theta iota kappa lambda", "alpha", 30)
    assert found.text.split()[-1] in [
        "alpha",
        "beta",
        "gamma",
        "delta",
        "epsilon",
        "zeta",
        "eta",
        "theta",
        "iota",
        "kappa",
        "lambda",
    ]


CHART = "\n\n".join(["Adults", "78", "65", "Seniors", "46", "2006 2008 2010 2012"])
TICKS = "\n\n".join(str(n) for n in range(100, 150))
SENTENCES = "Older adults were asked about the Internet. " + "They answered by telephone. " * 12


def test_labels_of_a_chart_are_no_snippet_where_there_is_prose() -> None:
    def shown(query: str, text: str = f"{CHART}\n\n{TICKS}\n\n{SENTENCES}\n\n{CHART}") -> str:
        terms = query_terms(query, ["english"])
        return make_snippet(text, "english", terms, 100, spans, prose=True).text

    assert "Older adults were asked" in shown("adults seniors 2010")  # two words in the chart
    assert shown("2008").startswith("Older adults")  # no word in prose
    assert shown("unknown").startswith("Older adults")
    assert "Seniors" in shown("seniors", f"{CHART}\n\n{TICKS}")  # no prose
    items = "\n".join(["- salt", "- flour", "- yeast", "- water"])
    assert "yeast" in shown("yeast", f"{SENTENCES}\n\n{items}")  # a list is no chart


def test_an_exact_match_is_shown_though_it_is_a_label() -> None:
    text = f"{CHART}\n\n{SENTENCES}"
    at = text.index("46")
    found = make_snippet(
        text, "english", ["adult"], 100, spans, exact=[(at, at + 2, "46")], prose=True
    )
    assert "46" in found.text
    assert found.evidence == ((at, "=46", 1.0),)


PROSE = "First sentence here. Second one there. " + "Filler words stand about. " * 20 + "The end."


def test_an_excerpt_grows_around_its_middle_and_marks_where_it_is_cut() -> None:
    start = PROSE.index("Second")
    end = start + len("Second one there.")
    assert excerpt(PROSE, start, end, len(PROSE)) == PROSE
    short = excerpt(PROSE, start, end, 60)
    assert short.startswith(("First", "..."))
    assert "Second one there." in short
    assert short.endswith("...")
    assert len(short) <= 60
    last = PROSE.index("The end.")
    assert excerpt(PROSE, last, len(PROSE), 60).endswith("The end.")


def test_an_excerpt_of_a_table_has_whole_rows_below_its_header() -> None:
    rows = [f"| ship {n} | {n * 7} tons | built in {1800 + n} |" for n in range(40)]
    table = "\n".join(["| name | weight | year |", "|---|---|---|", *rows])
    at = table.index("203 tons")
    short = excerpt(table, at, at + len("203 tons"), 200, table=True)
    header, *shown = short.replace("...", "").splitlines()
    assert header == "| name | weight | year |"
    assert rows[29] in shown
    assert set(shown) <= set(rows)
    assert excerpt(table, 0, 10, len(table), table=True) == table


def test_rows_of_a_table_select_the_window_not_its_header() -> None:
    rows = [f"| setting{n} | seconds | does one thing or another in the mill |" for n in range(30)]
    table = "\n".join(
        ["| setting | use case and meaning |", "|---|---|", *rows, "| brake | stops |"]
    )
    terms = query_terms("use case and meaning of brake", ["english"])
    head = len("| setting | use case and meaning |")
    assert "brake" not in make_snippet(table, "english", terms, 120, spans).text
    assert "brake" in make_snippet(table, "english", terms, 120, spans, head).text
