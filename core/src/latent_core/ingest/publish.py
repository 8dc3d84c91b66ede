"""Make staged generations visible by one commit.

The caller first fences the transaction with its claim (``latent_core.queue``). Lock order: container → documents by id
→ chunks → postings → dead chunk_nos → stats.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from latent_core.bm25 import postings
from latent_core.bm25.analyser import AnalysedText, term_vector
from latent_core.bm25.compaction import needed
from latent_core.bm25.exact import signature
from latent_core.bm25.packing import ChunkTerms, Tfs
from latent_core.db import containers
from latent_core.db.connection import Connection
from latent_core.db.documents import chunks, documents, duplicates, notes, pages
from latent_core.db.documents.chunks import NewChunkRow
from latent_core.db.documents.documents import LiveGeneration
from latent_core.db.documents.pages import BlobRef, PageRow
from latent_core.db.spaces import space_points, spaces
from latent_core.domain.chunk import Chunk
from latent_core.domain.errors import Conflict, NotFound
from latent_core.domain.generated import GeneratedBy
from latent_core.domain.ids import SpaceId
from latent_core.domain.job import PRIORITY_LATER, JobKind, NewJob
from latent_core.queue.enqueue import ensure_queued
from latent_core.wire.containers import ContainerState


@dataclass(frozen=True, slots=True)
class StagedChunk:
    """A chunk whose vectors are stored."""

    chunk: Chunk
    length: int
    """``Analysed.length``"""
    tfs: Tfs
    tsv: str
    windows: int
    signature: str

    @classmethod
    def of(cls, chunk: Chunk, analysed: AnalysedText, windows: int) -> StagedChunk:
        """Does the costly work before the transaction begins."""
        return cls(
            chunk,
            analysed.length,
            Tfs(analysed.tfs),
            term_vector(analysed),
            windows,
            signature(chunk.draft.text),
        )


@dataclass(frozen=True, slots=True)
class StagedGeneration:
    """A generation of a document, complete in the other stores but not visible yet."""

    doc_id: UUID
    generation: int
    live: LiveGeneration
    chunks: Sequence[StagedChunk]
    provenance: dict[str, Any]
    request: int
    """The request it serves (``documents.request``)."""
    fetched_at: datetime
    modified_at: datetime | None = None
    mtime_ns: int | None = None
    pages: Sequence[PageRow] = ()
    refs: Sequence[BlobRef] = field(default_factory=tuple)
    written: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Collections that hold its vectors (``Space.collection_id``), each with the number of points of every chunk.
    Empty: only the live one does, as the chunks say, and it is known not to change meanwhile."""
    made_by: str | None = None
    """Version of the live collection at the time of writing (``Space.made_by``); None: unknown."""
    generated: GeneratedBy | None = None
    """Who wrote its texts, if a model did: those of a recording."""


class SpaceSwitched(Conflict):
    """The live space changed after the attempt wrote its vectors; the attempt is repeated."""

    transient = True


class ContainerArchived(Conflict):
    """The container was archived meanwhile, so nothing becomes visible in it."""

    transient = True


def switched(container_id: str) -> SpaceSwitched:
    return SpaceSwitched(
        f"Container '{container_id}' was switched to another embedding space meanwhile; the job is retried."
    )


async def live_collection(
    conn: Connection, container_id: str, made_by: Collection[str | None]
) -> SpaceId | None:
    """The collection that is searched; ``SpaceSwitched`` if another version re-embedded it meanwhile. Hold the
    container first."""
    live = await spaces.live(conn, container_id)
    if live is None:
        return None
    if any(one not in (None, live.version) for one in made_by):
        raise switched(container_id)
    return live.collection_id


@dataclass(frozen=True, slots=True)
class PublicationResult:
    """Result of a publication."""

    now_live: frozenset[UUID]
    """Documents whose staged generation is visible now."""
    refused: frozenset[UUID]
    """Documents that were deleted or have a newer generation: their staged points and blobs are garbage."""


