"""Import: an archive's documents, taken into a container in steps, each a transaction (DESIGN §7.5).

A container that an import makes stands behind a tombstone until the last step: nothing of it is seen before all of
it is. A merge shows each document when it is whole, as an ingest does. A step gives documents fresh generations
(committed first), stores their vectors, then commits rows, postings and the cursor at once: one that was cut off
is done again, under other generations where others can see the container.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

import numpy as np
import orjson
from pydantic import BaseModel, ConfigDict

from latent_core.archive.batches import Batch
from latent_core.archive.records import ChunkRecord, DocumentRecord, Header, PageRecord
from latent_core.domain import versions
from latent_core.domain.chunk import Modality
from latent_core.domain.container import ContainerState
from latent_core.domain.errors import Conflict, Invalid, NotFound
from latent_core.domain.ids import ChunkId, PointId, chunk_id, document_id, point_id
from latent_core.domain.manifest import Manifest
from latent_core.domain.recipe import recipe
from latent_core.domain.vector import Matrix
from latent_core.embedding.port import EmbeddingModel
from latent_core.generations.containers import etag, taken_id
from latent_core.generations.publish import check_version, switched
from latent_core.generations.stage import Checkpoint, stage_points
from latent_core.keywords import postings
from latent_core.keywords.analyser import analyse, term_vector
from latent_core.keywords.packing import Columns, Counted, joined
from latent_core.keywords.signature import signatures
from latent_core.keywords.term_vectors import counted_terms
from latent_core.registry import (
    audit,
    chunks as chunk_rows,
    containers,
    documents,
    importing as rows,
    likenesses,
    spaces,
)
from latent_core.registry.connection import Connection
from latent_core.registry.containers import Container
from latent_core.registry.copying import fields
from latent_core.vectors.port import Points, VectorIndex

SETTLED_CHUNKS: Final = 4000
"""A step of so many writes postings that need no compaction."""

POINTS_A_WRITE: Final = 2048
"""Each write is brought to the disk: thousands at once cost as little as some."""


class Policy(StrEnum):
    """What becomes of a document that the container has already."""

    SKIP = "skip"
    REPLACE = "replace"
    NEWEST = "newest"
    """The one whose source was modified later; where that is not known, that was fetched later."""


class ImportPayload(BaseModel):
    """What an import job carries, and how far it is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: str
    filename: str
    target: str
    """The container that takes it in."""
    merge: bool = False
    policy: Policy = Policy.SKIP
    next_batch: int = 0
    chunks_read: int = 0
    """Of all batches before it: the number of its first chunk."""
    documents: int = 0
    chunks: int = 0
    skipped: int = 0
    embedded: int = 0
    lacking_blobs: int = 0
    """References to bytes that are neither in the archive nor here."""


class BlobsGone(Conflict):
    """Bytes that the archive brought are not stored any more: the step is repeated, and brings them again."""

    transient = True


Embed = Callable[[Sequence[ChunkRecord], Sequence[str | None]], Awaitable[tuple[list[int], Matrix]]]
"""Windows of each chunk, and their vectors: for chunks whose own are not there or of another space."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where documents go, and what is known of where they came from."""

    container: Container
    header: Header
    payload: ImportPayload
    same_space: bool

    @property
    def founded(self) -> bool:
        """Whether this import made the container."""
        return not self.payload.merge

    @property
    def recipe(self) -> str | None:
        """Of documents that were made as this container makes them; None when another release made them."""
        if self.header.handler != versions.HANDLER:
            return None
        return recipe(self.container.manifest)


@dataclass(slots=True)
class Taken:
    """A document that is taken in, with its chunks in their order."""

    record: DocumentRecord
    doc_id: UUID
    request: int
    generation: int
    pages: list[PageRecord] = field(default_factory=list)
    chunks: list[ChunkRecord] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Numbered:
    """A chunk with its document, where it belongs."""

    document: Taken
    chunk: ChunkRecord
    ord: int
    id: ChunkId


@dataclass(slots=True)
class Step:
    """Documents of one transaction, and the chunks of them all, in the order of the ords."""

    taken: list[Taken]
    skipped: int
    chunks: list[Numbered]
    vectors: Matrix
    windows: list[int]
    embedded: int


