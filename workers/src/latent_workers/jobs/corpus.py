"""Ingest a JSONL corpus: a document a record, a batch a turn.

After each batch the job goes to the end of its container's line with a cursor, in the transaction that
makes the batch visible: it neither blocks the worker nor starts again (DESIGN §9).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

import orjson

from latent_core.domain.chunk import SourceType
from latent_core.domain.doc_meta import published_meta
from latent_core.domain.errors import IngestFailed, Issue, IssueCode
from latent_core.domain.ids import Sha256, document_id
from latent_core.domain.manifest import Manifest
from latent_core.ingest.accept import IngestPayload
from latent_core.ingest.compaction import enqueue_if_needed
from latent_core.ingest.delete import (
    LEASES_TO_WAIT,
    enqueue_collection,
    enqueue_purges,
)
from latent_core.ingest.likenesses import enqueue_judging
from latent_core.ingest.publish import Published, Staged, publish
from latent_core.processes.crash import crash_point
from latent_core.queue.comeback import requeue_with
from latent_core.queue.context import JobContext
from latent_core.queue.finish import finish, hold
from latent_core.registry import containers, documents, records
from latent_core.registry.connection import Connection
from latent_core.registry.containers import Container
from latent_core.registry.documents import Attempt, Live, Source
from latent_core.registry.pages import BlobRef
from latent_workers.deps import Deps
from latent_workers.fetch.original import Original, fetch, stored
from latent_workers.fetch.page import awaits_fetch, fetch_page
from latent_workers.jobs.archived import unless_archived
from latent_workers.jobs.given_up import swept_if_given_up
from latent_workers.jobs.make import Made, fingerprint, make, recipe_of, stage
from latent_workers.parse import jsonl
from latent_workers.parse.registry import Detected
from latent_workers.parse.run import read_records

RECORDS_A_BATCH: Final = 256
BYTES_A_BATCH: Final = 8 * 1024 * 1024
FAILURES_TOLD: Final = 20
"""A batch: more bad lines are counted, not listed."""

NOTHING: Final = Published(frozenset(), frozenset())
RECORD: Final = Detected(SourceType.TEXT, "text/plain")


@dataclass(frozen=True, slots=True)
class Turn:
    """One batch of one corpus."""

    container: Container
    corpus: UUID
    payload: IngestPayload
    original: Original
    batch: jsonl.Batch


async def corpus(ctx: JobContext, deps: Deps) -> None:
    """One batch of records, made visible together; then the next turn, or the end."""
    container = await unless_archived(ctx, deps)
    if container is None:
        return
    staged: list[tuple[UUID, int]] = []
    async with swept_if_given_up(ctx, deps, staged):
        turn = await _read(ctx, deps, container)
        await _tell_failures(ctx, turn.batch)
        await _records(ctx, deps, turn, staged)


async def _read(ctx: JobContext, deps: Deps, container: Container) -> Turn:
    if ctx.job.doc_id is None:
        raise IngestFailed(f"job {ctx.job.id} names no document")
    payload = IngestPayload.model_validate(ctx.job.payload)
    if awaits_fetch(payload):
        payload = await fetch_page(ctx, deps, payload)
    original = await fetch(ctx, deps, payload)
    payload = stored(payload, original)
    batch = await read_records(
        deps.sandbox,
        original.path,
        offset=payload.offset,
        line=payload.line,
        max_records=RECORDS_A_BATCH,
        max_bytes=BYTES_A_BATCH,
    )
    checked = _checked(container.manifest, payload.meta, batch)
    return Turn(container, ctx.job.doc_id, payload, original, checked)


def _checked(manifest: Manifest, said: dict[str, Any], batch: jsonl.Batch) -> jsonl.Batch:
    """A record whose meta the container's schema does not allow is a failure, as a line that is none."""
    records, failures = [], list(batch.failures)
    for record in batch.records:
        try:
            published_meta(manifest, record.meta, said)
            records.append(record)
        except IngestFailed as exc:
            failures.append(jsonl.RecordFailure(record.line, exc.message, record.id))
    failures.sort(key=lambda failure: failure.line)
    return replace(batch, records=tuple(records), failures=tuple(failures))


