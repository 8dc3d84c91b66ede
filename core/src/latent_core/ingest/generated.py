"""Append, replace and drop generated chunks of published documents (ADR 0054).

Vectors are written before, as those of an ingest. Lock order as in ``publish``: container → document → chunks → postings
→ dead chunk_nos → stats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from latent_core.bm25 import postings
from latent_core.bm25.packing import ChunkTerms
from latent_core.db import containers
from latent_core.db.connection import Connection
from latent_core.db.documents import (
    chunks,
    documents,
    generated_chunks,
    page_extractions,
    summaries,
)
from latent_core.db.documents.chunks import NewChunkRow
from latent_core.db.documents.generated_chunks import GeneratedRow
from latent_core.db.spaces import space_points
from latent_core.domain.errors import Conflict, NotFound
from latent_core.domain.generated import GeneratedBy, GeneratedGroup, GeneratedKind
from latent_core.domain.ids import JobId
from latent_core.domain.job import JobKind, NewJob
from latent_core.ingest.delete import ChunkPoints, enqueue_point_purges
from latent_core.ingest.publish import (
    ContainerArchived,
    StagedChunk,
    enqueue_if_needed,
    live_collection,
    switched,
)
from latent_core.queue.enqueue import enqueue, withdraw
from latent_core.wire.containers import ContainerState

DOCUMENTS_PER_DROP: Final = 50


@dataclass(frozen=True, slots=True)
class GeneratedScope:
    """Which generated chunks a call replaces: those of one kind, of a document or of some of its pages."""

    container_id: str
    doc_id: UUID
    generation: int
    kind: GeneratedKind
    pages: tuple[int, ...] | None = None
    """None: all."""


@dataclass(frozen=True, slots=True)
class StagedTexts:
    """Generated chunks whose vectors are stored."""

    scope: GeneratedScope
    by: GeneratedBy
    language: str
    """Of the document: its texts are analysed in it."""
    kept: frozenset[int] = frozenset()
    """chunk_nos of rows that stay as they are."""
    chunks: Sequence[StagedChunk] = ()
    written: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """``StagedGeneration.written``"""
    made_by: str | None = None
    """``StagedGeneration.made_by``"""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Of the new chunks, without ``generated``."""
    intent: JobId | None = None
    """The purge that ``intend`` enqueued: needless once the rows are there."""


class GeneratedChanged(Conflict):
    """Another job replaced generated chunks that this one wanted to keep; the attempt is repeated."""

    transient = True


@dataclass(frozen=True, slots=True)
class PurgeTerms:
    """Who enqueues purges of points, and how long a lease is."""

    principal: str
    lease_seconds: float


async def append(conn: Connection, staged: StagedTexts, terms: PurgeTerms) -> bool:
    """Replace the generated chunks of ``staged.scope``, in the caller's transaction, which the job fences.

    False, and nothing is written, if another generation is live or the document is deleted. ``NotFound`` without the
    container; ``ContainerArchived``, ``SpaceSwitched`` and ``GeneratedChanged`` to try again.
    """
    scope = staged.scope
    state = await containers.hold(conn, scope.container_id)
    if state is None:
        raise NotFound(f"Container '{scope.container_id}' was deleted meanwhile.")
    if state is ContainerState.ARCHIVED:
        raise ContainerArchived(
            f"Container '{scope.container_id}' is archived. The job waits until it is active again."
        )
    made_by = {staged.made_by} if staged.chunks else set()
    live_in = await live_collection(conn, scope.container_id, made_by)
    if staged.chunks and live_in not in staged.written:
        raise switched(scope.container_id)
    if (await documents.lock(conn, [scope.doc_id])).get(scope.doc_id) != scope.generation:
        return False
    present = await generated_chunks.of_document(conn, scope.doc_id, scope.kind, scope.pages)
    if staged.chunks and staged.chunks[0].chunk.chunk_no in {row.chunk_no for row in present}:
        return True  # committed, but the answer was lost
    if not staged.kept <= {row.chunk_no for row in present}:
        raise GeneratedChanged(
            f"Another job replaced what was generated for document '{scope.doc_id}' meanwhile; the job is retried."
        )
    removed = [row for row in present if row.chunk_no not in staged.kept]
    await _remove(conn, scope.container_id, removed, terms)
    await _insert(conn, staged, live_in)
    await generated_chunks.renew(conn, scope.container_id, sorted(staged.kept), staged.by)
    await generated_chunks.count(conn, scope.doc_id, len(staged.chunks) - len(removed))
    await enqueue_if_needed(conn, scope.container_id)
    if staged.intent is not None:
        await withdraw(conn, staged.intent)
    return True


async def _insert(conn: Connection, staged: StagedTexts, live_in: int | None) -> None:
    if not staged.chunks:
        return
    scope, new = staged.scope, staged.chunks
    provenance = {**staged.provenance, "generated": staged.by.model_dump(mode="json")}
    windows = staged.written[live_in] if live_in is not None else [c.windows for c in new]
    rows = [
        NewChunkRow(
            doc_id=scope.doc_id,
            generation=scope.generation,
            container_id=scope.container_id,
            chunk=c.chunk,
            windows=n,
            tsv=c.tsv,
            length=c.length,
            provenance=provenance,
            signature=c.signature,
            generated=scope.kind,
        )
        for c, n in zip(new, windows, strict=True)
    ]
    await chunks.insert(conn, rows)
    await _note_spaces(conn, staged, live_in)
    terms = [ChunkTerms(c.chunk.chunk_no, c.length, c.tfs, staged.language) for c in new]
    await postings.write(conn, scope.container_id, terms)


