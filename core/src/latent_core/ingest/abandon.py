"""Abandon generations that no attempt will publish, because the job was cancelled, failed or died with its process.

An attempt that ends by itself purges its own points. An attempt whose process was killed cannot, and a later attempt
may find nothing left to do. Documents that an import accepted but did not publish are deleted, since no other job
would do that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from latent_core.db import containers
from latent_core.db.connection import Database
from latent_core.db.doctor import abandoned_generations
from latent_core.db.documents import documents
from latent_core.domain.job import ClaimedJob
from latent_core.ingest.delete import delete_documents, enqueue_purges
from latent_core.queue.finish import hold

DOCUMENTS_PER_LOOK: Final = 500


async def purge_abandoned(
    db: Database,
    *,
    principal: str,
    lease_seconds: float,
    ending: ClaimedJob | None = None,
    container_id: str | None = None,
) -> int:
    """Enqueue purges for abandoned generations, of all containers or one; returns the number of documents.

    ``ending``: an import that its holder is about to abandon; it counts as ended. ``LeaseLost`` if the lease is lost.
    """
    total, but = 0, ending.id if ending is not None else 0
    while True:
        async with db.transaction() as conn:
            found = await abandoned_generations.find(
                conn, DOCUMENTS_PER_LOOK, container_id=container_id, but=but
            )
        aborted = [
            await _give_up(db, one, doc_ids, principal, lease_seconds, ending)
            for one, doc_ids in found.items()
        ]
        total += sum(aborted)
        if sum(aborted) < DOCUMENTS_PER_LOOK:
            return total


async def _give_up(
    db: Database,
    container_id: str,
    doc_ids: Sequence[UUID],
    principal: str,
    lease_seconds: float,
    ending: ClaimedJob | None,
) -> int:
    async with db.transaction() as conn:
        if ending is not None:
            await hold(conn, ending)  # no other worker continues it meanwhile
        if await containers.hold(conn, container_id) is None:
            return 0  # its deletion removes everything
        await documents.lock(conn, doc_ids)
        found = await abandoned_generations.give_up(
            conn, doc_ids, but=ending.id if ending is not None else 0
        )
        forsaken = await abandoned_generations.never_live(conn, [a.doc_id for a in found])
        if forsaken:
            await delete_documents(
                conn, container_id, forsaken, principal=principal, lease_seconds=lease_seconds
            )
        left = [a for a in found if a.doc_id not in set(forsaken)]
        if left:
            await enqueue_purges(
                conn,
                container_id,
                only=[(a.doc_id, n) for a in left for n in range(a.first, a.below)],
                principal=principal,
                lease_seconds=lease_seconds,
            )
        return len(found)
