"""The filter language: what it reads, how it shows it, and what it refuses, by the name of the place."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import pytest
from hypothesis import given, settings, strategies as st

from latent_core.bm25.language import detect_language
from latent_core.domain.errors import Invalid
from latent_core.domain.filters.model import AllOf, Column, FilterOp, MetaField, Negation, Test
from latent_core.domain.filters.syntax import parse, shown
from latent_core.domain.text import LANGUAGES, language_named
from tests.support.oracles.filter_oracle import filters, random_rows

ROWS: Final = random_rows(20, datetime(2026, 11, 20, tzinfo=UTC), seed=3)


def refusal(written: dict[str, Any]) -> Invalid:
    with pytest.raises(Invalid) as caught:
        parse(written)
    return caught.value


@settings(max_examples=300, deadline=None)
@given(filters(ROWS))
def test_what_is_shown_reads_as_the_same_filter(written: dict[str, Any]) -> None:
    node = parse(written)
    assert node is not None
    assert parse(shown(node)) == node


def test_an_empty_filter_is_none() -> None:
    assert parse({}) is None


def test_a_day_is_the_whole_day() -> None:
    day, after = datetime(2026, 1, 31, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)
    bounds = (
        Test(Column.MODIFIED, FilterOp.GTE, (day,)),
        Test(Column.MODIFIED, FilterOp.LT, (after,)),
    )
    assert parse({"modified": "2026-01-31"}) == AllOf(bounds)
    assert parse({"modified": {"ne": "2026-01-31"}}) == Negation(AllOf(bounds))
    assert parse({"modified": {"gt": "2026-01-31"}}) == Test(
        Column.MODIFIED, FilterOp.GTE, (after,)
    )
    assert parse({"modified": {"lte": "2026-01-31"}}) == bounds[1]


def test_a_time_without_a_zone_is_utc_and_one_with_a_zone_is_that_moment() -> None:
    assert parse({"ingested": {"lt": "2026-01-31T12:00:00"}}) == parse(
        {"ingested": {"lt": "2026-01-31T14:00:00+02:00"}}
    )


def test_a_language_is_known_by_its_name_its_codes_and_its_tags() -> None:
    for written in ("german", "German", "de", "deu", "ger", "de-AT", "de_CH"):
        assert language_named(written) == "german"


@pytest.mark.parametrize(
    "text",
    [
        "the cat and the dog are in the house",
        "der Hund und die Katze sind nicht in dem Haus und das ist gut",
        "Это просто русский текст",
        "αυτό είναι ελληνικό κείμενο",
        "这是中文",
        "def f(x):\n    if x is not None:\n        return [x]\n",
    ],
)
def test_every_detected_language_can_be_filtered_by(text: str) -> None:
    assert detect_language(text) in LANGUAGES


def test_true_is_not_one_and_each_value_counts_once() -> None:
    assert parse({"meta.a": [1, True, 1, "1", 1.0]}) == Test(
        MetaField("a"), FilterOp.IN, (1, True, "1")
    )
    read = parse({"meta.a": [1, True]})
    assert isinstance(read, Test)
    assert [type(value) for value in read.values] == [int, bool]


def test_a_path_may_be_written_as_a_uri_and_a_folder_with_a_slash() -> None:
    assert parse({"path": "file:///docs/"}) == parse({"path": "/docs/**"})
    assert parse({"path": ["docs/**"]}) == Test(Column.PATH, FilterOp.GLOB, ("docs/**",))


def nested(depth: int) -> dict[str, Any]:
    written: dict[str, Any] = {"page": 1}
    for n in range(depth):
        written = {"not": written} if n % 2 else {"and": [written]}
    return written


NUL = "a\x00b"
REFUSED: Final = [
    ({"colour": "red"}, "colour: is an unknown field; known are source_type"),
    ({"sourcetype": "pdf"}, "sourcetype: is an unknown field; did you mean 'source_type'"),
    ({"meta": {"year": 1}}, "meta: is an unknown field"),
    ({"meta.": 1}, "has 1 to 1024 characters"),
    ({"source_type": "film"}, "source_type: must be one of code, markdown"),
    ({"source_type": []}, "source_type: must be a list of at least one"),
    ({"source_type": [1]}, "source_type: must be one of"),
    (
        {"source_type": {"gt": "pdf"}},
        "source_type.gt: does not apply to this field; its operators are eq",
    ),
    ({"source_type": {"equals": "pdf"}}, "source_type.equals: is an unknown operator"),
    ({"modality": None}, 'modality: must not be null; .* {"exists": false}'),
    ({"doc_id": "not-an-id"}, "doc_id: 'not-an-id' is not a document id"),
    ({"language": "elvish"}, "language: 'elvish' is not a supported language"),
    ({"page": "3"}, "page: must be a page number .* not '3'"),
    ({"page": True}, "page: must be a page number"),
    ({"page": 2**40}, "page: must be a page number"),
    ({"page": {"gte": [1]}}, "page.gte: must be a page number .* not a list of 1"),
    (
        {"modified": {"gte": "2026-02-30"}},
        "modified.gte: '2026-02-30' is not a valid calendar date",
    ),
    ({"modified": {"gte": "yesterday"}}, "modified.gte: must be a date such as"),
    ({"modified": {"gte": 20260101}}, "modified.gte: must be a date"),
    ({"modified": {"gt": "9999-12-31"}}, "modified.gt: '9999-12-31' is not a valid calendar date"),
    ({"ingested": "0001-01-01T00:00+14:00"}, "ingested: .* is not a valid calendar date"),
    ({"max_age": "3 days"}, "max_age: must be an age such as"),
    ({"max_age": "0d"}, "max_age: must be more than 0"),
    ({"max_age": "999999999y"}, "max_age: .* at most 100 years"),
    ({"meta.a": {"gt": True}}, "meta.a.gt: must be a number or a text"),
    ({"meta.a": {"exists": 1}}, "meta.a.exists: must be true or false, not 1"),
    ({"meta.a": {"contains": ""}}, "meta.a.contains: must not be empty"),
    ({"meta.a": {"in": 5}}, "meta.a.in: must be a list"),
    ({"meta.a": {"eq": {}}}, "meta.a.eq: must be a text, a number, .* not an object"),
    ({"meta.a": {}}, "meta.a: is empty; operators are"),
    ({"meta.a": 2**64}, "meta.a: must not be an integer of more than 64 bits"),
    ({"meta.a": float("nan")}, "meta.a: must be a text, a number"),
    ({"meta.a": NUL}, r"meta.a: must not contain the control character U\+0000"),
    (
        {f"meta.{NUL}": 1},
        r"meta.a\\u0000b: the name must not contain the control character U\+0000",
    ),
    ({NUL: 1}, r"a\\u0000b: is an unknown field"),
    ({"meta.a": "\ud800"}, r"meta.a: must not contain the lone surrogate"),
    ({"meta.\ud800": 1}, r"meta.\\ud800: the name must not contain the lone surrogate"),
    ({"meta.a": "x" * 1025}, "meta.a: has 1025 characters"),
    ({"path": {"glob": "x" * 1025}}, "path.glob: has 1025 characters"),
    ({"path": ["a*"] * 33}, "path: exceeds the limit of 32 globs and prefixes"),
    ({"and": {"page": 1}}, "and: must be a list"),
    ({"or": []}, "or: must be a list of at least one object"),
    ({"or": [1]}, r"or\[0\]: must be an object"),
    ({"and": [{"page": 1}, {}]}, r"and\[1\]: is empty"),
    ({"and": [{"not": {"or": [{"page": "x"}]}}]}, r"and\[0\].not.or\[0\].page: must be"),
    (nested(100), "is nested too deeply: the limit is 16 levels"),
    ({"meta.a": list(range(10_000))}, "exceeds the limit of 1000 values per filter"),
    ({"meta.a": [1] * 600, "meta.b": [1] * 600}, "meta.b: exceeds the limit of 1000 values"),
    ({f"meta.f{n}": 1 for n in range(10_000)}, "meta.f256: exceeds the limit of 256 conditions"),
    ({"or": [{"page": 1}] * 10_000}, "exceeds the limit of 256 conditions per filter"),
    ({"ingested": {"in": ["2026-01-01"] * 300}}, "exceeds the limit of 256 conditions"),
    ({"meta." + ".".join("abcdefghi"): 1}, "has too many parts: the limit is 8 names"),
]


@pytest.mark.parametrize(("written", "summary"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_read_is_refused_by_name(written: dict[str, Any], summary: str) -> None:
    error = refusal(written)
    with pytest.raises(Invalid, match=summary):
        raise error
    assert error.message.isprintable()
    assert error.details["field"].isprintable()
    assert len(error.message) < 1000


@settings(max_examples=300, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from([*Column, *FilterOp, "and", "or", "not", "meta.a", "x", NUL]),
                inner,
                max_size=3,
            )
        ),
        max_leaves=8,
    ).filter(lambda written: isinstance(written, dict))
)
def test_whatever_is_written_is_read_or_refused(written: Any) -> None:
    summary = ""
    try:
        node = parse(written)
    except Invalid as error:
        node, summary = None, error.message
    assert summary.isprintable()
    assert node is None or parse(shown(node)) == node
