"""Repair by re-ingest: a job makes the document again from its stored original, or fetches its web page again.

What is live stays live until the job publishes the next generation; the publication purges the old one with what was
damaged in it. Texts and pictures that have not changed take their vectors from the embedding cache.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from latent_core.db import containers
from latent_core.db.connection import Connection
from latent_core.db.containers import Container
from latent_core.db.doctor import checks, repairs
from latent_core.db.documents import documents
from latent_core.db.documents.documents import SourceInfo
from latent_core.doctor.context import IN_MOTION, NotRepairable, RepairContext, lock_document
from latent_core.domain.findings import StoreDifference
from latent_core.domain.ids import JobId, Sha256
from latent_core.domain.job import JobKind
from latent_core.domain.recipe import recipe
from latent_core.ingest.accept import CORPUS_MIME, IngestPayload, accept, from_original

DELETED: Final = "it is deleted by now"
WEB: Final = ("http://", "https://")


def is_web(uri: str) -> bool:
    """Whether the document can be fetched from its address."""
    return uri.startswith(WEB)


async def reingest(ctx: RepairContext, container: Container, difference: StoreDifference) -> str:
    if difference.doc_id is None:
        raise NotRepairable("no document is known to it")
    if difference.kind == "blob":
        sha256 = Sha256(difference.object)
        size = await ctx.sound_size(sha256)
        async with ctx.db.transaction() as conn:
            if size is not None:
                await repairs.mark_present(conn, sha256, size)
                return "its bytes are whole; its row says so now"
            await _distrust(ctx, conn, sha256)
    return await reingest_document(ctx, container, difference.doc_id)


async def reingest_document(ctx: RepairContext, container: Container, doc_id: UUID) -> str:
    """From its original, or that of the corpus it is a record of. Never replaces what is queued, which is newer.

    The original is read to its end first: damaged bytes must not replace what is live.
    """
    async with ctx.db.transaction() as conn:
        if await _locked_source(conn, container, doc_id) is None:
            return DELETED
        await repairs.forget_record_fingerprint(conn, doc_id)
        if await checks.awaited(conn, container.id, doc_id):
            return IN_MOTION
        original = await repairs.original(conn, doc_id)
    sound = original is not None and await ctx.sound_size(original["sha256"]) is not None
    async with ctx.db.transaction() as conn:
        row = await _locked_source(conn, container, doc_id)
        if row is None:
            return DELETED
        moving = await checks.awaited(conn, container.id, doc_id)
        if moving or await repairs.original(conn, doc_id) != original:
            return IN_MOTION
        if original is not None and sound:
            return await _from_original(ctx, conn, container, original)
        if original is not None:
            await _distrust(ctx, conn, original["sha256"])
        if is_web(row["uri"]):
            return await _fetch(ctx, conn, container, row)
    raise NotRepairable(_without_original(container, row))


async def _locked_source(
    conn: Connection, container: Container, doc_id: UUID
) -> dict[str, Any] | None:
    if await containers.hold(conn, container.id) is None:
        raise NotRepairable("the container is gone")
    await lock_document(conn, doc_id)
    return await _source_row(conn, doc_id)


async def _source_row(conn: Connection, doc_id: UUID) -> dict[str, Any] | None:
    """The document, or the corpus it is a record of; None when it was deleted."""
    row = await documents.row(conn, doc_id)
    if row is None or row["deleted_at"] is not None:
        return None
    if row["parent_id"] is None:
        return row
    corpus = await _source_row(conn, row["parent_id"])
    return None if corpus is None else {**corpus, "mime": CORPUS_MIME}


async def _distrust(ctx: RepairContext, conn: Connection, sha256: Sha256) -> None:
    """Listings ask for bytes that are gone, and the next attempt to store them writes them."""
    await repairs.distrust(conn, sha256)
    await ctx.blobs.delete(sha256)


async def _from_original(
    ctx: RepairContext, conn: Connection, container: Container, original: dict[str, Any]
) -> str:
    """A corpus's job makes those records again that have changed, or have lost their fingerprint."""
    payload = from_original(original, recipe(container.manifest), rebuild=not original["corpus"])
    source = SourceInfo(container.id, original["uri"], original["mime"])
    job_id = await _accept(ctx, conn, source, payload, corpus=original["corpus"])
    return f"job {job_id} makes {original['uri']} again from its original"


async def _fetch(
    ctx: RepairContext, conn: Connection, container: Container, row: dict[str, Any]
) -> str:
    payload = IngestPayload(
        uri=row["uri"],
        url=row["uri"],
        filename=row["title"] or row["uri"],
        mime=row["mime"],
        accepted_at=datetime.now(UTC),
    )
    source = SourceInfo(container.id, row["uri"], row["mime"])
    job_id = await _accept(ctx, conn, source, payload, corpus=row["mime"] == CORPUS_MIME)
    return f"job {job_id} fetches {row['uri']} again"


async def _accept(
    ctx: RepairContext,
    conn: Connection,
    source: SourceInfo,
    payload: IngestPayload,
    *,
    corpus: bool,
) -> JobId:
    """Records that were deleted since the corpus was added stay deleted: a repair adds nothing."""
    if corpus:
        await repairs.keep_records_deleted(conn, source.doc_id)
    kind = JobKind.CORPUS if corpus else JobKind.INGEST
    accepted = await accept(conn, source, payload, kind=kind, principal=ctx.principal)
    return accepted.job_id


def _without_original(container: Container, row: dict[str, Any]) -> str:
    return (
        f"the original is not stored: add {row['uri']} again. Until then its text stays searchable; if only vectors are"
        f" missing, `latent refresh {container.id} --strategy inplace` embeds the stored text again"
    )
