"""Repair by removing unreferenced data. Data that has come into use since the report is kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final
from uuid import UUID

from latent_core.db import containers
from latent_core.db.blobs import blobs
from latent_core.db.connection import Connection
from latent_core.db.containers import Container
from latent_core.db.doctor import checks, deletion_proofs, repairs
from latent_core.db.documents import chunks, documents, pages
from latent_core.db.transfer import archives
from latent_core.doctor.blobs import blob_of
from latent_core.doctor.context import IN_MOTION, NotRepairable, RepairContext, lock_document
from latent_core.doctor.points import ORPHAN
from latent_core.doctor.reingest import reingest_document
from latent_core.domain.findings import StoreDifference
from latent_core.domain.ids import PointId, Sha256
from latent_core.domain.job import ArchiveKind
from latent_core.ingest.delete import (
    LEASES_TO_WAIT,
    delete_documents,
    enqueue_collection,
    enqueue_purges,
)

Drop = Callable[[RepairContext, StoreDifference], Awaitable[str]]


async def drop(ctx: RepairContext, container: Container | None, difference: StoreDifference) -> str:
    if difference.kind in WITHOUT_CONTAINER:
        return await WITHOUT_CONTAINER[difference.kind](ctx, difference)
    if container is None or difference.doc_id is None:
        raise NotRepairable("Its container or document is unknown.")
    if difference.kind == ORPHAN:
        return await _point(ctx, container, difference.doc_id, PointId(UUID(difference.object)))
    if difference.kind == "document":
        return await _take_back(ctx, container, difference.doc_id)
    if difference.generation is None:
        raise NotRepairable("Its generation is unknown.")
    return await _purge(ctx, container, difference.doc_id, difference.generation)


async def _purge(ctx: RepairContext, container: Container, doc_id: UUID, generation: int) -> str:
    """Purge points and rows of a generation that is not live. A pending document without a job is ingested again
    instead: its rows name its original."""
    async with ctx.db.transaction() as conn:
        if await containers.hold(conn, container.id) is None:
            raise NotRepairable("The container no longer exists.")
        await lock_document(conn, doc_id)
        if await pages.is_live(conn, doc_id, generation):
            return "It is live now."
        if await checks.with_open_work(conn, container.id, [doc_id]):
            return IN_MOTION
        if not await _waits_with_original(conn, container, doc_id):
            await repairs.overtake(
                conn, doc_id, generation
            )  # also between this commit and the purge
            await deletion_proofs.delete_dead(conn, doc_id, generation + 1)
            job_id = await enqueue_purges(
                conn,
                container.id,
                only=[(doc_id, generation)],
                principal=ctx.principal,
                lease_seconds=ctx.lease_seconds,
                twice=False,
            )
            return f"Job {job_id} purges generation {generation} of document {doc_id}."
    return (await reingest_document(ctx, container, doc_id)).message


async def _point(ctx: RepairContext, container: Container, doc_id: UUID, point: PointId) -> str:
    """Delete one point of a live generation. What writes points has an open job, and so has what deletes them."""
    async with ctx.db.transaction() as conn:
        if await containers.hold(conn, container.id) is None:
            raise NotRepairable("The container no longer exists.")
        await lock_document(conn, doc_id)
        if await checks.with_open_work(conn, container.id, [doc_id]):
            return IN_MOTION
        live = (await documents.lock(conn, [doc_id])).get(doc_id)
        space = container.space
        if live is not None and await chunks.expects(
            conn, doc_id, live, point, space.collection_id
        ):
            return "It belongs to a live chunk now."
        await ctx.index.delete_points(space.collection(), [point])
    return "It is deleted."


async def _waits_with_original(conn: Connection, container: Container, doc_id: UUID) -> bool:
    pending = await checks.pending_without_job(conn, container.id, 1, among=[doc_id])
    return bool(pending) and pending[0].has_original


async def _take_back(ctx: RepairContext, container: Container, doc_id: UUID) -> str:
    """Delete a pending document that has no stored bytes and no job."""
    async with ctx.db.transaction() as conn:
        if await containers.hold(conn, container.id) is None:
            raise NotRepairable("The container no longer exists.")
        await lock_document(conn, doc_id)
        row = await documents.row(conn, doc_id)
        if row is None or not await checks.pending_without_job(
            conn, container.id, 1, among=[doc_id]
        ):
            return "It is no longer pending, or a job is working on it."
        await delete_documents(
            conn,
            container.id,
            [doc_id],
            principal=ctx.principal,
            lease_seconds=ctx.lease_seconds,
        )
        await enqueue_collection(  # of its bytes, if some were stored
            conn, principal=ctx.principal, delay_seconds=LEASES_TO_WAIT * ctx.lease_seconds
        )
    return f"{row['uri']} is removed, because none of its bytes were stored. Add it again."


async def _blob(ctx: RepairContext, difference: StoreDifference) -> str:
    bucket, sha256 = blob_of(difference)
    size = await ctx.blobs.of(bucket).size(sha256)
    async with ctx.db.transaction() as conn:
        if size is not None:  # bytes without a row get a row, too young to be collected now
            await blobs.adopt(conn, bucket, sha256, size)
        job_id = await enqueue_collection(conn, principal=ctx.principal, delay_seconds=0.0)
    return f"Job {job_id} removes it unless it is used within two leases."


async def _collection(ctx: RepairContext, difference: StoreDifference) -> str:
    async with ctx.db.transaction() as conn:
        owned = {s.collection() for s in await containers.all_spaces(conn)}
        made = await containers.collections_made(conn)
    if difference.object in owned:
        return "It now belongs to a container."
    if not ctx.alone and difference.object not in made:
        raise NotRepairable("It is not from this installation.")
    await ctx.index.drop_collection(difference.object)
    return "It is dropped."


async def _archive(ctx: RepairContext, difference: StoreDifference) -> str:
    """Remove the row of an archive whose file is missing or damaged."""
    archive_id, kind = int(difference.object), ArchiveKind(difference.kind)
    async with ctx.db.transaction() as conn:
        found = await archives.get(conn, archive_id, kind)
    if found is None:
        return "It is already removed."
    await ctx.blobs.of(found.bucket).verify()  # a lost bucket must not cost the row of a backup
    size = await ctx.sound_size(found.bucket, Sha256(found.sha256))
    async with ctx.db.transaction() as conn:
        if size is not None:
            await repairs.mark_present(conn, found.bucket, found.sha256, size)
            return "Its bytes are intact; its row is corrected."
        await archives.remove(conn, archive_id, kind)
        await enqueue_collection(conn, principal=ctx.principal, delay_seconds=0.0)
    return f"The {kind.value} is removed. Request it again."


WITHOUT_CONTAINER: Final[dict[str, Drop]] = {
    "blob": _blob,
    "collection": _collection,
    ArchiveKind.EXPORT.value: _archive,
    ArchiveKind.IMPORT.value: _archive,
}
