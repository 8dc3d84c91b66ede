"""Merge the containers' candidates into one order, and show one hit a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

MAX_OTHERS: Final = 10
"""How many further chunks of its document a hit lists."""


class Candidate(NamedTuple):
    """A chunk that may be shown. Hundreds are made a search: a tuple is made in a third of the time."""

    container_id: str
    ord: int
    doc_id: UUID
    score: float
    """Base score, 0..1."""


class Group(NamedTuple):
    """A hit-to-be: the best chunk, and the others of its document that matched."""

    best: Candidate
    others: tuple[Candidate, ...] = ()


def group(candidates: Sequence[Candidate], *, by_document: bool) -> list[Group]:
    """Best first; ties by container, then by ord. With ``by_document`` each document appears once."""
    ranked = sorted(candidates, key=lambda c: (-c.score, c.container_id, c.ord))
    if not by_document:
        return [Group(c) for c in ranked]
    members: dict[UUID, list[Candidate]] = {}
    for candidate in ranked:
        members.setdefault(candidate.doc_id, []).append(candidate)
    return [Group(m[0], tuple(m[1 : 1 + MAX_OTHERS])) for m in members.values()]
