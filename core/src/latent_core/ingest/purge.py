"""Remove the data of superseded generations, deleted documents and deleted containers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from latent_core.blobs.port import BlobStore
from latent_core.bm25 import postings
from latent_core.db import containers
from latent_core.db.blobs import blobs
from latent_core.db.connection import Connection, Database
from latent_core.db.containers import Space
from latent_core.db.doctor import deletion_proofs
from latent_core.db.documents import documents, generated_chunks, pages
from latent_core.domain.errors import NotFound
from latent_core.domain.ids import SHARED, ChunkId, Sha256, point_id
from latent_core.ingest.delete import PurgePayload
from latent_core.ingest.stage import Checkpoint
from latent_core.runtime.failpoint import failpoint
from latent_core.vectors.port import VectorIndex

ROWS_PER_TRANSACTION: Final = 2000
DOCUMENTS_PER_TRANSACTION: Final = 200
"""Chunks and pages are deleted with their documents."""
BLOBS_PER_LOOK: Final = 1000
POINTS_PER_DELETE: Final = 1000


@dataclass(frozen=True, slots=True)
class PurgeResult:
    """What a purge removed, per store."""

    chunks: int = 0
    postings: int = 0
    """Postings of these chunks. Searches ignore them once they are marked dead; a compaction drops them."""
    pages: int = 0
    blob_refs: int = 0
    blobs_released: int = 0
    """Blobs that are no longer referenced."""
    blobs_kept: int = 0
    """Blobs that are still referenced elsewhere."""


async def purge_points(
    db: Database,
    index: VectorIndex,
    container_id: str,
    payload: PurgePayload,
    checkpoint: Checkpoint,
) -> int:
    """Delete vectors in the spaces of the purge, never those of a live generation."""
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
    if payload.chunks:
        await _purge_chunks(db, index, container_id, payload, checkpoint)
    return removed


async def _purge_chunks(
    db: Database,
    index: VectorIndex,
    container_id: str,
    payload: PurgePayload,
    checkpoint: Checkpoint,
) -> None:
    """Delete the points of generated chunks without a row. Chunk ids are never used again, so none of them can appear
    meanwhile."""
    async with db.transaction() as conn:
        spaces = await containers.spaces(conn, container_id)
        if not {space.id for space in spaces} & set(payload.spaces):
            return  # the container was deleted and created again
        kept = await generated_chunks.existing(
            conn, container_id, [ChunkId(one.chunk) for one in payload.chunks]
        )
    ids = [
        point_id(one.chunk, one.generation, window)
        for one in payload.chunks
        if one.chunk not in kept
        for window in range(one.windows)
    ]
    for collection in dict.fromkeys(space.collection() for space in spaces):
        for start in range(0, len(ids), POINTS_PER_DELETE):
            await checkpoint()
            await index.delete_points(collection, ids[start : start + POINTS_PER_DELETE])


async def count_points(
    db: Database, index: VectorIndex, container_id: str, payload: PurgePayload
) -> int:
    """The number of vectors of the documents, before any is deleted."""
    async with db.transaction() as conn:
        spaces = [s for s in await containers.spaces(conn, container_id) if s.id in payload.spaces]
    total = 0
    for collection in dict.fromkeys(space.collection() for space in spaces):
        with suppress(NotFound):
            for doc_id, _ in payload.below:
                total += await index.count(collection, doc_id=doc_id)
    return total


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
    for collection in dict.fromkeys(space.collection() for space in spaces):
        await checkpoint()
        removed += await index.delete(collection, doc_id, below=below, only=only)
    return removed


async def purge_rows(conn: Connection, payload: PurgePayload) -> PurgeResult:
    """Delete the rows of dead generations, in the caller's transaction."""
    gone = [
        await deletion_proofs.delete_dead(conn, doc, generation)
        for doc, generation in payload.below
    ]
    released = {blob for one in gone for blob in one.blobs}
    kept = await deletion_proofs.still_referred_to(conn, released)
    return PurgeResult(
        chunks=sum(one.chunks for one in gone),
        postings=sum(one.postings for one in gone),
        pages=sum(one.pages for one in gone),
        blob_refs=sum(len(one.blobs) for one in gone),
        blobs_released=len(released) - kept,
        blobs_kept=kept,
    )


async def purge_blobs(
    db: Database,
    store: BlobStore,
    *,
    older_than_seconds: float,
    checkpoint: Checkpoint,
    limit: int = BLOBS_PER_LOOK,
) -> int:
    """Remove all blobs of a bucket that are unreferenced and old enough, ``limit`` per step; returns their number."""
    total = 0
    while True:
        removed = await _purge_some_blobs(db, store, older_than_seconds, limit, checkpoint)
        total += removed
        if removed < limit:
            return total


async def _purge_some_blobs(
    db: Database, store: BlobStore, older_than_seconds: float, limit: int, checkpoint: Checkpoint
) -> int:
    """A blob's row stays locked while its bytes are removed. A writer of the same bytes waits for the lock, then
    finds no row and writes the bytes again."""
    removed = 0
    async with db.transaction() as conn:
        candidates = await blobs.unreferenced(conn, store.bucket, older_than_seconds, limit)
    for sha256 in candidates:
        await checkpoint()
        async with db.transaction() as conn:
            if await blobs.lock_unreferenced(conn, store.bucket, sha256, older_than_seconds):
                failpoint("garbage.before_bytes")
                await store.delete(Sha256(sha256))
                failpoint("garbage.after_bytes")
                await blobs.remove(conn, store.bucket, sha256)
                removed += 1
    return removed


async def purge_former_tenants(db: Database, index: VectorIndex, checkpoint: Checkpoint) -> int:
    """Remove points that a slow worker wrote to a shared collection after its container or space was removed; a
    collection of its own would have refused them. Returns the number of collections."""
    names = [name for name in await index.collections() if name.startswith(SHARED)]
    if not names:
        return 0
    async with db.transaction() as conn:
        owned = {space.collection() for space in await containers.all_spaces(conn)}
        made = await containers.collections_made(conn)
    former = [name for name in names if name in made and name not in owned]
    for name in former:
        await checkpoint()
        await index.drop_collection(name)
    return len(former)


async def purge_container(
    db: Database,
    index: VectorIndex,
    container_id: str,
    checkpoint: Checkpoint,
    hold: Callable[[Connection], Awaitable[None]],
) -> None:
    """Remove collections, documents and postings of a tombstoned container; its row stays.

    The caller ensures that no job of the container is running. ``hold`` runs in the transaction of each removal and
    raises if the caller has lost the job: a worker that was frozen meanwhile must not delete rows of a restored
    container with the same id.
    """
    async with db.transaction() as conn:
        spaces = await containers.spaces(conn, container_id)
    for space in spaces:
        await checkpoint()
        failpoint("drop.before_collection")
        await index.drop_collection(space.collection())
        failpoint("drop.after_collection")
    batch = 1
    while batch:
        await checkpoint()
        async with db.transaction() as conn:
            await hold(conn)
            batch = await documents.remove_batch(conn, container_id, DOCUMENTS_PER_TRANSACTION)
    batch = 1
    while batch:
        await checkpoint()
        async with db.transaction() as conn:
            await hold(conn)
            batch = await postings.drop_batch(conn, container_id, ROWS_PER_TRANSACTION)
    failpoint("drop.after_rows")
