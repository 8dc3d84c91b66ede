"""Neighbours: what stands before and after a hit in its document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from latent_core.domain.hit import Hit, Neighbour
from latent_core.registry import texts
from latent_core.registry.connection import Database
from latent_core.search.render import place_view


async def with_neighbours(
    db: Database, hits: Sequence[Hit], ordinals: Mapping[UUID, int], reach: int
) -> list[Hit]:
    """The hits with up to ``reach`` chunks on either side; ``ordinals`` are theirs."""
    if not hits:
        return []
    chosen = [(hit.doc_id, hit.provenance.generation, ordinals[hit.chunk_id]) for hit in hits]
    async with db.reading() as conn:
        rows = await texts.around(conn, chosen, reach)
    shown = []
    for hit in hits:
        at = ordinals[hit.chunk_id]
        own = [row for row in rows if (row["doc_id"], row["hit_ordinal"]) == (hit.doc_id, at)]
        before = [_neighbour(row) for row in own if row["ordinal"] < at]
        after = [_neighbour(row) for row in own if row["ordinal"] > at]
        shown.append(hit.model_copy(update={"before": before, "after": after}))
    return shown


def _neighbour(row: Mapping[str, Any]) -> Neighbour:
    return Neighbour(chunk_id=row["id"], text=row["text"], place=place_view(row))
