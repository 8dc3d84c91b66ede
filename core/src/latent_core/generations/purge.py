"""Remove what superseded generations and deleted things left in the stores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from latent_core.blobs.port import BlobStore
from latent_core.domain.ids import Sha256
from latent_core.generations.delete import PurgePayload
from latent_core.generations.stage import Checkpoint
from latent_core.keywords import postings
from latent_core.registry import chunks, containers, documents, garbage, pages
from latent_core.registry.connection import Connection, Database
from latent_core.registry.containers import Space
from latent_core.vectors.port import VectorIndex

ROWS_A_TRANSACTION: Final = 2000
DOCUMENTS_A_TRANSACTION: Final = 200
"""Each takes its chunks and pages with it."""
BLOBS_A_LOOK: Final = 1000


@dataclass(frozen=True, slots=True)
class Purged:
    """What a purge removed, a store each."""

    points: int = 0
    chunks: int = 0
    pages: int = 0
    blob_refs: int = 0


async def purge_points(
    db: Database,
    index: VectorIndex,
    container_id: str,
    payload: PurgePayload,
    checkpoint: Checkpoint,
) -> int:
    """Delete vectors, in the spaces the purge was made for. Never those of what is live."""
    async with db.transaction() as conn:
        spaces = [s for s in await containers.spaces(conn, container_id) if s.id in payload.spaces]
    removed = 0
    for doc_id, generation in payload.below:
        removed += await _delete(index, spaces, doc_id, checkpoint, below=generation)
    for doc_id, generation in payload.only:
        async with db.transaction() as conn:
            if await pages.is_live(conn, doc_id, generation):
                continue
        removed += await _delete(index, spaces, doc_id, checkpoint, only=generation)
    return removed


async def _delete(
    index: VectorIndex,
    spaces: list[Space],
    doc_id: UUID,
    checkpoint: Checkpoint,
    *,
    below: int | None = None,
    only: int | None = None,
) -> int:
    removed = 0
    for space in spaces:
        await checkpoint()
        removed += await index.delete(space.collection(), doc_id, below=below, only=only)
    return removed


async def purge_rows(conn: Connection, payload: PurgePayload) -> Purged:
    """Delete the rows of dead generations, in the caller's transaction."""
    total = Purged()
    for doc_id, generation in payload.below:
        gone = await chunks.delete_dead(conn, doc_id, generation)
        gone_pages, gone_refs = await pages.delete_dead(conn, doc_id, generation)
        total = Purged(
            0, total.chunks + gone, total.pages + gone_pages, total.blob_refs + gone_refs
        )
    return total


async def purge_blobs(
    db: Database,
    store: BlobStore,
    *,
    older_than_seconds: float,
    checkpoint: Checkpoint,
    limit: int = BLOBS_A_LOOK,
) -> int:
    """Remove all blobs that nothing refers to and nobody has touched for a while, ``limit`` a look; how many."""
    async with db.transaction() as conn:
        await garbage.drop_spent_uploads(conn, older_than_seconds)
    total = 0
    while True:
        removed = await _purge_some_blobs(db, store, older_than_seconds, limit, checkpoint)
        total += removed
        if removed < limit:
            return total


async def _purge_some_blobs(
    db: Database, store: BlobStore, older_than_seconds: float, limit: int, checkpoint: Checkpoint
) -> int:
    """A blob's row stays locked while its bytes go: whoever stores the same bytes again waits for the
    lock, then finds no row and writes them anew."""
    removed = 0
    async with db.transaction() as conn:
        candidates = await garbage.unreferenced(conn, older_than_seconds, limit)
    for sha256 in candidates:
        await checkpoint()
        async with db.transaction() as conn:
            if await garbage.lock_unreferenced(conn, sha256, older_than_seconds):
                await store.delete(Sha256(sha256))
                await garbage.remove(conn, sha256)
                removed += 1
    return removed


async def purge_container(
    db: Database, index: VectorIndex, container_id: str, checkpoint: Checkpoint
) -> None:
    """Remove all of a tombstoned container but its row: collections, documents, postings.

    The caller makes sure that no job of the container runs any more.
    """
    async with db.transaction() as conn:
        spaces = await containers.spaces(conn, container_id)
    for space in spaces:
        await checkpoint()
        await index.drop_collection(space.collection())
    batch = 1
    while batch:
        await checkpoint()
        async with db.transaction() as conn:
            batch = await documents.remove_batch(conn, container_id, DOCUMENTS_A_TRANSACTION)
    batch = 1
    while batch:
        await checkpoint()
        async with db.transaction() as conn:
            batch = await postings.drop_batch(conn, container_id, ROWS_A_TRANSACTION)
