"""The rows of the hits of a page: one query per container for the shown chunks, one for the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from latent_core.db.connection import Connection, Database
from latent_core.db.documents import chunks, pages
from latent_core.db.documents.chunks import HitRow, PlaceRow
from latent_core.db.documents.pages import MissingImage
from latent_core.search.ranking import Group, RankedCandidate

Row = TypeVar("Row")

Read = Callable[[Connection, str, Sequence[int]], Awaitable[dict[int, Row]]]
"""Rows of those chunk_nos of a container that are visible."""


@dataclass(frozen=True, slots=True)
class HydratedRows:
    """Rows by (container, chunk_no)."""

    chunks: dict[tuple[str, int], HitRow]
    """Of the groups' best and of their passages."""
    places: dict[tuple[str, int], PlaceRow]
    """Of their others and of their duplicates."""
    lacks: dict[UUID, MissingImage]
    """Documents without an image: whether and why it is missing."""

    def chunk(self, candidate: RankedCandidate) -> HitRow | None:
        return self.chunks.get((candidate.container_id, candidate.chunk_no))

    def place(self, candidate: RankedCandidate) -> PlaceRow | None:
        return self.places.get((candidate.container_id, candidate.chunk_no))


async def hydrate(db: Database, groups: Sequence[Group]) -> HydratedRows:
    """All rows that ``groups`` show, without those that are no longer visible."""
    async with db.reading() as conn:
        shown = await _rows(
            conn, chunks.hydrate, [c for g in groups for c in (g.best, *g.passages)]
        )
        others = await _rows(
            conn, chunks.places, [c for g in groups for c in (*g.others, *g.duplicates)]
        )
        lacking = {row.doc_id for row in shown.values() if _lacks_image(row)}
        lacks = await pages.lacks(conn, sorted(lacking)) if lacking else {}
    return HydratedRows(shown, others, lacks)


def _lacks_image(row: HitRow) -> bool:
    """Whether an image of its pages is missing. Records of a corpus have no pages."""
    if row.parent_id is not None:
        return False
    return not row.pages or not all(page.image_sha256 for page in row.pages)


async def _rows(
    conn: Connection, read: Read[Row], candidates: Sequence[RankedCandidate]
) -> dict[tuple[str, int], Row]:
    by_container: dict[str, list[int]] = {}
    for candidate in candidates:
        by_container.setdefault(candidate.container_id, []).append(candidate.chunk_no)
    rows: dict[tuple[str, int], Row] = {}
    for container_id, chunk_nos in by_container.items():
        found = await read(conn, container_id, chunk_nos)
        rows.update({(container_id, chunk_no): row for chunk_no, row in found.items()})
    return rows
