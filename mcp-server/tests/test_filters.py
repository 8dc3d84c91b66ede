"""Filters: what is not understood is refused by name."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from latent_core.domain.errors import Invalid
from latent_gateway.search.filters import parse_filters, shown


def test_one_value_and_a_list_mean_the_same() -> None:
    assert parse_filters({"source_type": "pdf"}) == parse_filters({"source_type": ["pdf"]})


def test_no_filter_lets_everything_through() -> None:
    assert not parse_filters({})


def test_diagnostics_show_what_was_applied() -> None:
    doc = UUID(int=5)
    assert shown(parse_filters({"doc_id": str(doc), "modality": ["text"]})) == {
        "modality": ["text"],
        "doc_id": [str(doc)],
    }


@pytest.mark.parametrize(
    ("filters", "named"),
    [
        ({"colour": "red"}, "colour"),
        ({"source_type": "film"}, "film"),
        ({"source_type": []}, "source_type"),
        ({"source_type": [1]}, "source_type"),
        ({"source_type": {"eq": "pdf"}}, "source_type"),
        ({"doc_id": "not-an-id"}, "doc_id"),
        ({"modality": ["text"] * 1001}, "modality"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(filters: dict[str, Any], named: str) -> None:
    with pytest.raises(Invalid, match=named):
        parse_filters(filters)
