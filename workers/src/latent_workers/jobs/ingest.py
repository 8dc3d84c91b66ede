"""Ingest one document: fetch → parse → chunk → embed → store (docs/architecture.md, the writing protocol)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from latent_core.domain.errors import (
    Conflict,
    IngestFailed,
    Issue,
    IssueCode,
    NotFound,
)
from latent_core.domain.job import PRIORITY_LATER, JobKind, NewJob
from latent_core.generations.accept import IngestPayload
from latent_core.generations.delete import (
    LEASES_TO_WAIT,
    enqueue_collection,
    enqueue_purges,
)
from latent_core.generations.publish import Published, Staged, publish
from latent_core.queue.context import JobContext
from latent_core.queue.enqueue import enqueue
from latent_core.queue.finish import finish
from latent_core.registry import containers, documents, pages
from latent_core.registry.connection import Connection
from latent_core.registry.containers import Container
from latent_core.registry.documents import Attempt
from latent_core.registry.pages import BlobRef
from latent_workers.deps import Deps
from latent_workers.fetch.original import Original, fetch
from latent_workers.jobs.compact import enqueue_if_needed
from latent_workers.jobs.given_up import swept_if_given_up
from latent_workers.jobs.make import Made, fingerprint, make, stage
from latent_workers.parse.registry import HEAD_BYTES, Detected, detect
from latent_workers.parse.run import parse_file


@dataclass(frozen=True, slots=True)
class Work:
    """What an attempt knows before it parses."""

    container: Container
    payload: IngestPayload
    original: Original
    detected: Detected
    attempt: Attempt
    fingerprint: str


async def ingest(ctx: JobContext, deps: Deps) -> None:
    """One attempt. Finishes its job in the transaction that makes the document visible."""
    staged: list[tuple[UUID, int]] = []
    async with swept_if_given_up(ctx, deps, staged):
        await _ingest(ctx, deps, staged)


async def _ingest(ctx: JobContext, deps: Deps, staged: list[tuple[UUID, int]]) -> None:
    payload = IngestPayload.model_validate(ctx.job.payload)
    doc_id = _document(ctx)
    async with deps.stack.db.transaction() as conn:
        container = await containers.get(conn, ctx.job.container_id)
    if container is None:
        raise NotFound(f"container '{ctx.job.container_id}' does not exist any more")
    original = await fetch(ctx, deps, payload)
    detected = await asyncio.to_thread(_detect, original.path, payload)
    printed = fingerprint(
        container, deps.embedder(container.space).model, original.sha256, detected, payload
    )
    await ctx.checkpoint()
    async with deps.stack.db.transaction() as conn:
        attempt = (await documents.take_generations(conn, [doc_id], payload.request)).get(doc_id)
    if attempt is None:
        await _overtaken(ctx, deps)
        return
    staged.append((doc_id, attempt.generation))
    work = Work(container, payload, original, detected, attempt, printed)
    if attempt.fingerprint == printed and await _unchanged(ctx, work):
        return
    await _publish(ctx, deps, work, await _made(ctx, deps, work))


def _detect(path: Path, payload: IngestPayload) -> Detected:
    with path.open("rb") as file:
        return detect(payload.filename, file.read(HEAD_BYTES), payload.mime)


def _document(ctx: JobContext) -> UUID:
    if ctx.job.doc_id is None:
        raise IngestFailed(f"job {ctx.job.id} names no document")
    return ctx.job.doc_id


async def _overtaken(ctx: JobContext, deps: Deps) -> None:
    """The document was deleted, or something newer was asked for: this job has nothing to do."""
    told = Issue(
        code=IssueCode.CONFLICT, message="the document was deleted or added anew in the meantime"
    )

    async def write(conn: Connection) -> None:
        await finish(conn, ctx.job, warnings=[told])
        await enqueue_collection(
            conn,
            principal=ctx.job.principal,
            delay_seconds=LEASES_TO_WAIT * deps.settings.lease_seconds,
        )

    await ctx.transact(write)


async def _unchanged(ctx: JobContext, work: Work) -> bool:
    """Nothing that decides the chunks has changed: note the fetch, embed nothing."""

    async def write(conn: Connection) -> None:
        await finish(conn, ctx.job)
        if await containers.hold(conn, work.container.id) is None:
            return
        same = await documents.seen_unchanged(
            conn,
            work.attempt.doc_id,
            work.fingerprint,
            request=work.payload.request,
            fetched_at=work.original.fetched_at,
            modified_at=work.original.modified_at,
            mtime_ns=work.original.mtime_ns,
        )
        if not same:
            raise _Changed
        live = await pages.lacking_images(conn, work.attempt.doc_id)
        if live is not None:
            await _enqueue_render(conn, ctx, work, live)

    await ctx.transact(write)
    return True


class _Changed(Conflict):
    """What was live when the attempt began is not live any more: the job is tried again.

    Not ``Unavailable``, for which ``transact`` would only run the same transaction again.
    """

    transient = True

    def __init__(self) -> None:
        super().__init__("the document changed while it was compared; it is tried again")


async def _made(ctx: JobContext, deps: Deps, work: Work) -> Made:
    parsed = await parse_file(
        deps.sandbox,
        work.original.path,
        name=work.payload.filename,
        source_type=work.detected.source_type,
        max_pages=work.container.manifest.pdf.max_pages,
        budget=deps.parse_budget(),
    )
    for warning in parsed.warnings:
        await ctx.warn(warning)
    if parsed.replaced_characters:
        await ctx.warn(
            Issue(
                code=IssueCode.INGEST_FAIL,
                message=f"{parsed.replaced_characters} characters that are no text were replaced by U+FFFD",
                details={"replaced_characters": parsed.replaced_characters},
            )
        )
    made = await make(deps, work.container, parsed, work.detected.source_type)
    if not made.drafts:
        raise IngestFailed(f"'{work.payload.filename}' holds no text that could be found again")
    if len(made.drafts) > deps.settings.max_chunks_per_document:
        raise IngestFailed(
            f"'{work.payload.filename}' makes {len(made.drafts)} chunks; the limit is "
            f"{deps.settings.max_chunks_per_document} (LLC_MAX_CHUNKS_PER_DOCUMENT): split the document"
        )
    return made


async def _publish(ctx: JobContext, deps: Deps, work: Work, made: Made) -> None:
    chunks = await stage(
        ctx,
        deps,
        work.container,
        [(work.attempt, made)],
        on_progress=lambda n, total: ctx.progress(n, total),
    )
    payload = work.payload
    staged = Staged(
        doc_id=work.attempt.doc_id,
        generation=work.attempt.generation,
        live=made.live(
            title=payload.filename,
            sha256=work.original.sha256,
            size=work.original.bytes,
            mime=work.detected.mime,
            fingerprint=work.fingerprint,
            meta=payload.meta,
        ),
        chunks=chunks[0],
        provenance=made.provenance(work.container, work.detected.source_type),
        request=payload.request,
        fetched_at=work.original.fetched_at,
        modified_at=work.original.modified_at,
        mtime_ns=work.original.mtime_ns,
        pages=made.page_rows(),
        refs=[BlobRef("original", 0, work.original.sha256, work.detected.mime, payload.filename)],
    )
    await (
        ctx.fence()
    )  # a fresh lease: the heartbeat waits while the transaction holds the job's row

    async def write(conn: Connection) -> Published:
        await finish(conn, ctx.job)
        published = await publish(conn, work.container.id, [staged])
        await _follow(conn, ctx, deps, work, flipped=bool(published.flipped))
        return published

    published = await ctx.transact(write)
    deps.stack.metrics.published.inc(len(published.flipped))


async def _follow(
    conn: Connection, ctx: JobContext, deps: Deps, work: Work, *, flipped: bool
) -> None:
    """What the publication leaves to do: purge what is older, draw the pages, compact."""
    doc_id, generation = work.attempt.doc_id, work.attempt.generation
    if not flipped or generation > 1:
        await enqueue_purges(
            conn,
            work.container.id,
            below=[(doc_id, generation)] if flipped else (),
            only=() if flipped else [(doc_id, generation)],
            principal=ctx.job.principal,
            lease_seconds=deps.settings.lease_seconds,
            twice=ctx.job.attempts > 1 or not flipped or work.attempt.fingerprint is not None,
        )
    if flipped:
        await _enqueue_render(conn, ctx, work, generation)
    await enqueue_if_needed(conn, work.container.id)


async def _enqueue_render(conn: Connection, ctx: JobContext, work: Work, generation: int) -> None:
    await enqueue(
        conn,
        NewJob(
            kind=JobKind.RENDER,
            container_id=work.container.id,
            doc_id=work.attempt.doc_id,
            doc_key=f"render:{work.attempt.doc_id}",
            dedupe_key=f"render:{work.attempt.doc_id}",
            payload={
                "generation": generation,
                "sha256": work.original.sha256,
                "filename": work.payload.filename,
                "source_type": work.detected.source_type.value,
            },
            priority=PRIORITY_LATER,
            principal=ctx.job.principal,
        ),
    )