async def _tell_failures(ctx: JobContext, batch: jsonl.Batch) -> None:
    for failure in batch.failures[:FAILURES_TOLD]:
        await ctx.warn(
            Issue(
                code=IssueCode.INGEST_FAIL,
                message=f"line {failure.line}: {failure.message}",
                details={"line": failure.line, "external_id": failure.id},
            )
        )
    if len(batch.failures) > FAILURES_TOLD:
        await ctx.warn(
            Issue(
                code=IssueCode.INGEST_FAIL,
                message=f"{len(batch.failures) - FAILURES_TOLD} more lines from line {batch.failures[FAILURES_TOLD].line} on",
            )
        )


async def _records(
    ctx: JobContext, deps: Deps, turn: Turn, staging: list[tuple[UUID, int]]
) -> None:
    wanted = _last_of_each(turn)
    attempts = await _begin(ctx, deps, turn, wanted)
    if attempts is None:
        await ctx.transact(lambda conn: _overtaken(conn, ctx, deps))
        return
    model = deps.embedder(turn.container.space).model
    work: list[tuple[Attempt, Made, jsonl.Record, str]] = []
    for source, record in wanted:
        attempt = attempts.get(source.doc_id)
        printed = fingerprint(
            turn.container,
            model,
            _content_hash(record),
            RECORD,
            _record_payload(turn.payload, record),
        )
        if attempt is None or (attempt.fingerprint == printed and not turn.payload.rebuild):
            continue
        made = await make(deps, turn.container, jsonl.parsed(record), SourceType.TEXT)
        if made.drafts:
            work.append((attempt, made, record, printed))
    staging += [(attempt.doc_id, attempt.generation) for attempt, _, _, _ in work]
    staged = await stage(ctx, deps, turn.container, [(a, m) for a, m, _, _ in work])
    ready = [
        Staged(
            doc_id=attempt.doc_id,
            generation=attempt.generation,
            live=made.live(
                title=record.title or record.id,
                sha256=_content_hash(record),
                size=len(record.text.encode()),
                mime=RECORD.mime,
                fingerprint=printed,
                meta=published_meta(turn.container.manifest, record.meta, turn.payload.meta),
                recipe=recipe_of(turn.container),
            ),
            chunks=there.chunks,
            written=there.written,
            made_by=turn.container.space.made_by,
            provenance=made.provenance(turn.container, SourceType.TEXT),
            request=turn.payload.request,
            fetched_at=turn.original.fetched_at,
            modified_at=turn.original.modified_at,
        )
        for (attempt, made, record, printed), there in zip(work, staged, strict=True)
    ]
    await ctx.checkpoint()
    await _commit(ctx, deps, turn, ready)


async def _overtaken(conn: Connection, ctx: JobContext, deps: Deps) -> None:
    await finish(conn, ctx.job)
    await enqueue_collection(
        conn,
        principal=ctx.job.principal,
        delay_seconds=LEASES_TO_WAIT * deps.settings.lease_seconds,
    )


def _content_hash(record: jsonl.Record) -> Sha256:
    """Of all a record says; the line it stands in does not matter."""
    said = [record.id, record.title, record.text, record.meta]
    return Sha256(hashlib.sha256(orjson.dumps(said, option=orjson.OPT_SORT_KEYS)).hexdigest())


def _record_payload(payload: IngestPayload, record: jsonl.Record) -> IngestPayload:
    return payload.model_copy(update={"filename": record.title})


def _last_of_each(turn: Turn) -> list[tuple[Source, jsonl.Record]]:
    """The batch's records by document; of two with one id the last one stands."""
    found: dict[UUID, tuple[Source, jsonl.Record]] = {}
    for record in turn.batch.records:
        source = Source(
            turn.container.id,
            _record_uri(turn, record.id),
            RECORD.mime,
            external_id=record.id,
            parent_id=turn.corpus,
        )
        found[source.doc_id] = (source, record)
    return sorted(found.values(), key=lambda pair: pair[1].line)


async def _begin(
    ctx: JobContext, deps: Deps, turn: Turn, wanted: list[tuple[Source, jsonl.Record]]
) -> dict[UUID, Attempt] | None:
    """Rows and fresh generations for the batch; None when the corpus was deleted or added anew."""
    request = turn.payload.request
    unread = {_record_uri(turn, f.id) for f in turn.batch.failures if f.id is not None}
    sources = [source for source, _ in wanted]
    async with deps.stack.db.transaction() as conn:
        await hold(conn, ctx.job)
        if not await _still_wanted(conn, turn):
            return None
        await records.accept(conn, sources, turn.corpus, request)
        await records.keep(conn, [document_id(turn.container.id, uri) for uri in unread], request)
        return await documents.take_generations(conn, [s.doc_id for s in sources], request)


