"""Facets: how many of the matching documents have each value of a field.

Counted are documents, not chunks, that the principal may read and that pass the filter and every exact constraint:

- in a search by words those with at least one word of the query;

- in a search by meaning alone, or if no word of the query is in the container, all that pass: vectors order every
  document and exclude none.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

import numpy as np
import orjson
from numpy.typing import NDArray

from latent_core.bm25.matches import chunks_with_terms
from latent_core.db.conditions import COUNTABLE
from latent_core.db.connection import deadline
from latent_core.db.documents import facets as counted_rows
from latent_core.db.documents.facets import DocumentCounts, FieldCounts
from latent_core.domain.errors import Invalid, Issue, IssueCode, ServiceUnreachable, TimedOut
from latent_core.domain.filters.model import META, Column, MetaField
from latent_core.domain.filters.syntax import field_named
from latent_core.domain.manifest.model import Manifest
from latent_core.search.constraints import meta_fields
from latent_core.search.container_search import ContainerSearch
from latent_core.search.plan import BM25, VECTOR, SearchPlan
from latent_core.search.readable import SearchStores
from latent_core.search.rounds import SearchScope
from latent_core.search.time_budget import TimeBudget
from latent_core.wire.search import MAX_FACET_VALUES, Facet, FacetValue


class RequestField(StrEnum):
    """Fields that are counted and no filter names, since the request has an argument for them."""

    CONTAINER = "container"
    """By id, as in ``containers``."""


FacetField: TypeAlias = Column | MetaField | RequestField
ChunkNos: TypeAlias = NDArray[np.int64]

CONTAINERS_AT_ONCE: Final = 4
"""Each needs a connection of the pool."""


@dataclass(frozen=True, slots=True)
class FacetCounts:
    """The facets of a search, by field."""

    facets: Mapping[str, Facet]
    issues: Sequence[Issue]
    """One for each container that was not counted in time."""


def facet_fields(names: Sequence[str], manifests: Sequence[Manifest]) -> dict[str, FacetField]:
    """The fields of these names; ``Invalid`` for one that is unknown to one of the containers, or not countable."""
    found: dict[str, FacetField] = {}
    for n, name in enumerate(names):
        at = f"facets[{n}]"
        if name in list(RequestField):
            found[name] = RequestField(name)
            continue
        field = _known_to_all(name, at, manifests)
        if isinstance(field, Column) and field not in COUNTABLE:
            countable = ", ".join((*COUNTABLE, *RequestField))
            raise Invalid(f"{at}: '{name}' cannot be counted; use {countable} or {META}<name>")
        found[name] = field
    return found


def _known_to_all(name: str, at: str, manifests: Sequence[Manifest]) -> Column | MetaField:
    first, *_ = [field_named(name, at, meta) for meta in meta_fields(manifests)]
    return first


async def count_facets(
    stores: SearchStores,
    plan: SearchPlan,
    searches: Sequence[ContainerSearch],
    fields: Mapping[str, FacetField],
) -> FacetCounts:
    """The facets of a search whose channels have run."""
    budget = TimeBudget.start(plan.deadline_seconds)
    slots = asyncio.Semaphore(CONTAINERS_AT_ONCE)
    stored = {name: one for name, one in fields.items() if not isinstance(one, RequestField)}

    async def counted(search: ContainerSearch) -> DocumentCounts | Issue:
        container = search.result.plan.container
        try:
            async with slots, budget.limit():
                with deadline(budget.remaining()):
                    return await _count(stores, plan, search, list(stored.values()), budget)
        except (TimeoutError, TimedOut, ServiceUnreachable):
            message = (
                f"container '{container.id}': its facets were not counted in time and are missing."
            )
            details = {"container_id": container.id}
            return Issue(code=IssueCode.TIMEOUT, message=message, details=details)

    answers = await asyncio.gather(*map(counted, searches))
    counts = {
        search.result.plan.container.id: one
        for search, one in zip(searches, answers, strict=True)
        if isinstance(one, DocumentCounts)
    }
    documents = {container_id: one.documents for container_id, one in counts.items()}
    found = {
        name: _facet([one.fields[n] for one in counts.values()], sum(documents.values()))
        for n, name in enumerate(stored)
    }
    facets = {name: found.get(name) or _of_containers(documents) for name in fields}
    return FacetCounts(facets, [one for one in answers if isinstance(one, Issue)])


async def _count(
    stores: SearchStores,
    plan: SearchPlan,
    search: ContainerSearch,
    fields: Sequence[Column | MetaField],
    budget: TimeBudget,
) -> DocumentCounts:
    part = search.result.plan
    chunk_nos = await _matching(stores, search, budget)
    async with stores.db.reading() as conn:
        return await counted_rows.count(
            conn,
            part.container.id,
            fields,
            part.condition,
            chunk_nos,
            superseded=plan.include_superseded,
        )


async def _matching(
    stores: SearchStores, search: ContainerSearch, budget: TimeBudget
) -> ChunkNos | None:
    """The chunks that match, before the filter; None for all."""
    scope = search.scope
    if scope is None:
        raise TimedOut("The constraints were not checked in time.")
    found = None if scope.allowed is None else scope.allowed.chunk_nos
    worded = await _worded(stores, search, scope)
    if worded is not None:
        found = worded if found is None else np.intersect1d(found, worded)
    for constraint in scope.candidate_checks:
        if found is None:
            raise TimedOut("Too many chunks to check.")
        passing = await constraint.passing(found, budget.remaining())
        found = np.array(sorted(passing), np.int64)
    return found


async def _worded(
    stores: SearchStores, search: ContainerSearch, scope: SearchScope
) -> ChunkNos | None:
    """The chunks with a word of the query; None if words exclude none. Of a phrase in too many chunks to list, the
    words are checked first."""
    part, terms = search.result.plan, search.result.terms
    if BM25 not in part.channels and not (scope.candidate_checks and terms):
        return None
    async with stores.db.reading() as conn:
        found = await chunks_with_terms(conn, part.container.id, terms)
    return found if len(found) or VECTOR not in part.channels else None


def _of_containers(documents: Mapping[str, int]) -> Facet:
    """``documents``: by the container that has them."""
    values = {orjson.dumps(one).decode(): n for one, n in documents.items() if n}
    total = sum(documents.values())
    return _facet([FieldCounts(values, total, len(values), total)], total)


def _facet(counts: Sequence[FieldCounts], documents: int) -> Facet:
    """The counts of several containers as one facet."""
    values: Counter[str] = Counter()
    for one in counts:
        values.update(one.values)
    listed = sorted(values.items(), key=lambda pair: (-pair[1], pair[0]))[:MAX_FACET_VALUES]
    unread = sum(one.distinct - len(one.values) for one in counts)
    return Facet(
        documents=documents,
        values=[FacetValue(value=_value(text), count=n) for text, n in listed],
        other_count=sum(one.counted for one in counts) - sum(n for _, n in listed),
        other_values=len(values) - len(listed) + unread,
        missing=documents - sum(one.with_value for one in counts),
    )


def _value(text: str) -> Any:
    return orjson.loads(text)
