"""Ingest a JSONL corpus: one document per record, one batch per step.

After each batch the job goes to the end of its container's queue with a cursor, in the transaction that makes the
batch visible: it neither blocks the worker nor starts again (DESIGN §9).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

import orjson

from latent_core.db import containers
from latent_core.db.connection import Connection
from latent_core.db.containers import Container
from latent_core.db.documents import documents, records
from latent_core.db.documents.documents import Attempt, LiveGeneration, SourceInfo
from latent_core.db.documents.pages import BlobRef
from latent_core.domain.chunk import SourceType
from latent_core.domain.conversation import CONVERSATION_MIME
from latent_core.domain.document import published_meta
from latent_core.domain.errors import IngestFailed, Issue, IssueCode
from latent_core.domain.ids import Sha256, document_id
from latent_core.domain.job import NewJob
from latent_core.domain.manifest.model import Manifest
from latent_core.ingest.accept import IngestPayload
from latent_core.ingest.delete import (
    LEASES_TO_WAIT,
    enqueue_collection,
    enqueue_purges,
)
from latent_core.ingest.followups import PublishedDocument, followups_of
from latent_core.ingest.publish import (
    PublicationResult,
    StagedGeneration,
    enqueue_if_needed,
    publish,
)
from latent_core.ingest.stage import enqueue_dedup_pending
from latent_core.queue.context import JobContext
from latent_core.queue.enqueue import enqueue_many
from latent_core.queue.finish import finish, hold
from latent_core.queue.requeue import requeue_with
from latent_core.runtime.failpoint import failpoint
from latent_workers.deps import Deps
from latent_workers.ingest.cleanup import remove_earlier_attempts
from latent_workers.ingest.conversations import is_export
from latent_workers.ingest.mailboxes import is_mailbox
from latent_workers.ingest.original import Original, stored
from latent_workers.ingest.prepare import (
    PreparedDocument,
    fingerprint,
    languages_of,
    make,
    recipe_of,
    stage,
)
from latent_workers.parse.registry import DetectedType
from latent_workers.parse.run import read_records
from latent_workers.parse.signatures import MAILBOX_MIME
from latent_workers.parse.structured import jsonl

RECORDS_PER_BATCH: Final = 256
BYTES_PER_BATCH: Final = 8 * 1024 * 1024
MAX_REPORTED_FAILURES: Final = 20
"""Per batch: further bad lines are counted, not listed."""

MAIL: Final = DetectedType(SourceType.MAIL, "message/rfc822")
NOTHING: Final = PublicationResult(frozenset(), frozenset())
RECORD: Final = DetectedType(SourceType.TEXT, "text/plain")
CONVERSATION: Final = DetectedType(SourceType.CONVERSATION, CONVERSATION_MIME)


@dataclass(frozen=True, slots=True)
class CorpusBatch:
    """One batch of one corpus."""

    container: Container
    corpus: UUID
    payload: IngestPayload
    original: Original
    batch: jsonl.RecordBatch


async def ingest_records(
    ctx: JobContext,
    deps: Deps,
    container: Container,
    payload: IngestPayload,
    original: Original,
    staged: list[tuple[UUID, int]],
) -> None:
    """One batch of records, made visible together; then the next step, or the end."""
    corpus_batch = await _read(ctx, deps, container, stored(payload, original), original)
    await _tell_failures(ctx, corpus_batch.batch)
    await _records(ctx, deps, corpus_batch, staged)


async def _read(
    ctx: JobContext, deps: Deps, container: Container, payload: IngestPayload, original: Original
) -> CorpusBatch:
    if ctx.job.doc_id is None:
        raise IngestFailed(f"job {ctx.job.id} has no document")
    batch = await read_records(
        deps.sandbox,
        original.path,
        offset=payload.offset,
        line=payload.line,
        max_records=RECORDS_PER_BATCH,
        max_bytes=BYTES_PER_BATCH,
        conversations=is_export(payload),
        mailbox=await asyncio.to_thread(is_mailbox, original.path, payload),
    )
    checked = _checked(container.manifest, payload.meta, batch)
    return CorpusBatch(container, ctx.job.doc_id, payload, original, checked)


def _checked(
    manifest: Manifest, meta_given: dict[str, Any], batch: jsonl.RecordBatch
) -> jsonl.RecordBatch:
    """A record whose meta violates the container's schema is a failure, like a malformed line."""
    records, failures = [], list(batch.failures)
    for record in batch.records:
        try:
            published_meta(manifest, record.meta, meta_given)
            records.append(record)
        except IngestFailed as exc:
            failures.append(jsonl.RecordFailure(record.line, exc.message, record.id))
    failures.sort(key=lambda failure: failure.line)
    return replace(batch, records=tuple(records), failures=tuple(failures))


