"""Facets as one counts by hand: what the counting in Postgres is held against."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from latent_core.wire.search import MAX_FACET_VALUES, Facet
from tests.support.oracles.filter_oracle import FilterRow, value_of


@dataclass(frozen=True, slots=True)
class NaiveFacet:
    """Of one field."""

    documents: int
    values: dict[str, int] = field(default_factory=dict)
    """By JSON text."""
    missing: int = 0

    @classmethod
    def of(cls, name: str, rows: Iterable[FilterRow]) -> NaiveFacet:
        """``rows`` are the matching chunks."""
        found: defaultdict[UUID, set[str]] = defaultdict(set)
        for row in rows:
            value = value_of(name, row)
            items = value if isinstance(value, list) else [value]
            found[row.doc_id] |= {_written(item) for item in items if item is not None}
        counts = Counter(text for values in found.values() for text in values)
        return cls(len(found), dict(counts), sum(not values for values in found.values()))


def assert_counted(facet: Facet, expected: NaiveFacet) -> None:
    listed = {_written(one.value): one.count for one in facet.values}
    assert (facet.documents, facet.missing) == (expected.documents, expected.missing)
    assert len(listed) == len(facet.values) <= MAX_FACET_VALUES
    assert all(expected.values.get(text) == count for text, count in listed.items())
    counts = [one.count for one in facet.values]
    assert counts == sorted(expected.values.values(), reverse=True)[: len(counts)]
    assert facet.other_count == sum(expected.values.values()) - sum(counts)
    assert facet.other_values == len(expected.values) - len(counts)


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
