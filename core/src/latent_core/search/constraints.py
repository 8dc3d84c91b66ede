"""Constraints on every hit: the filter, quoted phrases, exact terms, regular expressions, paths.

If few chunks meet a constraint, it lists them in time and the search covers only these. Otherwise each candidate is
checked.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from latent_core.bm25.exact import ExactIndex
from latent_core.bm25.phrases import PhraseIndex, Phrases
from latent_core.db.conditions import FilterCondition, condition
from latent_core.domain.errors import TimedOut
from latent_core.domain.filters.model import UNDECLARED, MetaFields, Node, all_of
from latent_core.domain.filters.syntax import parse, shown
from latent_core.domain.manifest.custom_schema import CustomSchema
from latent_core.domain.manifest.model import Manifest
from latent_core.search.exact import Matcher, Matches, exact_matches

ChunkNos = NDArray[np.int64]

MAX_NAMED: Final = 20_000
"""Chunks that a constraint may list; with more, each candidate is checked."""
MAX_READ: Final = 10_000
"""Chunks whose texts may be compared with phrases to list them."""
MAX_PHRASES: Final = 16
PROSE_WORDS: Final = 8
"""A query with more words outside its quotes is prose. Its quotes are titles or mentions: as exact phrases, most such
questions would match nothing."""
_QUOTED: Final = re.compile(r'"([^"]+)"|\u201c([^\u201c\u201d]+)\u201d')


class Constraint(Protocol):
    """One condition on every hit of a container. Raises ``TimedOut`` at the deadline."""

    async def all(self, among: ChunkNos | None, timeout_seconds: float) -> ChunkNos | None:
        """Every chunk that meets it (of ``among``); None when there are too many or time runs out."""

    async def passing(self, chunk_nos: ChunkNos, timeout_seconds: float) -> set[int]:
        """Those of ``chunk_nos`` that meet it."""


class PhraseConstraint(Constraint):
    """Chunks that contain the phrases as they are written."""

    def __init__(self, index: PhraseIndex, container_id: str, phrases: Phrases) -> None:
        self._index = index
        self._container_id = container_id
        self._phrases = phrases

    @override
    async def all(self, among: ChunkNos | None, timeout_seconds: float) -> ChunkNos | None:
        if not self._phrases.listable and among is None:
            return None
        try:
            async with asyncio.timeout(timeout_seconds):
                held = among
                if self._phrases.listable:
                    held = await self._index.with_terms(self._container_id, self._phrases)
                    held = held if among is None else np.intersect1d(held, among)
                if held is None or len(held) > MAX_READ:
                    return None
                return await self._index.with_phrases(self._container_id, self._phrases, held)
        except TimeoutError:
            return None

    @override
    async def passing(self, chunk_nos: ChunkNos, timeout_seconds: float) -> set[int]:
        try:
            async with asyncio.timeout(timeout_seconds):
                found = await self._index.with_phrases(self._container_id, self._phrases, chunk_nos)
        except TimeoutError as exc:
            raise TimedOut("Time ran out before the quoted phrases were checked.") from exc
        return set(found.tolist())


class ExactConstraint(Constraint):
    """Chunks that match the exact query. Keeps the matches for the reasons of the hits."""

    def __init__(self, index: ExactIndex, container_id: str, matcher: Matcher) -> None:
        self._index = index
        self._container_id = container_id
        self._matcher = matcher
        self.matches = Matches()

    @override
    async def all(self, among: ChunkNos | None, timeout_seconds: float) -> ChunkNos | None:
        self.matches = await self._find(among, timeout_seconds)
        return _chunk_nos(self.matches) if self.matches.complete else None

    @override
    async def passing(self, chunk_nos: ChunkNos, timeout_seconds: float) -> set[int]:
        known = self.matches.by_chunk_no
        unknown = [chunk_no for chunk_no in chunk_nos.tolist() if chunk_no not in known]
        if unknown:
            found = await self._find(np.array(unknown, np.int64), timeout_seconds)
            if found.late:
                raise TimedOut("Time ran out before exact terms and expressions were checked.")
            known.update(found.by_chunk_no)
        return {chunk_no for chunk_no in chunk_nos.tolist() if chunk_no in known}

    async def _find(self, among: ChunkNos | None, timeout_seconds: float) -> Matches:
        return await exact_matches(
            self._index,
            self._container_id,
            self._matcher,
            chunk_nos=among,
            timeout_seconds=timeout_seconds,
        )


def _chunk_nos(matches: Matches) -> ChunkNos:
    return np.array(sorted(matches.by_chunk_no), dtype=np.int64)


def has_quotes(query: str) -> bool:
    """Whether anything stands in quotes."""
    return any((one or other).strip() for one, other in _QUOTED.findall(query))


def quoted(query: str) -> list[str]:
    """The quoted phrases of a query; none for prose."""
    if len(_QUOTED.sub(" ", query).split()) > PROSE_WORDS:
        return []
    found = [one or other for one, other in _QUOTED.findall(query)]
    return [phrase for phrase in found if phrase.strip()][:MAX_PHRASES]


def unquoted(query: str) -> str:
    """The query without its quoted phrases."""
    return _QUOTED.sub(" ", query) if quoted(query) else query


def constraints_of(
    container_id: str,
    languages: Sequence[str],
    query: str,
    matcher: Matcher | None,
    phrases: PhraseIndex,
    exact: ExactIndex,
) -> tuple[list[Constraint], ExactConstraint | None]:
    """The constraints of a query in one container; the exact one also separately, for its matches."""
    found: list[Constraint] = []
    phrases_found = Phrases.of(quoted(query), languages)
    if phrases_found:
        found.append(PhraseConstraint(phrases, container_id, phrases_found))
    exact_constraint = (
        ExactConstraint(exact, container_id, matcher) if matcher is not None else None
    )
    if exact_constraint is not None:
        found.append(exact_constraint)
    return found, exact_constraint


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


def meta_fields(manifests: Sequence[Manifest]) -> list[MetaFields]:
    """The meta fields that requests to these containers may name."""
    schemas = [manifest.metadata.custom_schema for manifest in manifests]
    return _fields(schemas) if any(schemas) else [UNDECLARED]


def _fields(schemas: Sequence[Mapping[str, Any]]) -> list[MetaFields]:
    """A field that one container declares is valid for all; if one container declares none, every field is valid."""
    known = frozenset(name for schema in schemas for name in schema) if all(schemas) else None
    return [
        MetaFields(CustomSchema.of(schema).rules, known) if schema else UNDECLARED
        for schema in schemas
    ]