async def _tell_failures(ctx: JobContext, batch: jsonl.RecordBatch) -> None:
    for failure in batch.failures[:MAX_REPORTED_FAILURES]:
        await ctx.warn(
            Issue(
                code=IssueCode.INGEST_FAIL,
                message=f"line {failure.line}: {failure.message}",
                details={"line": failure.line, "external_id": failure.id},
            )
        )
    if len(batch.failures) > MAX_REPORTED_FAILURES:
        await ctx.warn(
            Issue(
                code=IssueCode.INGEST_FAIL,
                message=f"{len(batch.failures) - MAX_REPORTED_FAILURES} more lines from line {batch.failures[MAX_REPORTED_FAILURES].line} on",
            )
        )


async def _records(
    ctx: JobContext, deps: Deps, corpus_batch: CorpusBatch, staging: list[tuple[UUID, int]]
) -> None:
    latest = _last_of_each(corpus_batch)
    attempts = await _begin(ctx, deps, corpus_batch, latest)
    if attempts is None:
        await ctx.transact(lambda conn: _overtaken(conn, ctx, deps))
        return
    model = (await deps.embedder(corpus_batch.container.space)).model
    languages = await languages_of(
        corpus_batch.container, [jsonl.parsed(record) for _, record in latest]
    )
    work: list[tuple[Attempt, PreparedDocument, jsonl.Record, str]] = []
    for source, record in latest:
        attempt = attempts.get(source.doc_id)
        printed = fingerprint(
            corpus_batch.container,
            model,
            _content_hash(record),
            _type_of(record),
            _record_payload(corpus_batch.payload, record),
        )
        if attempt is None or (attempt.fingerprint == printed and not corpus_batch.payload.rebuild):
            continue
        source_type = _type_of(record).source_type
        made = await make(
            deps, corpus_batch.container, jsonl.parsed(record), source_type, languages
        )
        if made.drafts:
            work.append((attempt, made, record, printed))
    staging += [(attempt.doc_id, attempt.generation) for attempt, _, _, _ in work]
    new = [attempt for attempt, _, _, _ in work if attempt.live is None]
    await remove_earlier_attempts(deps, corpus_batch.container, new, ctx.checkpoint)
    staged = await stage(ctx, deps, corpus_batch.container, [(a, m) for a, m, _, _ in work])
    ready = [
        StagedGeneration(
            doc_id=attempt.doc_id,
            generation=attempt.generation,
            live=made.live(
                title=record.title or record.id,
                sha256=_content_hash(record),
                size=_size(record),
                mime=_type_of(record).mime,
                fingerprint=printed,
                meta=published_meta(
                    corpus_batch.container.manifest, made.parsed.meta, corpus_batch.payload.meta
                ),
                recipe=recipe_of(corpus_batch.container, _type_of(record).source_type),
            ),
            chunks=there.chunks,
            written=there.written,
            made_by=corpus_batch.container.space.made_by,
            provenance=made.provenance(corpus_batch.container, _type_of(record).source_type),
            request=corpus_batch.payload.request,
            fetched_at=corpus_batch.original.fetched_at,
            modified_at=corpus_batch.original.modified_at,
        )
        for (attempt, made, record, printed), there in zip(work, staged, strict=True)
    ]
    await ctx.checkpoint()
    await _commit(ctx, deps, corpus_batch, ready)


async def _overtaken(conn: Connection, ctx: JobContext, deps: Deps) -> None:
    await finish(conn, ctx.job)
    await enqueue_collection(
        conn,
        principal=ctx.job.principal,
        delay_seconds=LEASES_TO_WAIT * deps.settings.lease_seconds,
    )