def numbered(target: Target, taken: Sequence[Taken], first_ord: int) -> Iterator[Numbered]:
    """Every chunk of ``taken`` with its ord and id."""
    ord_ = first_ord
    for one in taken:
        seen: Counter[str] = Counter()
        for chunk in one.chunks:
            occurrence = seen[chunk.content_hash]
            seen[chunk.content_hash] += 1
            number = chunk.n if target.founded else ord_
            yield Numbered(one, chunk, number, chunk_id(one.doc_id, chunk.content_hash, occurrence))
            ord_ += 1


async def found(
    conn: Connection, manifest: Manifest, model: EmbeddingModel, *, job_id: int, principal: str
) -> None:
    """Insert the container that this job alone will make visible; ``Conflict`` when the id is taken."""
    container_id = manifest.id
    if not await containers.insert(conn, manifest, etag(manifest)):
        raise await taken_id(conn, container_id)
    await containers.insert_space(conn, container_id, model.embedder, model.version, model.dims)
    await containers.tombstone(conn, container_id)
    await rows.found(conn, container_id, job_id)
    await audit.note(
        conn,
        principal=principal,
        action="container.create",
        container_id=container_id,
        object_=f"import by job {job_id}",
        request_id=None,
    )


async def hidden(conn: Connection, manifest: Manifest) -> Container:
    """The container that is being built, which nobody else can see."""
    (space,) = await containers.spaces(conn, manifest.id)
    now = datetime.now(UTC)
    return Container(
        id=manifest.id,
        manifest=manifest,
        etag=etag(manifest),
        state=ContainerState.ACTIVE,
        space=space,
        languages=(),
        created_at=now,
        updated_at=now,
    )


async def begin(
    conn: Connection, target: Target, batches: Sequence[Batch]
) -> tuple[list[Taken], int, int]:
    """Choose documents and give them generations and ords; answers them, the skipped and the first ord.

    Commit before the first outside write.
    """
    container_id = target.container.id
    if not target.founded:
        await spaces.lock(conn, container_id)  # nothing is accepted between the look and the choice
        await _open(conn, container_id)
    found = {
        document_id(container_id, record.uri): record
        for batch in batches
        for record in batch.documents
    }
    there = await rows.existing(conn, list(found))
    wanted = {
        doc_id: record
        for doc_id, record in found.items()
        if doc_id not in there or _wins(target.payload.policy, record, there[doc_id])
    }
    # Nobody sees a container that is being founded, and what is written there is the same at each attempt: one that
    # follows another writes over its points, whose ords are those of the archive, instead of beside them.
    given = await rows.accept(
        conn,
        container_id,
        [_accepted(container_id, i, r) for i, r in wanted.items()],
        fresh=not target.founded,
    )
    taken = {r.doc_id: Taken(r, i, *given[i]) for i, r in wanted.items()}
    for batch in batches:
        _fill(taken, batch)
    first: int | None = 0
    if not target.founded:
        first = await containers.take_ords(
            conn, container_id, sum(len(t.chunks) for t in taken.values())
        )
    if first is None:
        raise _gone(container_id)
    return list(taken.values()), sum(len(b.documents) for b in batches) - len(wanted), first


def _fill(taken: Mapping[UUID, Taken], batch: Batch) -> None:
    """Chunks and pages of a batch to their documents. ``Invalid`` for a document that lacks some."""
    for page in batch.pages:
        if page.doc_id in taken:
            taken[page.doc_id].pages.append(page)
    for part in batch.parts:
        for chunk in part.chunks:
            if chunk.doc_id in taken:
                taken[chunk.doc_id].chunks.append(chunk)
    for record in batch.documents:
        one = taken.get(record.doc_id)
        if one is not None and [c.ordinal for c in one.chunks] != list(range(record.live_chunks)):
            raise Invalid(
                f"document '{record.uri[:200]}' of the archive lacks chunks, or has them in another order"
            )