async def _note_spaces(conn: Connection, staged: StagedTexts, live_in: int | None) -> None:
    """In other collections the points are counted, or the document counts as not embedded there."""
    scope = staged.scope
    if live_in is not None:
        await space_points.reopen(conn, scope.doc_id, live_in)
    for collection_id in await space_points.collections_of(conn, scope.doc_id, scope.generation):
        if collection_id != live_in and collection_id not in staged.written:
            await space_points.unrecord(conn, collection_id, {scope.doc_id})
    for collection_id, windows in staged.written.items():
        if collection_id != live_in:
            counts = {c.chunk.chunk_no: n for c, n in zip(staged.chunks, windows, strict=True)}
            await space_points.count_points(conn, scope.container_id, collection_id, counts)


async def _remove(
    conn: Connection, container_id: str, rows: Sequence[GeneratedRow], terms: PurgeTerms
) -> None:
    """Delete rows of chunks of live generations, and have their points deleted."""
    if not rows:
        return
    await generated_chunks.delete(conn, container_id, [row.chunk_no for row in rows])
    await postings.mark_dead(conn, container_id, [(row.chunk_no, row.length) for row in rows])
    await enqueue_point_purges(
        conn,
        container_id,
        [ChunkPoints(row.doc_id, row.generation, row.id, row.windows) for row in rows],
        principal=terms.principal,
        lease_seconds=terms.lease_seconds,
    )


async def intend(
    conn: Connection,
    container_id: str,
    points: Sequence[ChunkPoints],
    terms: PurgeTerms,
    job: JobId,
) -> JobId:
    """Make durable that these points are about to be written: those without a row are deleted when the job is over.
    Commit before the first of them is written. Returns the purge."""
    return await enqueue_point_purges(
        conn,
        container_id,
        points,
        principal=terms.principal,
        lease_seconds=terms.lease_seconds,
        job=job,
    )


@dataclass(frozen=True, slots=True)
class DropResult:
    """What one step of a drop removed; ``last`` is the document to continue after, None at the end."""

    documents: int
    chunks: int
    rows: int
    """Of ``summaries`` and ``page_extractions``."""
    last: UUID | None


async def drop(
    conn: Connection,
    container_id: str,
    group: GeneratedGroup,
    doc_ids: Sequence[UUID] | None,
    terms: PurgeTerms,
    *,
    after: UUID | None = None,
    limit: int | None = None,
) -> DropResult:
    """Remove the generated chunks of a group and what they were made from, of at most ``limit`` documents (None: of all),
    in the caller's transaction. ``NotFound`` without the container, ``ContainerArchived`` for an archived one.

    Chunks of the source are not touched. Answers of the model stay, so that generating again costs nothing.
    """
    state = await containers.hold(conn, container_id)
    if state is None:
        raise NotFound(f"Container '{container_id}' does not exist.")
    if state is ContainerState.ARCHIVED:
        raise ContainerArchived(
            f"Container '{container_id}' is archived: nothing in it changes until it is active again."
        )
    limit = limit or DOCUMENTS_PER_DROP
    found = await generated_chunks.documents_with(conn, container_id, group, doc_ids, after, limit)
    await documents.lock(conn, found)
    dropped = 0
    for doc in found:
        rows = [
            row
            for kind in group.kinds
            for row in await generated_chunks.of_document(conn, doc, kind)
        ]
        await _remove(conn, container_id, rows, terms)
        await generated_chunks.count(conn, doc, -len(rows))
        dropped += len(rows)
    removed = 0
    if group is GeneratedGroup.SUMMARIES:
        removed = await summaries.remove(conn, found)
    elif group is GeneratedGroup.EXTRACTION:
        removed = await page_extractions.remove(conn, found)
    await enqueue_if_needed(conn, container_id)
    last = found[-1] if len(found) == limit else None
    return DropResult(len(found), dropped, removed, last)


class DropPayload(BaseModel):
    """Payload of a ``drop_generated`` job."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    group: GeneratedGroup
    doc_ids: list[UUID] | None = None
    """None: all documents of the container."""


async def request_drop(
    conn: Connection, container_id: str, payload: DropPayload, *, principal: str
) -> JobId:
    """Enqueue the job that drops. The caller holds the container, which is active."""
    return await enqueue(
        conn,
        NewJob(
            kind=JobKind.DROP_GENERATED,
            container_id=container_id,
            doc_key=f"drop_generated:{container_id}",
            payload=payload.model_dump(mode="json"),
            principal=principal,
        ),
    )


async def request_embedding(
    conn: Connection, container_id: str, doc_id: UUID, *, principal: str
) -> JobId:
    """Enqueue the job that writes the vectors of a document's generated chunks again."""
    key = f"embed_generated:{doc_id}"
    return await enqueue(
        conn,
        NewJob(
            kind=JobKind.EMBED_GENERATED,
            container_id=container_id,
            doc_id=doc_id,
            doc_key=key,
            dedupe_key=key,
            principal=principal,
        ),
    )
