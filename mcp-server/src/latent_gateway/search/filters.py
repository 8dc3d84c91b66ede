"""Filters: which chunks may answer. Postgres alone judges them (DESIGN §7.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from latent_core.domain.chunk import Modality, SourceType
from latent_core.domain.errors import Invalid
from latent_core.registry.chunks import Condition

MAX_VALUES: Final = 1000
SELECTIVE: Final = 20_000
"""Up to so many chunks a filter is applied before the cut, above it after."""

FIELDS: Final = ("source_type", "modality", "doc_id")


def shown(condition: Condition) -> dict[str, Any]:
    """A condition as the diagnostics tell it."""
    given = {
        "source_type": condition.source_types,
        "modality": condition.modalities,
        "doc_id": condition.doc_ids,
    }
    return {name: [str(v) for v in values] for name, values in given.items() if values is not None}


def parse_filters(filters: Mapping[str, Any]) -> Condition:
    """Read a request's filters; ``Invalid`` names what cannot be read."""
    unknown = sorted(set(filters) - set(FIELDS))
    if unknown:
        raise Invalid(
            f"unknown filter '{unknown[0]}'; known are {', '.join(FIELDS)}", fields=unknown
        )
    return Condition(
        source_types=_closed(filters, "source_type", [s.value for s in SourceType]),
        modalities=_closed(filters, "modality", [m.value for m in Modality]),
        doc_ids=_ids(filters),
    )


def _values(filters: Mapping[str, Any], name: str) -> list[str] | None:
    value = filters.get(name)
    if value is None:
        return None
    values = value if isinstance(value, list) else [value]
    if not values or len(values) > MAX_VALUES or not all(isinstance(v, str) for v in values):
        raise Invalid(
            f"filter '{name}' takes a text or a list of 1 to {MAX_VALUES} texts", field=name
        )
    return values


def _closed(filters: Mapping[str, Any], name: str, known: list[str]) -> tuple[str, ...] | None:
    values = _values(filters, name)
    if values is None:
        return None
    wrong = sorted(set(values) - set(known))
    if wrong:
        raise Invalid(f"filter '{name}': '{wrong[0]}' is none of {', '.join(known)}", field=name)
    return tuple(sorted(set(values)))


def _ids(filters: Mapping[str, Any]) -> tuple[UUID, ...] | None:
    values = _values(filters, "doc_id")
    if values is None:
        return None
    try:
        return tuple(sorted({UUID(v) for v in values}))
    except ValueError as exc:
        raise Invalid("filter 'doc_id' takes document ids (UUIDs)", field="doc_id") from exc