def _content_hash(record: jsonl.Record) -> Sha256:
    """Hash of a record's content; its line number does not matter."""
    meta_given = [record.id, record.title, record.text, record.meta]
    if record.conversation is not None:
        meta_given.append(record.conversation)
    return Sha256(hashlib.sha256(orjson.dumps(meta_given, option=orjson.OPT_SORT_KEYS)).hexdigest())


def _type_of(record: jsonl.Record) -> DetectedType:
    if record.conversation is not None:
        return CONVERSATION
    return MAIL if record.mail else RECORD


def _size(record: jsonl.Record) -> int:
    """The bytes of its content."""
    if record.conversation is not None:
        return len(orjson.dumps(record.conversation))
    return len(record.text.encode())


def _record_payload(payload: IngestPayload, record: jsonl.Record) -> IngestPayload:
    return payload.model_copy(update={"filename": record.title})


def _last_of_each(corpus_batch: CorpusBatch) -> list[tuple[SourceInfo, jsonl.Record]]:
    """The batch's records by document; the last record with an id counts."""
    found: dict[UUID, tuple[SourceInfo, jsonl.Record]] = {}
    for record in corpus_batch.batch.records:
        source = SourceInfo(
            corpus_batch.container.id,
            _record_uri(corpus_batch, record.id),
            _type_of(record).mime,
            external_id=record.id,
            parent_id=corpus_batch.corpus,
        )
        found[source.doc_id] = (source, record)
    return sorted(found.values(), key=lambda pair: pair[1].line)


async def _begin(
    ctx: JobContext,
    deps: Deps,
    corpus_batch: CorpusBatch,
    latest: list[tuple[SourceInfo, jsonl.Record]],
) -> dict[UUID, Attempt] | None:
    """Rows and new generations for the batch; None if the corpus was deleted or added again."""
    request = corpus_batch.payload.request
    unread = {
        _record_uri(corpus_batch, f.id) for f in corpus_batch.batch.failures if f.id is not None
    }
    sources = [source for source, _ in latest]
    async with deps.stack.db.transaction() as conn:
        await hold(conn, ctx.job)
        if not await _still_current(conn, corpus_batch):
            return None
        await records.accept(conn, sources, corpus_batch.corpus, request)
        await records.keep(
            conn, [document_id(corpus_batch.container.id, uri) for uri in unread], request
        )
        return await documents.take_generations(conn, [s.doc_id for s in sources], request)


def _record_uri(corpus_batch: CorpusBatch, record_id: str) -> str:
    return f"{corpus_batch.payload.uri}#{record_id}"


async def _still_current(conn: Connection, corpus_batch: CorpusBatch) -> bool:
    if await containers.hold(conn, corpus_batch.container.id) is None:
        return False
    return await documents.still_current(conn, corpus_batch.corpus, corpus_batch.payload.request)


def _follow_ups(
    ctx: JobContext,
    corpus_batch: CorpusBatch,
    ready: Sequence[StagedGeneration],
    now_live: Collection[UUID],
) -> list[NewJob]:
    """Of the records; the corpus itself has no text."""
    visible = [
        PublishedDocument(
            one.doc_id,
            one.generation,
            SourceType(one.live.source_type),
            is_record=True,
            principal=ctx.job.principal,
        )
        for one in ready
        if one.doc_id in now_live
    ]
    manifest = corpus_batch.container.manifest
    return [job for one in visible for job in followups_of(manifest, one)]


