"""Filters of a request, for each container it asks. Postgres alone judges by them (DESIGN §7.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from latent_core.domain.custom_schema import CustomSchema
from latent_core.domain.filter_syntax import parse, shown
from latent_core.domain.filters import UNDECLARED, MetaFields
from latent_core.domain.manifest import Manifest
from latent_core.registry.conditions import Condition, condition

SELECTIVE: Final = 5_000
"""Up to so many chunks a filter is applied before the cut, above it after: most of what comes up passes it then."""
STUBBORN: Final = 20_000
"""The same, once two rounds have shown that too little of what comes up does: to name more takes longer."""


@dataclass(frozen=True, slots=True)
class Filters:
    """One request's filter, read."""

    conditions: tuple[Condition, ...]
    """One a container, in their order: what a field of the meta holds is each schema's to say."""
    shown: dict[str, Any]
    """As the diagnostics tell it."""


def read_filters(written: Mapping[str, Any], manifests: Sequence[Manifest]) -> Filters:
    """Read a request's filter; ``Invalid`` names what cannot be read, or asked in one of the containers."""
    if not written:
        return Filters(tuple(Condition() for _ in manifests), {})
    schemas = [manifest.metadata.custom_schema for manifest in manifests]
    if not any(schemas):
        node = parse(written)
        return Filters((condition(node),) * len(manifests), shown(node) if node else {})
    nodes = [parse(written, fields) for fields in _fields(schemas)]
    return Filters(
        tuple(condition(node) for node in nodes),
        next((shown(node) for node in nodes if node), {}),
    )


def _fields(schemas: Sequence[Mapping[str, Any]]) -> list[MetaFields]:
    """A field that one of the containers declares may be asked of all; where one declares none, any may."""
    known = frozenset(name for schema in schemas for name in schema) if all(schemas) else None
    return [
        MetaFields(CustomSchema.of(schema).rules, known) if schema else UNDECLARED
        for schema in schemas
    ]
