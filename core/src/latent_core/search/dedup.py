"""Merge the containers' candidates into one order: one hit per document, duplicates under their original."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

MAX_OTHERS: Final = 10
"""Further chunks of the same document that a hit lists."""
MAX_DUPLICATES: Final = 10
"""Near-duplicates in other documents that a hit lists."""


class RankedCandidate(NamedTuple):
    """A chunk that may be shown. A search creates hundreds: a tuple takes a third of a dataclass's time."""

    container_id: str
    chunk_no: int
    doc_id: UUID
    score: float
    """The sort key; may exceed 1 after freshness."""
    base: float = 0.0
    """Fused, 0..1."""
    freshness: float = 0.0
    """``latent_core.search.ranking.freshness_factor``"""


class Group(NamedTuple):
    """The future hit: the best chunk of a document and its other matching chunks."""

    best: RankedCandidate
    others: tuple[RankedCandidate, ...] = ()
    duplicates: tuple[RankedCandidate, ...] = ()
    """Best chunks of other documents' groups that repeat one of this document."""


def group(candidates: Sequence[RankedCandidate], *, by_document: bool) -> list[Group]:
    """Best first; ties by container, then by chunk_no. With ``by_document`` each document appears once."""
    ranked = sorted(candidates, key=lambda c: (-c.score, c.container_id, c.chunk_no))
    if not by_document:
        return [Group(c) for c in ranked]
    members: dict[UUID, list[RankedCandidate]] = {}
    for candidate in ranked:
        members.setdefault(candidate.doc_id, []).append(candidate)
    return [Group(m[0], tuple(m[1 : 1 + MAX_OTHERS])) for m in members.values()]


def collapse(groups: Sequence[Group], repeated: Mapping[UUID, UUID]) -> list[Group]:
    """Put groups that repeat each other under the best of them, not under the oldest.

    ``repeated`` maps a document to the document whose chunk its best chunk repeats. Only documents with a group of
    their own count: an original that is no candidate hides nothing.
    """
    known = {g.best.doc_id for g in groups}
    parents: dict[UUID, UUID] = {}
    for one in groups:
        child, parent = one.best.doc_id, repeated.get(one.best.doc_id)
        if parent in known and _root(parent, parents) != child:
            parents[child] = parent
    members: dict[UUID, list[Group]] = {}
    for one in groups:
        members.setdefault(_root(one.best.doc_id, parents), []).append(one)
    return [
        best._replace(duplicates=tuple(g.best for g in others[:MAX_DUPLICATES]))
        for best, *others in members.values()
    ]


def _root(doc_id: UUID, parents: Mapping[UUID, UUID]) -> UUID:
    while doc_id in parents:
        doc_id = parents[doc_id]
    return doc_id
