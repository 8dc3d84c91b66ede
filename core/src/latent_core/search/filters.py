"""Filters of a request, per container. Only Postgres evaluates them (DESIGN §7.2)."""

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
"""A filter that allows at most this many chunks is applied before retrieval; a broader one to the candidates, most of
which pass it."""
STUBBORN: Final = 20_000
"""The same limit after two rounds in which too few candidates passed: listing more chunks takes longer."""


@dataclass(frozen=True, slots=True)
class RequestFilters:
    """The parsed filter of one request."""

    conditions: tuple[FilterCondition, ...]
    """One per container, in their order: each schema defines the types of its meta fields."""
    shown: dict[str, Any]
    """As the diagnostics show it."""


def read_filters(
    written: Mapping[str, Any],
    manifests: Sequence[Manifest],
    modes: Sequence[Node | None] | None = None,
) -> RequestFilters:
    """Parse a request's filter; ``Invalid`` names the part that is malformed or unknown to one of the containers.

    ``modes``: the condition that the search mode adds per container; not shown.
    """
    mode_nodes = modes or [None] * len(manifests)
    schemas = [manifest.metadata.custom_schema for manifest in manifests]
    if not written:
        nodes: Sequence[Node | None] = [None] * len(manifests)
    elif not any(schemas):
        nodes = [parse(written)] * len(manifests)
    else:
        nodes = [parse(written, fields) for fields in _fields(schemas)]
    pairs = list(zip(nodes, mode_nodes, strict=True))
    # By identity, not equality: Python treats 1, 1.0 and True as equal.
    compiled = {(id(node), id(mode)): _both(node, mode) for node, mode in pairs}
    return RequestFilters(
        tuple(compiled[id(node), id(mode)] for node, mode in pairs),
        next((shown(node) for node in nodes if node), {}),
    )


def _both(node: Node | None, mode: Node | None) -> FilterCondition:
    parts = [part for part in (node, mode) if part is not None]
    return condition(all_of(parts) if parts else None)


def _fields(schemas: Sequence[Mapping[str, Any]]) -> list[MetaFields]:
    """A field that one container declares is valid for all; if one container declares none, every field is valid."""
    known = frozenset(name for schema in schemas for name in schema) if all(schemas) else None
    return [
        MetaFields(CustomSchema.of(schema).rules, known) if schema else UNDECLARED
        for schema in schemas
    ]
