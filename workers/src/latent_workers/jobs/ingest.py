"""Ingest one document: fetch → parse → chunk → embed → store (docs/architecture.md, the writing protocol)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from latent_core.db import containers
from latent_core.db.connection import Connection
from latent_core.db.containers import Container
from latent_core.db.documents import documents, notes, pages
from latent_core.db.documents.documents import Attempt
from latent_core.db.documents.pages import BlobRef
from latent_core.domain.chunk import Modality, SourceType
from latent_core.domain.document import published_meta
from latent_core.domain.errors import (
    Conflict,
    IngestFailed,
    Issue,
    IssueCode,
)
from latent_core.domain.job import PRIORITY_LATER, JobKind, NewJob
from latent_core.ingest.accept import IngestPayload
from latent_core.ingest.delete import LEASES_TO_WAIT, enqueue_collection
from latent_core.ingest.followups import PublishedDocument, followups_of
from latent_core.ingest.publish import StagedGeneration
from latent_core.models.embedding.port import UnreachableAware
from latent_core.queue.context import JobContext
from latent_core.queue.enqueue import enqueue
from latent_core.queue.finish import finish
from latent_core.runtime.failpoint import failpoint
from latent_workers.deps import Deps
from latent_workers.ingest.cleanup import cleanup_on_failure, remove_earlier_attempts
from latent_workers.ingest.conversations import as_conversations, is_conversation, is_export
from latent_workers.ingest.embedded_images import with_pictures
from latent_workers.ingest.mailboxes import is_mailbox
from latent_workers.ingest.original import Original, fetch
from latent_workers.ingest.page_drawing import RenderPayload
from latent_workers.ingest.prepare import (
    PreparedDocument,
    StoredGeneration,
    embed,
    fingerprint,
    fingerprint_of_scans,
    make,
    recipe_of,
    unless_archived,
)
from latent_workers.ingest.refetch import detected_in, known_page
from latent_workers.ingest.source_dates import declared_modification, source_date
from latent_workers.ingest.transcript import check_speech, transcribed
from latent_workers.ingest.unlocked import unlocked
from latent_workers.ingest.web_page import awaits_fetch, fetch_page
from latent_workers.jobs.corpus import ingest_records
from latent_workers.ocr.scans import Scan, read_scans
from latent_workers.parse.parsed import ParsedDocument
from latent_workers.parse.registry import DetectedType
from latent_workers.parse.run import parse_file
from latent_workers.parse.web.charsets import charset_of
from latent_workers.publishing import ReadyGeneration

UNREAD: Final = "-unread"
"""Suffix of the recipe of a document with unreadable pages: a listing requests it again."""


@dataclass(frozen=True, slots=True)
class IngestContext:
    """The facts that an attempt knows before it parses."""

    container: Container
    payload: IngestPayload
    original: Original
    detected: DetectedType
    attempt: Attempt
    fingerprint: str
    ocr: str
    """The key of the OCR engine."""

    @property
    def fingerprint_of_scans(self) -> str:
        """Replaces the fingerprint for a document with scanned pages."""
        return fingerprint_of_scans(self.fingerprint, self.ocr)

    @property
    def validators(self) -> dict[str, Any] | None:
        """HTTP validators of a page, as its document stores them."""
        stored_validators = self.payload.validators
        return None if stored_validators is None else stored_validators.model_dump(mode="json")


async def ingest(ctx: JobContext, deps: Deps) -> None:
    """One attempt. The transaction that makes the document visible also ends its job."""
    container = await unless_archived(ctx, deps)
    if container is None:
        return
    staged: list[tuple[UUID, int]] = []
    async with cleanup_on_failure(ctx, deps, staged):
        await _ingest(ctx, deps, container, staged)


async def corpus(ctx: JobContext, deps: Deps) -> None:
    """One batch of a corpus. A transcript, which is JSONL as well, is one document."""
    container = await unless_archived(ctx, deps)
    if container is None:
        return
    staged: list[tuple[UUID, int]] = []
    async with cleanup_on_failure(ctx, deps, staged):
        payload = IngestPayload.model_validate(ctx.job.payload)
        if awaits_fetch(payload):
            payload = await fetch_page(ctx, deps, payload)
        original = await fetch(ctx, deps, container, payload)
        payload, original = await as_conversations(ctx, deps, container, payload, original)
        if is_conversation(payload):
            await _document(ctx, deps, container, payload, original, staged)
        else:
            await ingest_records(ctx, deps, container, payload, original, staged)


async def _ingest(
    ctx: JobContext, deps: Deps, container: Container, staged: list[tuple[UUID, int]]
) -> None:
    payload = IngestPayload.model_validate(ctx.job.payload)
    doc_id = _doc_id(ctx)
    embedder = await deps.embedder(container.space)
    if isinstance(embedder, UnreachableAware):
        embedder.raise_if_unreachable()
    if awaits_fetch(payload):
        known = await known_page(deps, container, doc_id, payload)
        javascript = container.manifest.web.javascript
        payload = await fetch_page(ctx, deps, payload, known, javascript=javascript)
    original = await fetch(ctx, deps, container, payload)
    payload, original = await as_conversations(ctx, deps, container, payload, original)
    if is_export(payload) or await asyncio.to_thread(is_mailbox, original.path, payload):
        await ingest_records(ctx, deps, container, payload, original, staged)
    else:
        await _document(ctx, deps, container, payload, original, staged)


async def _document(
    ctx: JobContext,
    deps: Deps,
    container: Container,
    payload: IngestPayload,
    original: Original,
    staged: list[tuple[UUID, int]],
) -> None:
    """The file as one document."""
    doc_id = _doc_id(ctx)
    embedder = await deps.embedder(container.space)
    detected = await asyncio.to_thread(detected_in, original.path, payload)
    _check_taken(container, detected, payload.filename)
    if detected.source_type is SourceType.AUDIO:
        check_speech(container, payload.filename, original.bytes)
    printed = fingerprint(container, embedder.model, original.sha256, detected, payload)
    await ctx.checkpoint()
    async with deps.stack.db.single() as conn:
        attempt = (await documents.take_generations(conn, [doc_id], payload.request)).get(doc_id)
    if attempt is None:
        await _overtaken(ctx, deps)
        return
    staged.append((doc_id, attempt.generation))
    ocr = (await deps.ocr.engine()).key
    work = IngestContext(container, payload, original, detected, attempt, printed, ocr)
    same = attempt.fingerprint in (printed, work.fingerprint_of_scans) and not payload.rebuild
    if same and await _unchanged(ctx, work):
        return
    await _publish(ctx, deps, work, await _made(ctx, deps, work))


def _check_taken(container: Container, detected: DetectedType, name: str) -> None:
    is_text = detected.source_type is not SourceType.IMAGE
    if is_text and Modality.TEXT not in container.manifest.modalities:
        raise IngestFailed(
            f"'{name}' is not an image, and container '{container.id}' accepts only images: its manifest's "
            "modalities lack 'text'"
        )


def _doc_id(ctx: JobContext) -> UUID:
    if ctx.job.doc_id is None:
        raise IngestFailed(f"job {ctx.job.id} has no document")
    return ctx.job.doc_id


async def _overtaken(ctx: JobContext, deps: Deps) -> None:
    """The document was deleted, or a newer version was added: this job has nothing to do."""
    empty_text = Issue(
        code=IssueCode.CONFLICT, message="the document was deleted or added again in the meantime"
    )

    async def write(conn: Connection) -> None:
        await finish(conn, ctx.job, warnings=[empty_text])
        await enqueue_collection(
            conn,
            principal=ctx.job.principal,
            delay_seconds=LEASES_TO_WAIT * deps.settings.lease_seconds,
        )

    await ctx.transact(write)


async def _unchanged(ctx: JobContext, work: IngestContext) -> bool:
    """Nothing that determines the chunks has changed: note the fetch, embed nothing."""

    async def write(conn: Connection) -> None:
        await finish(conn, ctx.job, result={"unchanged": True})
        if await containers.hold(conn, work.container.id) is None:
            return
        doc_id = work.attempt.doc_id
        predecessors = await notes.predecessors(conn, {doc_id: work.payload.request})
        await documents.lock(conn, [doc_id, *predecessors])
        meta = await documents.meta_of(conn, doc_id)
        same = await documents.seen_unchanged(
            conn,
            work.attempt.doc_id,
            work.attempt.fingerprint or work.fingerprint,
            request=work.payload.request,
            fetched_at=work.original.fetched_at,
            modified_at=declared_modification(meta, work.detected.source_type)
            or work.original.modified_at,
            mtime_ns=work.original.mtime_ns,
            given_meta=work.payload.given_meta,
            validators=work.validators,
        )
        if not same:
            raise _LiveGenerationChanged
        await notes.hide(conn, predecessors, [doc_id])
        # An import without blobs, or one that lacked this, left the document without it.
        await pages.refer_live(conn, work.attempt.doc_id, _original_ref(work))
        live = await pages.lacking_images(conn, work.attempt.doc_id)
        if live is not None:
            await enqueue(conn, _render(ctx, work, live))

    await ctx.transact(write, last=True)
    return True


class _LiveGenerationChanged(Conflict):
    """The live generation changed during the attempt: the job is tried again.

    Not ``Unavailable``, for which ``transact`` would only repeat the transaction.
    """

    transient = True

    def __init__(self) -> None:
        super().__init__("the document changed during the comparison; the job will try again")


async def _made(ctx: JobContext, deps: Deps, work: IngestContext) -> PreparedDocument:
    if work.detected.source_type is SourceType.AUDIO:
        return await _heard(ctx, deps, work)
    name, sealed = work.payload.filename, work.payload.sealed_password
    async with unlocked(
        deps.sandbox,
        work.original.path,
        name=name,
        source_type=work.detected.source_type,
        password=None if sealed is None else deps.stack.password_seal.open(sealed, name),
        folder=deps.stack.tmp,
    ) as file:
        return await _made_of(ctx, deps, work, file)


async def _heard(ctx: JobContext, deps: Deps, work: IngestContext) -> PreparedDocument:
    """A recording, by the words that are spoken in it."""
    document = await transcribed(
        ctx,
        deps,
        work.container,
        work.attempt.doc_id,
        work.original.path,
        sha256=work.original.sha256,
        name=work.payload.filename,
        mime=work.detected.mime,
    )
    made = await make(deps, work.container, document.parsed, SourceType.AUDIO)
    _check_size(deps, work, made)
    return replace(made, generated=document.by)


async def _made_of(
    ctx: JobContext, deps: Deps, work: IngestContext, file: Path
) -> PreparedDocument:
    """``file``: the original, or its decrypted copy."""
    parsed = await parse_file(
        deps.sandbox,
        file,
        name=work.payload.filename,
        source_type=work.detected.source_type,
        max_pages=work.container.manifest.pdf.max_pages,
        charset=charset_of(work.payload.mime),
        sanitize_rules=work.container.manifest.web.sanitize_rules,
        budget=deps.parse_budget(),
    )
    scan = Scan(file, work.payload.filename, work.detected.source_type)
    parsed = await read_scans(
        deps.ocr, scan, parsed, lambda n, total: ctx.progress(n, total, "pages read by OCR")
    )
    for warning in parsed.warnings:
        await ctx.warn(warning)
    if parsed.replaced_characters:
        await ctx.warn(
            Issue(
                code=IssueCode.INGEST_FAIL,
                message=f"{parsed.replaced_characters} invalid characters were replaced by U+FFFD",
                details={"replaced_characters": parsed.replaced_characters},
            )
        )
    published_meta(
        work.container.manifest, parsed.meta, work.payload.meta
    )  # refused before it costs
    made = await make(deps, work.container, parsed, work.detected.source_type)
    made = await with_pictures(
        ctx,
        deps,
        work.container,
        _drawing(work, work.attempt.generation),
        made,
        decrypted=None if file == work.original.path else file,
    )
    if not made.drafts:
        raise IngestFailed(_nothing_found(work.payload.filename, parsed))
    _check_size(deps, work, made)
    return made


def _check_size(deps: Deps, work: IngestContext, made: PreparedDocument) -> None:
    if len(made.drafts) > deps.settings.max_chunks_per_document:
        raise IngestFailed(
            f"'{work.payload.filename}' has {len(made.drafts)} chunks; the limit is "
            f"{deps.settings.max_chunks_per_document} (LLC_MAX_CHUNKS_PER_DOCUMENT): split the document"
        )


def _nothing_found(name: str, parsed: ParsedDocument) -> str:
    empty_text = f"'{name}' has no searchable text"
    unread = [w.message for w in parsed.warnings if "unread_pages" in w.details]
    return f"{empty_text}. {unread[0]}" if unread else empty_text


async def _publish(
    ctx: JobContext, deps: Deps, work: IngestContext, made: PreparedDocument
) -> None:
    await remove_earlier_attempts(deps, work.container, [work.attempt], ctx.checkpoint)
    (stored,), store = await embed(
        ctx,
        deps,
        work.container,
        [(work.attempt, made)],
        on_progress=lambda n, total: _progress(ctx, n, total),
    )
    ready = ReadyGeneration(
        ctx,
        _staged(work, made, stored),
        store,
        replaces=work.attempt.fingerprint is not None,
        drawing=_render(ctx, work, work.attempt.generation) if _is_drawn_later(made) else None,
        follow_ups=followups_of(
            work.container.manifest,
            PublishedDocument(
                work.attempt.doc_id,
                work.attempt.generation,
                work.detected.source_type,
                is_record=False,
                principal=ctx.job.principal,
            ),
        ),
    )
    published = await deps.publishing.publish(work.container.id, ready)
    failpoint("ingest.after_commit")
    deps.stack.metrics.published.inc(work.attempt.doc_id in published.now_live)


def _is_drawn_later(made: PreparedDocument) -> bool:
    """Recordings have no pages."""
    return made.drawn is None and made.generated is None


def _staged(
    work: IngestContext, made: PreparedDocument, stored: StoredGeneration
) -> StagedGeneration:
    payload, source_type = work.payload, work.detected.source_type
    meta = published_meta(
        work.container.manifest, made.parsed.meta | _masked(payload), payload.meta
    )
    return StagedGeneration(
        doc_id=work.attempt.doc_id,
        generation=work.attempt.generation,
        live=made.live(
            title=payload.filename,
            sha256=payload.source_sha256 or work.original.sha256,
            size=work.original.bytes,
            mime=work.detected.mime,
            fingerprint=_fingerprint(work, made.parsed, refused_inputs=stored.refused_inputs),
            meta=meta,
            recipe=recipe_of(work.container, source_type)
            + (UNREAD if _lacks_engine(made.parsed) else ""),
            given_meta=payload.given_meta,
            validators=work.validators,
            written=payload.row_authorship,
        ),
        chunks=stored.chunks,
        written=stored.written,
        made_by=work.container.space.made_by,
        generated=made.generated,
        provenance=made.provenance(work.container, source_type),
        request=payload.request,
        fetched_at=work.original.fetched_at,
        modified_at=declared_modification(meta, source_type)
        or work.original.modified_at
        or source_date(made.parsed.meta, source_type),
        mtime_ns=work.original.mtime_ns,
        pages=made.page_rows(),
        refs=[
            _original_ref(work),
            *(made.drawn.refs if made.drawn is not None else ()),
        ],
    )


def _masked(payload: IngestPayload) -> dict[str, Any]:
    return {"masked": payload.masked} if payload.masked else {}


def _original_ref(work: IngestContext) -> BlobRef:
    return BlobRef("original", 0, work.original.sha256, work.detected.mime, work.payload.filename)


async def _progress(ctx: JobContext, done: int, total: int) -> None:
    """The last one is reported in the final transaction."""
    if done < total:
        await ctx.progress(done, total)


def _lacks_engine(parsed: ParsedDocument) -> bool:
    """Scanned pages that no engine here can read: listings request the file until one can. A page that an engine
    failed on is tried again only when the file is added again."""
    return bool(parsed.scanned_pages) and parsed.ocr is None


def _fingerprint(work: IngestContext, parsed: ParsedDocument, *, refused_inputs: bool) -> str:
    if refused_inputs:
        return fingerprint_of_scans(work.fingerprint, "images skipped")  # they are tried again
    if not parsed.scanned_pages:
        return work.fingerprint
    if parsed.ocr is not None and not parsed.ocr.complete:
        return fingerprint_of_scans(work.fingerprint, "tried")  # what failed is tried again
    return work.fingerprint_of_scans


def _render(ctx: JobContext, work: IngestContext, generation: int) -> NewJob:
    return NewJob(
        kind=JobKind.RENDER,
        container_id=work.container.id,
        doc_id=work.attempt.doc_id,
        doc_key=f"render:{work.attempt.doc_id}",
        dedupe_key=f"render:{work.attempt.doc_id}",
        payload=_drawing(work, generation).model_dump(mode="json"),
        priority=PRIORITY_LATER,
        principal=ctx.job.principal,
    )


def _drawing(work: IngestContext, generation: int) -> RenderPayload:
    return RenderPayload(
        generation=generation,
        sha256=work.original.sha256,
        filename=work.payload.filename,
        source_type=work.detected.source_type,
        charset=charset_of(work.payload.mime),
        sanitize_rules=tuple(work.container.manifest.web.sanitize_rules),
    )
