"""The rows of the hits of a page: one query for the shown chunks, one for the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

from latent_core.db.connection import Connection, Database
from latent_core.db.documents import chunks, generated_chunks
from latent_core.db.documents.chunks import ChunkKey, HitRow, PlaceRow
from latent_core.domain.chunk import Modality
from latent_core.search.ranking import Group, RankedCandidate

Row = TypeVar("Row")

Read = Callable[[Connection, Sequence[ChunkKey]], Awaitable[dict[ChunkKey, Row]]]
"""Rows of those chunks that are visible."""


@dataclass(frozen=True, slots=True)
class HydratedRows:
    """Rows by (container, chunk_no)."""

    chunks: dict[ChunkKey, HitRow]
    """Of the groups' best and of their passages."""
    places: dict[ChunkKey, PlaceRow]
    """Of their others and of their duplicates."""
    captions: dict[tuple[UUID, int], str] = field(default_factory=dict)
    """What language models wrote about pictures, by document and page."""

    def chunk(self, candidate: RankedCandidate) -> HitRow | None:
        return self.chunks.get((candidate.container_id, candidate.chunk_no))

    def caption(self, row: HitRow) -> str | None:
        """What a language model wrote about a picture whose own text is only its name."""
        if row.modality != Modality.IMAGE.value or row.page is None:
            return None
        names = (row.title, f"{row.title or 'document'}, page {row.page}")
        return self.captions.get((row.doc_id, row.page)) if row.text in names else None

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
        pictures = {row.doc_id for row in shown.values() if row.modality == Modality.IMAGE.value}
        captions = await generated_chunks.captions(conn, sorted(pictures)) if pictures else {}
    return HydratedRows(shown, others, captions)


async def _rows(
    conn: Connection, read: Read[Row], candidates: Sequence[RankedCandidate]
) -> dict[ChunkKey, Row]:
    keys = [(c.container_id, c.chunk_no) for c in candidates]
    return await read(conn, keys) if keys else {}
