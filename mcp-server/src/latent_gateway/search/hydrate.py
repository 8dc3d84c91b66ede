"""Hydrate: read what the hits show, again through the join on the live generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from latent_core.registry import chunks, pages
from latent_core.registry.connection import Database
from latent_gateway.search.dedup import Candidate, Group


@dataclass(frozen=True, slots=True)
class Hydrated:
    """Rows by (container, ord), and page rows by (document, page)."""

    chunks: dict[tuple[str, int], dict[str, Any]]
    pages: dict[tuple[UUID, int], dict[str, Any]]

    def chunk(self, candidate: Candidate) -> dict[str, Any] | None:
        return self.chunks.get((candidate.container_id, candidate.ord))


async def hydrate(db: Database, groups: Sequence[Group]) -> Hydrated:
    """Everything ``groups`` show; what is not visible any more is absent."""
    wanted: dict[str, list[int]] = {}
    for one in groups:
        for candidate in (one.best, *one.others):
            wanted.setdefault(candidate.container_id, []).append(candidate.ord)
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    async with db.transaction() as conn:
        for container_id, ords in wanted.items():
            found = await chunks.hydrate(conn, container_id, ords)
            rows.update({(container_id, ord_): row for ord_, row in found.items()})
        best = [row for one in groups if (row := rows.get((one.best.container_id, one.best.ord)))]
        images = await pages.images(
            conn,
            [(row["doc_id"], row["generation"]) for row in best],
            [page for row in best for page in page_span(row)],
        )
    return Hydrated(rows, images)


def page_span(row: dict[str, Any]) -> range:
    """Pages a chunk spans; empty when it has no page (yet)."""
    if row["page"] is None:
        return range(0)
    return range(row["page"], (row["page_end"] or row["page"]) + 1)
