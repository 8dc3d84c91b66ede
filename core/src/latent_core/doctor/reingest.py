"""Repair by re-ingest: a job ingests the document again from its stored original or its web page.

The live generation stays live until the job publishes the next one, which also purges the damaged one. Unchanged texts
and pictures take their vectors from the embedding cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from latent_core.db import containers
from latent_core.db.connection import Connection
from latent_core.db.containers import Container
from latent_core.db.doctor import checks, repairs
from latent_core.db.documents import documents
from latent_core.db.documents.documents import SourceInfo
from latent_core.doctor.blobs import blob_of
from latent_core.doctor.context import IN_MOTION, NotRepairable, RepairContext, lock_document
from latent_core.domain.findings import StoreDifference
from latent_core.domain.ids import JobId, Sha256
from latent_core.domain.job import JobKind
from latent_core.domain.versions import recipe
from latent_core.ingest.accept import CORPUS_MIME, IngestPayload, accept, from_original

DELETED: Final = "It has been deleted meanwhile."
WEB: Final = ("http://", "https://")


def is_web(uri: str) -> bool:
    """Whether the document can be fetched from its address."""
    return uri.startswith(WEB)


async def reingest(ctx: RepairContext, container: Container, difference: StoreDifference) -> str:
    if difference.doc_id is None:
        raise NotRepairable("Its document is unknown.")
    if difference.kind == "blob":
        bucket, sha256 = blob_of(difference)
        await ctx.blobs.of(bucket).verify()
        size = await ctx.sound_size(bucket, sha256)
        async with ctx.db.transaction() as conn:
            if size is not None:
                await repairs.mark_present(conn, bucket, sha256, size)
                return "Its bytes are intact; its row is corrected."
            await _distrust(ctx, conn, bucket, sha256)
    return (await reingest_document(ctx, container, difference.doc_id)).message


@dataclass(frozen=True, slots=True)
class ReingestResult:
    message: str
    job_id: JobId | None = None
    """None: nothing was enqueued, and ``message`` says why."""


async def reingest_document(
    ctx: RepairContext, container: Container, doc_id: UUID
) -> ReingestResult:
    """Ingest a document again from its original, or from that of its corpus. A queued job, which is newer, stays.

    The original is read completely first: damaged bytes must not replace the live generation.
    """
    async with ctx.db.transaction() as conn:
        if await _locked_source(conn, container, doc_id) is None:
            return ReingestResult(DELETED)
        await repairs.forget_record_fingerprint(conn, doc_id)
        if await checks.awaited(conn, container.id, doc_id):
            return ReingestResult(IN_MOTION)
        original = await repairs.original(conn, doc_id)
    bucket = container.bucket
    sound = original is not None and await ctx.sound_size(bucket, original["sha256"]) is not None
    async with ctx.db.transaction() as conn:
        row = await _locked_source(conn, container, doc_id)
        if row is None:
            return ReingestResult(DELETED)
        moving = await checks.awaited(conn, container.id, doc_id)
        if moving or await repairs.original(conn, doc_id) != original:
            return ReingestResult(IN_MOTION)
        if original is not None and sound:
            return await _from_original(ctx, conn, container, original)
        if original is not None:
            await _distrust(ctx, conn, bucket, original["sha256"])
        if is_web(row["uri"]):
            return await _fetch(ctx, conn, container, row)
    raise NotRepairable(_without_original(container, row))


async def _locked_source(
    conn: Connection, container: Container, doc_id: UUID
) -> dict[str, Any] | None:
    if await containers.hold(conn, container.id) is None:
        raise NotRepairable("The container no longer exists.")
    await lock_document(conn, doc_id)
    return await _source_row(conn, doc_id)


async def _source_row(conn: Connection, doc_id: UUID) -> dict[str, Any] | None:
    """The document, or the corpus of a record; None if it was deleted."""
    row = await documents.row(conn, doc_id)
    if row is None or row["deleted_at"] is not None:
        return None
    if row["parent_id"] is None:
        return row
    corpus = await _source_row(conn, row["parent_id"])
    return None if corpus is None else {**corpus, "mime": CORPUS_MIME}


async def _distrust(ctx: RepairContext, conn: Connection, bucket: str, sha256: Sha256) -> None:
    """Mark a blob as missing, so that listings request it and the next upload stores it again."""
    await repairs.distrust(conn, bucket, sha256)
    await ctx.blobs.of(bucket).delete(sha256)


async def _from_original(
    ctx: RepairContext, conn: Connection, container: Container, original: dict[str, Any]
) -> ReingestResult:
    """Enqueue the ingest from an original. A corpus job redoes records that changed or lost their fingerprint."""
    payload = from_original(original, recipe(container.manifest), rebuild=not original["corpus"])
    source = SourceInfo(container.id, original["uri"], original["mime"])
    job_id = await _accept(ctx, conn, source, payload, corpus=original["corpus"])
    return ReingestResult(
        f"Job {job_id} ingests {original['uri']} again from its original.", job_id
    )


async def _fetch(
    ctx: RepairContext, conn: Connection, container: Container, row: dict[str, Any]
) -> ReingestResult:
    payload = IngestPayload(
        uri=row["uri"],
        url=row["uri"],
        filename=row["title"] or row["uri"],
        mime=row["mime"],
        accepted_at=datetime.now(UTC),
    )
    source = SourceInfo(container.id, row["uri"], row["mime"])
    job_id = await _accept(ctx, conn, source, payload, corpus=row["mime"] == CORPUS_MIME)
    return ReingestResult(f"Job {job_id} fetches {row['uri']} again.", job_id)


async def _accept(
    ctx: RepairContext,
    conn: Connection,
    source: SourceInfo,
    payload: IngestPayload,
    *,
    corpus: bool,
) -> JobId:
    """Enqueue the job. Records that were deleted since the corpus was added stay deleted."""
    if corpus:
        await repairs.keep_records_deleted(conn, source.doc_id)
    kind = JobKind.CORPUS if corpus else JobKind.INGEST
    accepted = await accept(conn, source, payload, kind=kind, principal=ctx.principal)
    return accepted.job_id


def _without_original(container: Container, row: dict[str, Any]) -> str:
    return (
        f"The original is not stored. Add {row['uri']} again; until then its text stays searchable. If only vectors are"
        f" missing, run `latent refresh {container.id} --strategy inplace` to embed the stored text again."
    )
