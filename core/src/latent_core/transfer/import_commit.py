"""The vectors of a step, stored where nothing sees them yet, and the transaction that makes its documents live."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence, Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import numpy as np

from latent_core.bm25 import postings
from latent_core.bm25.packing import KeywordColumns
from latent_core.db import containers
from latent_core.db.connection import Connection
from latent_core.db.documents import chunks as chunk_rows, documents, duplicates
from latent_core.db.documents.page_words import as_json
from latent_core.db.transfer import import_rows as rows
from latent_core.domain.chunk import Modality
from latent_core.domain.errors import Conflict
from latent_core.domain.ids import PointId, document_id, point_id
from latent_core.domain.note import is_note
from latent_core.domain.origin import Origin
from latent_core.domain.vector_types import Matrix
from latent_core.ingest.publish import live_collection, switched
from latent_core.ingest.stage import Checkpoint, stage_points
from latent_core.transfer.batches import ArchiveBatch
from latent_core.transfer.import_container import hold_open
from latent_core.transfer.import_rows import StepRows
from latent_core.transfer.records import ChunkRecord, DocumentRecord
from latent_core.transfer.selection import ImportTarget, SelectedDocumentRows, Step
from latent_core.vectors.port import Points, VectorIndex

POINTS_PER_WRITE: Final = 2048
"""Each write is brought to the disk: thousands at once cost as little as some."""

Embed = Callable[[Sequence[ChunkRecord], Sequence[str | None]], Awaitable[tuple[list[int], Matrix]]]
"""Windows of each chunk, and their vectors: for chunks whose own are not there or of another space."""


async def vectors_of(
    target: ImportTarget,
    taken: Sequence[SelectedDocumentRows],
    batches: Sequence[ArchiveBatch],
    embed: Embed,
) -> tuple[list[int], Matrix, int]:
    """Windows and vectors of the chunks of ``taken``, in order; and how many of them had to be embedded."""
    stored: dict[int, Matrix] = {}
    if target.same_space:
        for batch in batches:
            for part in batch.parts:
                stored.update(_rows_of(part.chunks, part.vectors))
    chunks = [chunk for one in taken for chunk in one.chunks]
    lacking = [chunk for chunk in chunks if chunk.n not in stored]
    if lacking:
        pictures = _pictures(taken)
        windows, matrix = await embed(lacking, [pictures.get(chunk.n) for chunk in lacking])
        ends = np.cumsum(windows)
        for chunk, end, count in zip(lacking, ends, windows, strict=True):
            stored[chunk.n] = matrix[int(end) - count : int(end)]
    parts = [stored[chunk.n] for chunk in chunks]
    dims = target.container.space.dims
    matrix = np.concatenate(parts) if parts else np.empty((0, dims), np.float32)
    return [len(part) for part in parts], matrix, len(lacking)


def _pictures(taken: Sequence[SelectedDocumentRows]) -> dict[int, str]:
    """Hash of the picture of each image chunk, by chunk number, if the archive contains its bytes."""
    found: dict[int, str] = {}
    for one in taken:
        drawn = {page.page: page.sha256 for page in one.pages if page.uri is not None}
        for chunk in one.chunks:
            if chunk.modality is Modality.IMAGE and chunk.page is not None:
                sha256 = drawn.get(chunk.page)
                if sha256 is not None:
                    found[chunk.n] = sha256
    return found


def _rows_of(chunks: Sequence[ChunkRecord], vectors: Matrix | None) -> Iterator[tuple[int, Matrix]]:
    if vectors is None:
        return
    start = 0
    for chunk in chunks:
        yield chunk.n, vectors[start : start + chunk.windows]
        start += chunk.windows


async def stage(
    index: VectorIndex, target: ImportTarget, step: Step, checkpoint: Checkpoint
) -> None:
    """Store the vectors of a step before its documents are visible."""
    points = await asyncio.to_thread(_points, step)
    space = target.container.space
    await stage_points(index, space, points, checkpoint, at_once=POINTS_PER_WRITE)


def _points(step: Step) -> Points:
    ids: list[PointId] = []
    docs: list[UUID] = []
    generations: list[int] = []
    chunk_nos: list[int] = []
    for one, windows in zip(step.chunks, step.windows, strict=True):
        for window in range(windows):
            ids.append(point_id(one.id, one.document.generation, window))
            docs.append(one.document.doc_id)
            generations.append(one.document.generation)
            chunk_nos.append(one.chunk_no)
    return Points(ids, step.vectors, docs, generations, chunk_nos)


SETTLED_CHUNKS: Final = 4000
"""This many chunks together have postings that need no compaction."""


class BlobsGone(Conflict):
    """Blobs from the archive were removed again; the step is repeated and stores them again."""

    transient = True


@dataclass(frozen=True, slots=True)
class CommittedStep:
    """What a step did."""

    now_live: frozenset[UUID]
    refused: list[tuple[UUID, int]]
    """Generations that something newer overtook: their points are garbage."""
    replaced: list[tuple[UUID, int]]
    """Documents that had older generations, and below which these are garbage."""
    lacking_blobs: int
    dedup_pending: bool
    live: KeywordColumns
    """The chunks that are live now. Of a new container their postings are still to be written."""


async def commit(
    conn: Connection,
    target: ImportTarget,
    step: Step,
    written: StepRows,
    brought: AbstractSet[bytes] = frozenset(),
) -> CommittedStep:
    """Make a step's documents live, in the caller's fenced transaction; locks in the house's order.

    ``brought`` are the hashes of blobs that this attempt stored: ``BlobsGone`` when one is needed and absent.
    """
    container_id = target.container.id
    if not target.founded:
        await hold_open(conn, container_id)
    live_in = await live_collection(conn, container_id, [target.container.space.made_by])
    if live_in != target.container.space.collection_id and not target.founded:
        raise switched(container_id)
    ids = [one.doc_id for one in step.taken]
    before = await documents.lock(conn, ids)
    dead = await chunk_rows.live_lengths(
        conn, [i for i, live in before.items() if live is not None]
    )
    now_live = await rows.publish(conn, [_live(target, one) for one in step.taken])
    live = [one for one in step.taken if one.doc_id in now_live]
    await containers.add_languages(
        conn, container_id, (one.record.language for one in live if one.chunks)
    )
    await rows.copy_chunks(
        conn,
        [row for doc, row in zip(written.docs, written.chunks, strict=True) if doc in now_live],
        [row for doc, row in zip(written.docs, written.signatures, strict=True) if doc in now_live],
    )
    lacking = await _refer(conn, target.container.bucket, live, brought)
    await _write_generated(conn, live)
    columns, packed = written.columns, written.packed
    kept = [n for n, doc in enumerate(written.docs) if doc in now_live]
    if len(kept) != len(written.docs):  # something newer overtook a document
        columns, packed = columns.only(kept), None
    if not target.founded:
        if packed is None:
            packed = await asyncio.to_thread(postings.prepare, container_id, columns)
        await write_postings(conn, container_id, packed)
    dead_chunks = [(chunk_no, length) for doc, chunk_no, length in dead if doc in now_live]
    await postings.mark_dead(conn, container_id, dead_chunks)
    await rows.copy_duplicates(conn, written.duplicates)
    dedup_pending = [chunk_no for doc, chunk_no in written.dedup_pending if doc in now_live]
    dedup_pending += [chunk_no for chunk_no, _ in dead_chunks]
    await duplicates.leave(conn, container_id, dedup_pending)
    if target.founded and step.taken:
        last = max((c.n for one in step.taken for c in one.chunks), default=-1)
        await rows.numbered(conn, container_id, last + 1)
    return CommittedStep(
        now_live=frozenset(now_live),
        refused=[(o.doc_id, o.generation) for o in step.taken if o.doc_id not in now_live],
        replaced=[(o.doc_id, o.generation) for o in live if o.generation > 1],
        lacking_blobs=lacking,
        dedup_pending=bool(dedup_pending),
        live=columns,
    )


async def write_postings(
    conn: Connection, container_id: str, packed: postings.PreparedPostings
) -> None:
    settled = len(packed.columns) >= SETTLED_CHUNKS
    await postings.write_prepared(conn, container_id, packed, settled=settled)


async def _write_generated(conn: Connection, live: Sequence[SelectedDocumentRows]) -> None:
    """What the generated chunks were made from."""
    summaries = [
        one.record.summary.model_dump(mode="json")
        | {"doc_id": one.doc_id, "generation": one.generation}
        for one in live
        if one.record.summary is not None
    ]
    extractions = [
        page.extraction.model_dump(mode="json")
        | {"doc_id": one.doc_id, "generation": one.generation, "page": page.page}
        for one in live
        for page in one.pages
        if page.extraction is not None
    ]
    await rows.write_summaries(conn, summaries)
    await rows.write_extractions(conn, extractions)


async def _refer(
    conn: Connection,
    bucket: str,
    live: Sequence[SelectedDocumentRows],
    brought: AbstractSet[bytes],
) -> int:
    """Insert pages and references to blobs; returns the number of references to blobs that are not stored here."""
    hashes = {ref.sha256 for one in live for ref in one.record.refs}
    present = await rows.present(conn, bucket, hashes)
    gone = sorted(one for one in hashes - present if bytes.fromhex(one) in brought)
    if gone:
        raise BlobsGone(
            f"{len(gone)} originals or page images were removed before their documents referred to them ({gone[0]})."
            " The import reads them from the archive again."
        )
    await rows.copy_pages(
        conn,
        (
            (
                one.doc_id,
                one.generation,
                p.page,
                p.sha256 if p.sha256 in present else None,
                p.pdf_sha256 if p.pdf_sha256 in present else None,
                p.text,
                p.width,
                p.height,
                p.line_start,
                p.line_end,
                p.visual,
                None if p.words is None else as_json(p.words),
            )
            for one in live
            for p in one.pages
        ),
    )
    kept = [(one, ref) for one in live for ref in one.record.refs if ref.sha256 in present]
    await rows.copy_refs(
        conn,
        (
            (o.doc_id, o.generation, r.role, r.part, bucket, r.sha256, r.mime, r.filename)
            for o, r in kept
        ),
    )
    return sum(len(one.record.refs) for one in live) - len(kept)


def _live(target: ImportTarget, one: SelectedDocumentRows) -> dict[str, Any]:
    record, made_here = one.record, target.recipe
    current = record.recipe is not None and made_here is not None
    superseded_by = (
        document_id(target.container.id, record.superseded_by) if record.superseded_by else None
    )
    return {
        "id": one.doc_id,
        "generation": one.generation,
        "request": one.request,
        "title": record.title,
        "source_type": record.source_type.value,
        "sha256": record.sha256,
        "bytes": record.bytes,
        "language": record.language,
        "fingerprint": record.fingerprint,
        "chunks": len(one.chunks),
        "mime": record.mime,
        "meta": record.meta,
        "validators": record.validators,
        "source_modified_at": record.source_modified_at,
        "source_mtime_ns": record.source_mtime_ns,
        "fetched_at": record.fetched_at,
        "first_fetched_at": record.first_fetched_at,
        "recipe": f"{made_here}{record.recipe}" if current else None,
        "given_meta": record.given_meta,
        "origin": _origin(record).value,
        "written_by": record.written_by,
        "token_name": record.token_name,
        "written_at": record.written_at or record.created_at,
        "session": record.session,
        "version": record.version,
        "superseded_by": superseded_by,
        "superseded_at": record.superseded_at if superseded_by is not None else None,
        "expires_at": record.expires_at,
        "accepted_sha256": _accepted(record),
    }


def _accepted(record: DocumentRecord) -> str | None:
    """The text of a note, if the archive has its bytes."""
    has_bytes = any(ref.role == "original" for ref in record.refs)
    return record.sha256 if has_bytes and is_note(record.uri) else None


def _origin(record: DocumentRecord) -> Origin:
    """Archives from before origins were recorded tell web pages by their addresses."""
    web = record.uri.startswith(("http://", "https://"))
    return Origin.WEB if web and record.origin is Origin.FILE else record.origin