async def publish(
    conn: Connection, container_id: str, staged: Sequence[StagedGeneration]
) -> PublicationResult:
    """Publish generations of one container in the caller's transaction.

    ``NotFound`` if the container was deleted meanwhile, ``SpaceSwitched`` if the staged vectors are not in the space
    that is live now. The caller must then roll back.
    """
    if len({s.doc_id for s in staged}) != len(staged):
        raise ValueError("a publication names a document twice")
    state = await containers.hold(conn, container_id)
    if state is None:
        raise NotFound(f"Container '{container_id}' was deleted while the document was ingested.")
    if state is ContainerState.ARCHIVED:
        raise ContainerArchived(
            f"Container '{container_id}' is archived. The document waits until the container is active again."
        )
    made_by = {s.made_by for s in staged if s.chunks}
    live_in = await live_collection(conn, container_id, made_by)
    if any(s.chunks and s.written and live_in not in s.written for s in staged):
        raise switched(container_id)
    ids = [s.doc_id for s in staged]
    predecessors = await notes.predecessors(conn, {s.doc_id: s.request for s in staged})
    locked = await documents.lock(conn, [*ids, *predecessors])
    before = {doc: locked[doc] for doc in ids if doc in locked}
    replaced = [doc for doc, live in before.items() if live is not None]
    lengths: dict[UUID, list[tuple[int, int]]] = {}
    for doc, chunk_no, length in await chunks.live_lengths(conn, replaced) if replaced else ():
        lengths.setdefault(doc, []).append((chunk_no, length))
    now_live = [s for s in staged if await _publish_one(conn, s)]
    await containers.add_languages(
        conn, container_id, (s.live.language for s in now_live if s.chunks)
    )
    await chunks.insert(conn, [row for s in now_live for row in _rows(container_id, s, live_in)])
    await _note_spaces(conn, container_id, now_live, live_in)
    for s in now_live:
        await pages.write(conn, s.doc_id, s.generation, s.pages)
        if any(page.line_start is not None for page in s.pages):  # drawn from text, already
            await chunks.place_on_pages(conn, s.doc_id, s.generation)
    await pages.refer_all(conn, [(s.doc_id, s.generation, r) for s in now_live for r in s.refs])
    dead_chunks = [pair for s in now_live for pair in lengths.get(s.doc_id, ())]
    await postings.write(conn, container_id, [t for s in now_live for t in _terms(s)])
    await postings.mark_dead(conn, container_id, dead_chunks)
    await duplicates.leave(
        conn,
        container_id,
        [*(c.chunk.chunk_no for s in now_live for c in s.chunks), *dict(dead_chunks)],
    )
    done = frozenset(s.doc_id for s in now_live)
    if predecessors:
        await notes.hide(conn, predecessors, done)
    return PublicationResult(now_live=done, refused=frozenset(s.doc_id for s in staged) - done)


async def _publish_one(conn: Connection, staged: StagedGeneration) -> bool:
    return await documents.publish(
        conn,
        staged.doc_id,
        staged.generation,
        staged.live,
        request=staged.request,
        fetched_at=staged.fetched_at,
        modified_at=staged.modified_at,
        mtime_ns=staged.mtime_ns,
    )


async def _note_spaces(
    conn: Connection, container_id: str, now_live: Sequence[StagedGeneration], live_in: int | None
) -> None:
    """Record the points that were written to collections other than the live one."""
    for collection_id in sorted({one for s in now_live for one in s.written if one != live_in}):
        there = [s for s in now_live if collection_id in s.written]
        await space_points.record(conn, collection_id, [(s.doc_id, s.generation) for s in there])
        windows = {
            c.chunk.chunk_no: n
            for s in there
            for c, n in zip(s.chunks, s.written[collection_id], strict=True)
        }
        await space_points.count_points(conn, container_id, collection_id, windows)


def _rows(container_id: str, staged: StagedGeneration, live_in: int | None) -> list[NewChunkRow]:
    windows = staged.written.get(live_in) if live_in is not None else None
    counts = windows if windows is not None else [c.windows for c in staged.chunks]
    by = staged.generated
    marked = {} if by is None else {"generated": by.model_dump(mode="json")}
    return [
        NewChunkRow(
            doc_id=staged.doc_id,
            generation=staged.generation,
            container_id=container_id,
            chunk=c.chunk,
            windows=n,
            tsv=c.tsv,
            length=c.length,
            provenance=staged.provenance | marked,
            signature=c.signature,
            generated=None if by is None else by.kind,
        )
        for c, n in zip(staged.chunks, counts, strict=True)
    ]


def _terms(staged: StagedGeneration) -> list[ChunkTerms]:
    language = staged.live.language
    return [ChunkTerms(c.chunk.chunk_no, c.length, c.tfs, language) for c in staged.chunks]


async def enqueue_if_needed(conn: Connection, container_id: str) -> None:
    """Enqueue a compaction if there are enough small rows and none is queued yet."""
    if await needed(conn, container_id):
        await ensure_queued(
            conn,
            NewJob(
                kind=JobKind.COMPACT,
                container_id=container_id,
                doc_key=f"compact:{container_id}",
                dedupe_key=f"compact:{container_id}",
                priority=PRIORITY_LATER,
            ),
        )