def _check_members(batch: Batch, own: AbstractSet[UUID]) -> None:
    if any(page.doc_id not in own for page in batch.pages):
        raise Invalid(f"a page in batch {batch.number} of the archive belongs to no document of it")
    if any(chunk.doc_id not in own for part in batch.parts for chunk in part.chunks):
        raise Invalid(
            f"a chunk in batch {batch.number} of the archive belongs to no document of it"
        )


def check_numbers(batches: Sequence[Batch], first: int) -> int:
    """Chunks are numbered without gaps from ``first``; answers the next number."""
    for batch in batches:
        for part in batch.parts:
            for chunk in part.chunks:
                if chunk.n != first or (chunk.original is not None and chunk.original >= first):
                    raise Invalid(f"chunk {chunk.n} of the archive stands where {first} must")
                first += 1
    return first


async def vectors_of(
    target: Target, taken: Sequence[Taken], batches: Sequence[Batch], embed: Embed
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


def _pictures(taken: Sequence[Taken]) -> dict[int, str]:
    """Number of each chunk that is the picture of a page to that picture's hash, where the archive has its bytes."""
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


async def stage(index: VectorIndex, target: Target, step: Step, checkpoint: Checkpoint) -> None:
    """Store the vectors of a step where nothing sees them yet."""
    points = await asyncio.to_thread(_points, step)
    space = target.container.space
    await stage_points(index, space, points, checkpoint, at_once=POINTS_A_WRITE)


def _points(step: Step) -> Points:
    ids: list[PointId] = []
    docs: list[UUID] = []
    generations: list[int] = []
    ords: list[int] = []
    for one, windows in zip(step.chunks, step.windows, strict=True):
        for window in range(windows):
            ids.append(point_id(one.id, one.document.generation, window))
            docs.append(one.document.doc_id)
            generations.append(one.document.generation)
            ords.append(one.ord)
    return Points(ids, step.vectors, docs, generations, ords)


@dataclass(frozen=True, slots=True)
class Drafts:
    """What can be made of chunks before their documents have generations, while the step before is committed."""

    first: int
    """The number of the first chunk; the others follow."""
    tails: list[bytes]
    """Of their rows: what comes after the fields that a generation tells."""
    signatures: list[str]
    lengths: list[int]
    counted: Counted


def draft_rows(target: Target, batch: Batch) -> list[Drafts]:
    """Drafts of a batch, part by part. ``Invalid`` for chunks and pages that belong to none of its documents."""
    languages = {record.doc_id: record.language for record in batch.documents}
    _check_members(batch, languages.keys())
    return [_draft(target, part.chunks, languages) for part in batch.parts if part.chunks]


def _draft(target: Target, chunks: Sequence[ChunkRecord], languages: Mapping[UUID, str]) -> Drafts:
    tsvs, lengths = [chunk.tsv for chunk in chunks], [chunk.length for chunk in chunks]
    if target.header.analyser != versions.ANALYSER:
        analysed = [analyse(chunk.text, languages[chunk.doc_id]) for chunk in chunks]
        tsvs, lengths = [term_vector(one) for one in analysed], [one.length for one in analysed]
    rows = zip(chunks, tsvs, lengths, strict=True)
    return Drafts(
        chunks[0].n,
        [_tail(target, chunk, tsv, length) for chunk, tsv, length in rows],
        signatures([chunk.text for chunk in chunks]),
        lengths,
        counted_terms(tsvs),
    )


@dataclass(frozen=True, slots=True)
class Written:
    """Rows of a step, ready to be copied; made outside the transaction, since that takes a while."""

    docs: list[UUID]
    """The document of each of the rows that follow."""
    chunks: list[bytes]
    signatures: list[bytes]
    columns: Columns
    packed: postings.Prepared
    """Of all ``columns``: most often all documents of a step are taken."""
    likenesses: list[bytes]
    unjudged: list[tuple[UUID, int]]


def write_rows(target: Target, step: Step, drafts: Sequence[Drafts]) -> Written:
    """Chunks as rows, with their terms; the drafts are of all chunks that the step has read."""
    first = drafts[0].first if drafts else 0
    tails = [tail for one in drafts for tail in one.tails]
    bits = [one for each in drafts for one in each.signatures]
    places = [one.chunk.n - first for one in step.chunks]
    columns = _columns(step, drafts, places)
    docs = [one.document.doc_id for one in step.chunks]
    written = Written(docs, [], [], columns, postings.prepare(target.container.id, columns), [], [])
    for one, place, windows in zip(step.chunks, places, step.windows, strict=True):
        addressed = f"{target.container.id}\t{one.ord}"
        head = f"{one.document.doc_id}\t{one.document.generation}\t{one.id}\t{addressed}\t{windows}"
        written.chunks.append(head.encode() + tails[place])
        written.signatures.append(f"{addressed}\t{bits[place]}\n".encode())
        chunk = one.chunk
        if target.founded and target.same_space and chunk.signature is not None:
            original = "\\N" if chunk.original is None else chunk.original
            row = f"{addressed}\t\\\\x{chunk.signature}\t{original}\n"
            written.likenesses.append(row.encode())
        else:
            written.unjudged.append((one.document.doc_id, one.ord))
    return written


def _columns(step: Step, drafts: Sequence[Drafts], places: Sequence[int]) -> Columns:
    """The terms of a step's chunks."""
    counted = joined([one.counted for one in drafts])
    lengths = [length for one in drafts for length in one.lengths]
    if places != list(range(len(lengths))):  # not all that was read is taken
        counted = counted.only(np.array(places, np.int64))
        lengths = [lengths[place] for place in places]
    languages = [one.document.record.language for one in step.chunks]
    return Columns([one.ord for one in step.chunks], lengths, languages, counted)


def _tail(target: Target, chunk: ChunkRecord, tsv: str, length: int) -> bytes:
    provenance = chunk.provenance
    if not target.same_space:
        space = target.container.space
        provenance = {**provenance, "embedder": space.embedder, "embedder_version": space.version}
    told = fields(
        (
            chunk.ordinal,
            chunk.modality.value,
            chunk.source_type.value,
            chunk.block_type.value,
            chunk.text,
            chunk.embed_text,
            chunk.page,
            chunk.page_end,
            chunk.line_start,
            chunk.line_end,
            chunk.heading_path,
            chunk.key_path,
            chunk.parent_section,
            chunk.table_id,
            chunk.row_group,
            chunk.offset_start,
            chunk.offset_end,
            chunk.content_hash,
            chunk.token_count,
            tsv,
            length,
            orjson.dumps(provenance).decode(),
            orjson.dumps(chunk.meta).decode(),
            chunk.created_at,
        )
    )
    return f"\t{told}\n".encode()


@dataclass(frozen=True, slots=True)
class Committed:
    """What a step did."""

    flipped: frozenset[UUID]
    refused: list[tuple[UUID, int]]
    """Generations that something newer overtook: their points are garbage."""
    replaced: list[tuple[UUID, int]]
    """Documents that had older generations, and below which these are garbage."""
    lacking_blobs: int
    unjudged: bool


async def commit(
    conn: Connection,
    target: Target,
    step: Step,
    written: Written,
    brought: AbstractSet[bytes] = frozenset(),
) -> Committed:
    """Make a step's documents live, in the caller's fenced transaction; locks in the house's order.

    ``brought`` are the hashes of blobs that this attempt stored: ``BlobsGone`` when one is needed and absent.
    """
    container_id = target.container.id
    if not target.founded:
        await _open(conn, container_id)
    live_in = await spaces.live_collection(conn, container_id)
    if live_in != target.container.space.stored_in and not target.founded:
        raise switched(container_id)
    await check_version(conn, container_id, [target.container.space.made_by])
    ids = [one.doc_id for one in step.taken]
    before = await documents.lock(conn, ids)
    dead = await chunk_rows.live_lengths(
        conn, [i for i, live in before.items() if live is not None]
    )
    flipped = await rows.flip(conn, [_live(target, one) for one in step.taken])
    live = [one for one in step.taken if one.doc_id in flipped]
    await containers.add_languages(
        conn, container_id, (one.record.language for one in live if one.chunks)
    )
    await rows.copy_chunks(
        conn,
        [row for doc, row in zip(written.docs, written.chunks, strict=True) if doc in flipped],
        [row for doc, row in zip(written.docs, written.signatures, strict=True) if doc in flipped],
    )
    lacking = await _refer(conn, live, brought)
    ready = written.packed
    kept = [n for n, doc in enumerate(written.docs) if doc in flipped]
    if len(kept) != len(written.docs):  # something newer overtook a document
        columns = written.columns.only(kept)
        ready = await asyncio.to_thread(postings.prepare, container_id, columns)
    settled = len(kept) >= SETTLED_CHUNKS
    await postings.write_prepared(conn, container_id, ready, settled=settled)
    buried = [(ord_, length) for doc, ord_, length in dead if doc in flipped]
    await postings.bury(conn, container_id, buried)
    await rows.copy_likenesses(conn, written.likenesses)
    unjudged = [ord_ for doc, ord_ in written.unjudged if doc in flipped]
    unjudged += [ord_ for ord_, _ in buried]
    await likenesses.leave(conn, container_id, unjudged)
    if target.founded and step.taken:
        last = max((c.n for one in step.taken for c in one.chunks), default=-1)
        await rows.numbered(conn, container_id, last + 1)
    return Committed(
        flipped=frozenset(flipped),
        refused=[(o.doc_id, o.generation) for o in step.taken if o.doc_id not in flipped],
        replaced=[(o.doc_id, o.generation) for o in live if o.generation > 1],
        lacking_blobs=lacking,
        unjudged=bool(unjudged),
    )


async def _refer(conn: Connection, live: Sequence[Taken], brought: AbstractSet[bytes]) -> int:
    """Pages and references to blobs; how many of these are not stored here, and left out."""
    hashes = {ref.sha256 for one in live for ref in one.record.refs}
    present = await rows.present(conn, hashes)
    gone = sorted(one for one in hashes - present if bytes.fromhex(one) in brought)
    if gone:
        raise BlobsGone(
            f"{len(gone)} originals or page images were removed before they were referred to ({gone[0]});"
            " they are taken from the archive again"
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
            )
            for one in live
            for p in one.pages
        ),
    )
    kept = [(one, ref) for one in live for ref in one.record.refs if ref.sha256 in present]
    await rows.copy_refs(
        conn,
        ((o.doc_id, o.generation, r.role, r.part, r.sha256, r.mime, r.filename) for o, r in kept),
    )
    return sum(len(one.record.refs) for one in live) - len(kept)