def _record_uri(turn: Turn, record_id: str) -> str:
    return f"{turn.payload.uri}#{record_id}"


async def _still_wanted(conn: Connection, turn: Turn) -> bool:
    if await containers.hold(conn, turn.container.id) is None:
        return False
    return await documents.still_wanted(conn, turn.corpus, turn.payload.request)


async def _commit(ctx: JobContext, deps: Deps, turn: Turn, ready: list[Staged]) -> None:
    """Publish the batch and move on, in one transaction."""
    batch = turn.batch
    done = batch.next_offset >= batch.total_bytes
    payload = turn.payload.model_copy(
        update={
            "offset": batch.next_offset,
            "line": batch.next_line,
            "records": turn.payload.records + len(batch.records),
            "failures": turn.payload.failures + len(batch.failures),
            "nameless": turn.payload.nameless + sum(f.id is None for f in batch.failures),
        }
    )
    await ctx.progress(batch.next_offset, batch.total_bytes, f"{payload.records} records")
    await (
        ctx.fence()
    )  # a fresh lease: the heartbeat waits while the transaction holds the job's row

    async def write(conn: Connection) -> Published:
        await hold(conn, ctx.job)
        wanted = await _still_wanted(conn, turn)
        whole = await _whole(conn, turn, payload) if wanted and done else None
        given = [*ready, whole] if whole else ready
        published = await publish(conn, turn.container.id, given) if wanted else NOTHING
        vanished = turn.corpus in published.flipped and payload.request > 1 and not payload.nameless
        await _purge(conn, ctx, deps, turn, given, published.flipped, vanished=vanished)
        await enqueue_if_needed(conn, turn.container.id)
        await enqueue_judging(conn, turn.container.id, principal=ctx.job.principal)
        if done or not wanted:
            await finish(conn, ctx.job, warnings=_summary(payload))
        else:
            await requeue_with(conn, ctx.job, payload.model_dump(mode="json"))
        crash_point("corpus.before_commit")
        return published

    published = await ctx.transact(write)
    crash_point("corpus.after_commit")
    deps.stack.metrics.published.inc(len(published.flipped))


async def _whole(conn: Connection, turn: Turn, payload: IngestPayload) -> Staged | None:
    """The corpus itself, which becomes live with its last batch, without chunks of its own: listings know it by its hash."""
    if payload.records == 0:
        raise IngestFailed(
            f'\'{payload.filename}\' holds no record: a line is {{"_id", "title", "text", …}}'
        )
    attempts = await documents.take_generations(conn, [turn.corpus], payload.request)
    attempt = attempts.get(turn.corpus)
    if attempt is None:
        return None
    original = turn.original
    mime = "application/x-ndjson"
    return Staged(
        doc_id=turn.corpus,
        generation=attempt.generation,
        live=Live(
            title=payload.filename,
            source_type=SourceType.JSON.value,
            sha256=original.sha256,
            bytes=original.bytes,
            language="simple",
            fingerprint=original.sha256,
            chunks=0,
            mime=mime,
            meta=payload.meta,
            recipe=recipe_of(turn.container),
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
    turn: Turn,
    given: list[Staged],
    flipped: frozenset[UUID],
    *,
    vanished: bool,
) -> None:
    """What is older than the flipped generations, what was refused, and at the end the records that vanished."""
    below = [(s.doc_id, s.generation) for s in given if s.doc_id in flipped and s.generation > 1]
    only = [(s.doc_id, s.generation) for s in given if s.doc_id not in flipped]
    if below or only or vanished:
        await enqueue_purges(
            conn,
            turn.container.id,
            below=below,
            only=only,
            records=[(turn.corpus, turn.payload.request)] if vanished else (),
            principal=ctx.job.principal,
            lease_seconds=deps.settings.lease_seconds,
            twice=ctx.job.attempts > 1 or bool(only),
        )


def _summary(payload: IngestPayload) -> list[Issue]:
    if not payload.failures:
        return []
    message = f"{payload.failures} lines of '{payload.filename}' were no records; {payload.records} were ingested"
    if payload.nameless and payload.request > 1:
        message += (
            f"; none was removed, since {payload.nameless} lines do not tell which record they are"
        )
    return [Issue(code=IssueCode.INGEST_FAIL, message=message)]
