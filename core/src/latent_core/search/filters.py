"""Filters of a request, for each container it asks. Postgres alone judges by them (DESIGN §7.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from latent_core.db.conditions import FilterCondition, condition
from latent_core.domain.filters.model import UNDECLARED, MetaFields, Node, all_of
from latent_core.domain.filters.syntax import parse, shown
from latent_core.domain.manifest.custom_schema import CustomSchema
from latent_core.domain.manifest.model import Manifest

SELECTIVE: Final = 5_000
"""Up to so many chunks a filter is applied before the cut, above it after: most of what comes up passes it then."""
STUBBORN: Final = 20_000
"""The same, once two rounds have shown that too little of what comes up does: to name more takes longer."""


@dataclass(frozen=True, slots=True)
class RequestFilters:
    """One request's filter, read."""

    conditions: tuple[FilterCondition, ...]
    """One a container, in their order: what a field of the meta holds is each schema's to say."""
    shown: dict[str, Any]
    """As the diagnostics tell it."""


def read_filters(
    written: Mapping[str, Any],
    manifests: Sequence[Manifest],
    modes: Sequence[Node | None] | None = None,
) -> RequestFilters:
    """Read a request's filter; ``Invalid`` names what cannot be read, or asked in one of the containers.

    ``modes`` is what the mode asks of each container's chunks beside it; it is not shown.
    """
    requested_modes = modes or [None] * len(manifests)
    schemas = [manifest.metadata.custom_schema for manifest in manifests]
    if not written:
        nodes: Sequence[Node | None] = [None] * len(manifests)
    elif not any(schemas):
        nodes = [parse(written)] * len(manifests)
    else:
        nodes = [parse(written, fields) for fields in _fields(schemas)]
    pairs = list(zip(nodes, requested_modes, strict=True))
    # The same nodes, not equal ones: to Python 1 is true, and 1.0.
    compiled = {(id(node), id(mode)): _both(node, mode) for node, mode in pairs}
    return RequestFilters(
        tuple(compiled[id(node), id(mode)] for node, mode in pairs),
        next((shown(node) for node in nodes if node), {}),
    )


def _both(node: Node | None, mode: Node | None) -> FilterCondition:
    parts = [part for part in (node, mode) if part is not None]
    return condition(all_of(parts) if parts else None)


def _fields(schemas: Sequence[Mapping[str, Any]]) -> list[MetaFields]:
    """A field that one of the containers declares may be asked of all; where one declares none, any may."""
    known = frozenset(name for schema in schemas for name in schema) if all(schemas) else None
    return [
        MetaFields(CustomSchema.of(schema).rules, known) if schema else UNDECLARED
        for schema in schemas
    ]
