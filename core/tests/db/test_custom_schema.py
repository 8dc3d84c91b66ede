"""``metadata.custom_schema``: what fields of meta may hold, and how what is wrong is named."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from latent_core.domain.document import accepted_meta, given_digest, published_meta
from latent_core.domain.errors import IngestFailed, Invalid
from latent_core.domain.manifest.custom_schema import CustomSchema, FieldKind, FieldRule
from latent_core.domain.manifest.model import Manifest, parse_manifest
from latent_core.domain.manifest.yaml_reader import read_manifest

ART: dict[str, Any] = {
    "period": ["modernism", "baroque"],
    "confidence": "float",
    "city": {"type": "string", "required": True},
    "year": {"type": "integer", "enum": [1905, 1911]},
    "seen": "date",
    "shown": "boolean",
    "tags": {"type": "list", "enum": ["oil", "ink"]},
}


def read(meta: dict[str, Any], *, whole: bool = False) -> tuple[dict[str, Any], list[str]]:
    kept, wrong = CustomSchema.of(ART).read(meta, whole=whole)
    return kept, [f"{v.field} {v.message}" for v in wrong]


def manifest(schema: dict[str, Any], pattern: str | None = None) -> Manifest:
    return parse_manifest(
        {
            "id": "art",
            "name": "Art",
            "metadata": {"custom_schema": schema},
            "ingest": {"meta_from_path": pattern},
        }
    )


@pytest.mark.parametrize(
    ("given_", "kept"),
    [
        ({"period": "baroque"}, "baroque"),
        ({"confidence": 0.5}, 0.5),
        ({"confidence": 1}, 1),
        ({"confidence": "1e-3"}, 0.001),
        ({"year": "1905"}, 1905),
        ({"year": 1911.0}, 1911),
        ({"seen": "2024-01-31"}, "2024-01-31"),
        ({"seen": "2024-01-31T10:00:00Z"}, "2024-01-31T10:00:00Z"),
        ({"shown": "True"}, True),
        ({"tags": ["ink", "oil"]}, ["ink", "oil"]),
        ({"tags": "ink"}, ["ink"]),
        ({"unknown": {"any": ["thing"]}}, {"any": ["thing"]}),
        ({"period": None}, None),
    ],
)
def test_values_are_kept_as_their_fields_kind(given_: dict[str, Any], kept: Any) -> None:
    field, *_ = given_
    read_, wrong = read(given_)
    assert wrong == []
    assert read_[field] == kept
    assert type(read_[field]) is type(kept)


@pytest.mark.parametrize(
    ("given_", "summary"),
    [
        ({"period": "rococo"}, "period must be one of modernism, baroque"),
        ({"confidence": "high"}, "confidence must be a number, not 'high'"),
        ({"confidence": True}, "confidence must be a number, not true"),
        ({"confidence": math.inf}, "confidence must be a number"),
        ({"city": 7}, "city must be text, not 7: put it in quotes"),
        ({"year": 1905.5}, "year must be a whole number, not 1905.5"),
        ({"year": 1906}, "year must be one of 1905, 1911, not 1906"),
        ({"year": "9" * 25}, "year must be a whole number"),
        ({"seen": "2024-02-30"}, "seen must be a date such as 2024-01-31, not '2024-02-30'"),
        ({"seen": "20240131"}, "seen must be a date"),
        ({"shown": 1}, "shown must be true or false, not 1"),
        ({"tags": ["oil", "egg"]}, "tags must be one of oil, ink, not 'egg'"),
        ({"tags": [["oil"]]}, "tags must be a plain value, not a list of 1"),
        ({"tags": ["oil"] * 1001}, "tags has 1001 items; the limit is 1000"),
    ],
)
def test_what_a_field_may_not_hold_is_named_with_the_field(
    given_: dict[str, Any], summary: str
) -> None:
    _, wrong = read(given_)
    assert len(wrong) == 1
    assert wrong[0].startswith(summary)


def test_a_required_field_may_be_missing_until_the_document_is_whole() -> None:
    assert read({}) == ({}, [])
    assert read({"city": None}, whole=True)[1] == [
        "city is required by the container's schema, but missing"
    ]


@pytest.mark.parametrize(
    ("rule", "summary"),
    [
        ("flaot", "'flaot' is not a field type; did you mean 'float'?"),
        (3, "3 is not a field type; write a type"),
        ([], "enum: must be a list of at least one value"),
        ([["a"]], "enum: a value must be a plain value"),
        ([1, 1], "enum: contains a value twice"),
        ({"tpye": "string"}, "unknown key 'tpye'; did you mean 'type'?"),
        ({"required": True}, "has neither type nor enum"),
        ({"type": "string", "required": "yes"}, "required: must be true or false"),
        ({"type": "integer", "enum": [1, "x"]}, "enum: a value must be a whole number, not 'x'"),
        ({"type": ["string"]}, "a list of 1 is not a field type"),
        ({"enum": list(range(1001))}, "enum: has 1001 values; the limit is 1000"),
    ],
)
def test_a_rule_that_is_none_is_named_with_its_key_and_line(rule: Any, summary: str) -> None:
    with pytest.raises(Invalid) as caught:
        manifest({"period": rule})
    assert caught.value.message.startswith(f"manifest: metadata.custom_schema.period: {summary}")


def test_a_manifest_file_that_is_wrong_in_its_schema_names_the_line_of_the_field() -> None:
    source = "id: a\nname: b\nmetadata:\n  custom_schema:\n    ok: date\n    bad: flaot\n"
    with pytest.raises(Invalid, match=r"m\.yaml, line 6: metadata\.custom_schema\.bad: 'flaot'"):
        read_manifest(source, where="m.yaml")


def test_the_schema_stays_as_its_author_wrote_it() -> None:
    assert manifest(ART).metadata.custom_schema == ART


_PLAIN = st.one_of(
    st.text(max_size=20),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.booleans(),
)


@given(
    kind=st.sampled_from(FieldKind),
    value=st.one_of(_PLAIN, st.lists(_PLAIN, max_size=4), st.none()),
)
def test_what_was_kept_is_kept_again_as_it_is(kind: FieldKind, value: Any) -> None:
    """Reading is done at the addition and again at the publication."""
    rule = FieldRule(kind)
    try:
        kept = rule.read(value)
    except ValueError:
        return
    assert rule.read(kept) == kept
    assert type(rule.read(kept)) is type(kept)


def test_the_sender_wins_over_the_path_and_the_path_over_the_file() -> None:
    art = manifest({"year": "integer"}, "{year}/{city}.md")
    accepted_fields = accepted_meta(art, "file:///museum/1905/berlin.md", {"city": "Dresden"})
    assert accepted_fields == {"year": 1905, "city": "Dresden"}
    inside = {"year": 2000, "city": "Rome", "author": "Kirchner"}
    assert published_meta(art, inside, accepted_fields) == {
        **inside,
        "year": 1905,
        "city": "Dresden",
    }


def test_an_addition_is_refused_and_a_publication_fails_by_the_name_of_the_field() -> None:
    art = manifest({"year": {"type": "integer", "required": True}}, "{year}.md")
    with pytest.raises(Invalid, match=r"meta\.year must be a whole number, not 'old'"):
        accepted_meta(art, "file:///museum/old.md", {})
    assert accepted_meta(art, "file:///museum/1905.txt", {}) == {}
    with pytest.raises(IngestFailed, match=r"meta\.year is required") as caught:
        published_meta(art, {"year": None}, {})
    assert caught.value.details == {"fields": ["year"]}


@given(st.dictionaries(st.text(max_size=5), _PLAIN, min_size=1, max_size=5))
def test_the_digest_of_meta_knows_no_order(meta: dict[str, Any]) -> None:
    again = dict(reversed(meta.items()))
    assert given_digest(meta) == given_digest(again) != given_digest({})
    assert given_digest({}) is None