async def _open(conn: Connection, container_id: str) -> None:
    """Hold a container that takes a merge; ``NotFound``, ``Conflict``."""
    state = await containers.hold(conn, container_id)
    if state is None:
        raise _gone(container_id)
    if state is not ContainerState.ACTIVE:
        raise Conflict(
            f"container '{container_id}' is {state.value} and takes nothing in; make it active, then requeue the job"
        )


def _gone(container_id: str) -> NotFound:
    return NotFound(f"container '{container_id}' was deleted while an archive was imported into it")


def _accepted(container_id: str, doc_id: UUID, record: DocumentRecord) -> dict[str, Any]:
    parent = record.parent_uri
    return {
        "id": doc_id,
        "uri": record.uri,
        "mime": record.mime,
        "external_id": record.external_id,
        "parent_id": document_id(container_id, parent) if parent is not None else None,
        "created_at": record.created_at,
    }


def _live(target: Target, one: Taken) -> dict[str, Any]:
    record, made_here = one.record, target.recipe
    current = record.recipe is not None and made_here is not None
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
    }


_NEVER: Final = datetime(1, 1, 1, tzinfo=UTC)


def _wins(policy: Policy, record: DocumentRecord, there: Mapping[str, Any]) -> bool:
    """Whether the archive's document takes the place of the one that is live, or accepted: that one is newer."""
    match policy:
        case Policy.SKIP:
            return False
        case Policy.REPLACE:
            return True
        case Policy.NEWEST if there["awaited"]:
            return False
        case Policy.NEWEST:
            mine, theirs = record.source_modified_at, there["source_modified_at"]
            if mine is None or theirs is None:
                mine, theirs = record.fetched_at, there["fetched_at"]
            newer: bool = mine > (theirs or _NEVER)
            return newer
