"""Filters of a request to several containers: each container's schema has its say, and what is wrong is named."""

from __future__ import annotations

from typing import Any

import pytest

from latent_core.domain.errors import Invalid
from latent_core.domain.manifest.model import Manifest
from latent_core.search.constraints import read_filters


def manifest(container_id: str, **fields: Any) -> Manifest:
    return Manifest(id=container_id, name="x", metadata={"custom_schema": fields})


PLAIN = manifest("plain")
BOOKS = manifest("books", year="integer", city=["Berlin", "Potsdam"], when="date", tags="list")
PLANS = manifest("plans", year="integer", scale="number")


def test_no_filter_lets_everything_through() -> None:
    read = read_filters({}, [PLAIN, BOOKS])
    assert not any(read.conditions)
    assert len(read.conditions) == 2
    assert read.shown == {}


def test_one_value_and_a_list_mean_the_same() -> None:
    one, several = ({"source_type": "pdf"}, {"source_type": ["pdf"]})
    assert read_filters(one, [PLAIN]) == read_filters(several, [PLAIN])


def test_diagnostics_show_what_was_understood() -> None:
    read = read_filters({"modified": {"lte": "2026-01-31"}, "language": "de"}, [PLAIN])
    assert read.shown == {
        "modified": {"lt": "2026-02-01T00:00:00+00:00"},
        "language": ["german"],
    }


def test_containers_without_schemas_share_one_condition() -> None:
    read = read_filters({"meta.anything": 1}, [PLAIN, manifest("other")])
    assert read.conditions[0] is read.conditions[1]


def test_a_field_of_one_schema_may_be_filtered_in_all_containers() -> None:
    assert all(read_filters({"meta.scale": {"gt": 2.5}}, [BOOKS, PLANS]).conditions)


def test_any_field_may_be_filtered_where_one_container_declares_none() -> None:
    assert all(read_filters({"meta.whatever": 1}, [BOOKS, PLAIN]).conditions)


def test_what_parsers_write_needs_no_declaration() -> None:
    assert read_filters({"meta.author": {"contains": "Ada"}}, [BOOKS]).conditions[0]


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        (
            {"meta.yaer": 2020},
            r"meta\.yaer: is not declared in the schema .* did you mean 'meta\.year'",
        ),
        ({"year": 2020}, r"year: is an unknown field; did you mean 'meta\.year'"),
        ({"meta.year": "2020"}, r"meta\.year: must be a whole number .* not '2020'"),
        ({"meta.year": True}, r"meta\.year: must be a whole number .* not true"),
        ({"meta.year": {"gte": 2020.5}}, r"meta\.year\.gte: must be a whole number"),
        ({"meta.year": {"contains": 2}}, r"meta\.year\.contains: does not apply to this field"),
        ({"meta.city": "Bonn"}, r"meta\.city: must be one of Berlin, Potsdam, not 'Bonn'"),
        ({"meta.when": {"gte": "soon"}}, r"meta\.when\.gte: must be a date"),
        (
            {"meta.tags": ["a"]},
            r"meta\.tags: does not apply to this field; its operators are contains",
        ),
        ({"meta.year.x": 1}, r"meta\.year\.x: is not declared in the schema"),
    ],
)
def test_what_a_schema_does_not_allow_is_refused_by_name(
    filters: dict[str, Any], message: str
) -> None:
    with pytest.raises(Invalid, match=message):
        read_filters(filters, [BOOKS, PLANS])