async def _commit(
    ctx: JobContext, deps: Deps, corpus_batch: CorpusBatch, ready: list[StagedGeneration]
) -> None:
    """Publish the batch and store the cursor, in one transaction."""
    batch = corpus_batch.batch
    done = batch.next_offset >= batch.total_bytes
    payload = corpus_batch.payload.model_copy(
        update={
            "offset": batch.next_offset,
            "line": batch.next_line,
            "records": corpus_batch.payload.records + len(batch.records),
            "failures": corpus_batch.payload.failures + len(batch.failures),
            "nameless": corpus_batch.payload.nameless + sum(f.id is None for f in batch.failures),
        }
    )
    await ctx.progress(batch.next_offset, batch.total_bytes, f"{payload.records} records")
    await (
        ctx.fence()
    )  # a fresh lease: the heartbeat waits while the transaction holds the job's row

    async def write(conn: Connection) -> PublicationResult:
        await hold(conn, ctx.job)
        latest = await _still_current(conn, corpus_batch)
        whole = await _whole(conn, corpus_batch, payload) if latest and done else None
        given = [*ready, whole] if whole else ready
        published = await publish(conn, corpus_batch.container.id, given) if latest else NOTHING
        vanished = (
            corpus_batch.corpus in published.now_live
            and payload.request > 1
            and not payload.nameless
        )
        await _purge(conn, ctx, deps, corpus_batch, given, published.now_live, vanished=vanished)
        await enqueue_if_needed(conn, corpus_batch.container.id)
        await enqueue_dedup_pending(conn, corpus_batch.container.id, principal=ctx.job.principal)
        if jobs := _follow_ups(ctx, corpus_batch, ready, published.now_live):
            await enqueue_many(conn, jobs)
        if done or not latest:
            await finish(conn, ctx.job, warnings=_summary(payload))
        else:
            await requeue_with(conn, ctx.job, payload.model_dump(mode="json"))
        failpoint("corpus.before_commit")
        return published

    published = await ctx.transact(write)
    failpoint("corpus.after_commit")
    deps.stack.metrics.published.inc(len(published.now_live))


async def _whole(
    conn: Connection, corpus_batch: CorpusBatch, payload: IngestPayload
) -> StagedGeneration | None:
    """The corpus itself, which becomes live with its last batch and has no chunks: listings know it by its hash."""
    if payload.records == 0:
        raise IngestFailed(
            f'\'{payload.filename}\' has no record: a line is {{"_id", "title", "text", …}}, and a mailbox has messages'
        )
    attempts = await documents.take_generations(conn, [corpus_batch.corpus], payload.request)
    attempt = attempts.get(corpus_batch.corpus)
    if attempt is None:
        return None
    original = corpus_batch.original
    mailbox = await asyncio.to_thread(is_mailbox, original.path, payload)
    source_type = SourceType.MAIL if mailbox else SourceType.JSON
    mime = MAILBOX_MIME if mailbox else "application/x-ndjson"
    return StagedGeneration(
        doc_id=corpus_batch.corpus,
        generation=attempt.generation,
        live=LiveGeneration(
            title=payload.filename,
            source_type=source_type.value,
            sha256=payload.source_sha256 or original.sha256,
            bytes=original.bytes,
            language="simple",
            fingerprint=original.sha256,
            chunks=0,
            mime=mime,
            meta=payload.meta,
            recipe=recipe_of(corpus_batch.container, source_type),
            given_meta=payload.given_meta,
        ),
        chunks=(),
        provenance={},
        request=payload.request,
        fetched_at=original.fetched_at,
        modified_at=original.modified_at,
        mtime_ns=original.mtime_ns,
        refs=[BlobRef("original", 0, original.sha256, mime, payload.filename)],
    )


async def _purge(
    conn: Connection,
    ctx: JobContext,
    deps: Deps,
    corpus_batch: CorpusBatch,
    given: list[StagedGeneration],
    now_live: frozenset[UUID],
    *,
    vanished: bool,
) -> None:
    """Purges older generations and refused records, and at the end records that are no longer in the corpus."""
    below = [(s.doc_id, s.generation) for s in given if s.doc_id in now_live and s.generation > 1]
    only = [(s.doc_id, s.generation) for s in given if s.doc_id not in now_live]
    if below or only or vanished:
        await enqueue_purges(
            conn,
            corpus_batch.container.id,
            below=below,
            only=only,
            records=[(corpus_batch.corpus, corpus_batch.payload.request)] if vanished else (),
            principal=ctx.job.principal,
            lease_seconds=deps.settings.lease_seconds,
            twice=ctx.job.attempts > 1 or bool(only),
        )


def _summary(payload: IngestPayload) -> list[Issue]:
    if not payload.failures:
        return []
    message = f"{payload.failures} lines of '{payload.filename}' were not valid records; {payload.records} records were ingested"
    if payload.nameless and payload.request > 1:
        message += (
            f"; none was removed, since {payload.nameless} lines do not tell which record they are"
        )
    return [Issue(code=IssueCode.INGEST_FAIL, message=message)]
