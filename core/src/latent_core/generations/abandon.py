"""Give up generations that no attempt will publish: its job was cancelled, failed, or died with its process.

An attempt that ends by itself has its own points purged. One whose process was killed, and whose job was
then cancelled or given up, can not; nor can a later attempt that finds nothing left to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from latent_core.generations.delete import enqueue_purges
from latent_core.registry import abandoned, containers, documents
from latent_core.registry.connection import Database

DOCUMENTS_A_LOOK: Final = 500


async def purge_abandoned(db: Database, *, principal: str, lease_seconds: float) -> int:
    """Enqueue purges for all of them; how many documents had some."""
    total = 0
    while True:
        async with db.transaction() as conn:
            found = await abandoned.find(conn, DOCUMENTS_A_LOOK)
        given_up = [
            await _give_up(db, container_id, doc_ids, principal, lease_seconds)
            for container_id, doc_ids in found.items()
        ]
        total += sum(given_up)
        if sum(given_up) < DOCUMENTS_A_LOOK:
            return total


async def _give_up(
    db: Database, container_id: str, doc_ids: Sequence[UUID], principal: str, lease_seconds: float
) -> int:
    async with db.transaction() as conn:
        if await containers.hold(conn, container_id) is None:
            return 0  # its deletion removes everything
        await documents.lock(conn, doc_ids)
        found = await abandoned.give_up(conn, doc_ids)
        if found:
            await enqueue_purges(
                conn,
                container_id,
                only=[(a.doc_id, n) for a in found for n in range(a.first, a.below)],
                principal=principal,
                lease_seconds=lease_seconds,
            )
        return len(found)
