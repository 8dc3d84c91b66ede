"""Select the documents of one import step and assign their generations and chunk_nos."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from latent_core.db import containers
from latent_core.db.connection import Connection
from latent_core.db.containers import Container
from latent_core.db.spaces import spaces
from latent_core.db.transfer import import_rows as rows
from latent_core.domain import versions
from latent_core.domain.errors import Invalid
from latent_core.domain.generated import FIRST_POSITION, MAX_POSITION, generated_chunk_id
from latent_core.domain.ids import ChunkId, chunk_id, document_id
from latent_core.domain.vector_types import Matrix
from latent_core.domain.versions import recipe
from latent_core.transfer.batches import ArchiveBatch
from latent_core.transfer.import_container import gone, hold_open
from latent_core.transfer.records import ChunkRecord, DocumentRecord, Header, PageRecord
from latent_core.transfer.requests import ImportPayload, ImportPolicy


@dataclass(frozen=True, slots=True)
class ImportTarget:
    """The target container, and the header of the archive."""

    container: Container
    header: Header
    payload: ImportPayload
    same_space: bool

    @property
    def founded(self) -> bool:
        """Whether this import created the container."""
        return not self.payload.merge

    @property
    def recipe(self) -> str | None:
        """The container's current recipe; None if another release made the archive's documents."""
        if self.header.handler != versions.HANDLER:
            return None
        return recipe(self.container.manifest)


@dataclass(slots=True)
class SelectedDocumentRows:
    """A selected document with its chunks in order."""

    record: DocumentRecord
    doc_id: UUID
    request: int
    generation: int
    pages: list[PageRecord] = field(default_factory=list)
    chunks: list[ChunkRecord] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class NumberedChunk:
    """A chunk with its document, chunk_no and id."""

    document: SelectedDocumentRows
    chunk: ChunkRecord
    chunk_no: int
    id: ChunkId


@dataclass(slots=True)
class Step:
    """The documents of one transaction and all their chunks, in order of chunk_no."""

    taken: list[SelectedDocumentRows]
    skipped: int
    chunks: list[NumberedChunk]
    vectors: Matrix
    windows: list[int]
    embedded: int


def numbered(
    target: ImportTarget, taken: Sequence[SelectedDocumentRows], first_chunk_no: int
) -> Iterator[NumberedChunk]:
    """Every chunk of ``taken`` with its chunk_no and id."""
    chunk_no = first_chunk_no
    for one in taken:
        seen: Counter[str] = Counter()
        for chunk in one.chunks:
            number = chunk.n if target.founded else chunk_no
            if chunk.generated is None or chunk.ordinal < FIRST_POSITION:
                id_ = chunk_id(one.doc_id, chunk.content_hash, seen[chunk.content_hash])
                seen[chunk.content_hash] += 1
            else:
                id_ = generated_chunk_id(one.doc_id, chunk.generated, chunk.content_hash, number)
            yield NumberedChunk(one, chunk, number, id_)
            chunk_no += 1


_NEVER: Final = datetime(1, 1, 1, tzinfo=UTC)


async def begin(
    conn: Connection,
    target: ImportTarget,
    batches: Sequence[ArchiveBatch],
    under_way: AbstractSet[UUID],
) -> tuple[list[SelectedDocumentRows], int, int]:
    """Select documents and assign generations and chunk_nos; returns them, the number skipped and the first chunk_no.

    Commit before the first write outside Postgres. ``under_way``: documents of a step that is not committed yet.
    """
    container_id = target.container.id
    if not target.founded:
        await spaces.lock(
            conn, container_id
        )  # no document is accepted between the read and the selection
        await hold_open(conn, container_id)
    found = {
        document_id(container_id, record.uri): record
        for batch in batches
        for record in batch.documents
    }
    if again := [record.uri for doc_id, record in found.items() if doc_id in under_way]:
        raise Invalid(f"The archive contains document '{again[0][:200]}' more than once.")
    there = await rows.existing(conn, list(found))
    chosen = {
        doc_id: record
        for doc_id, record in found.items()
        if doc_id not in there or _wins(target.payload.policy, record, there[doc_id])
    }
    # A new container is invisible and every attempt writes the same points into it, with the chunk_nos of the archive.
    # So a later attempt keeps the generations and overwrites the points of an earlier one.
    given = await rows.accept(
        conn,
        container_id,
        [_accepted(container_id, i, r) for i, r in chosen.items()],
        fresh=not target.founded,
    )
    taken = {r.doc_id: SelectedDocumentRows(r, i, *given[i]) for i, r in chosen.items()}
    for batch in batches:
        _fill(taken, batch)
    first: int | None = 0
    if not target.founded:
        first = await containers.take_chunk_nos(
            conn, container_id, sum(len(t.chunks) for t in taken.values())
        )
    if first is None:
        raise gone(container_id)
    return list(taken.values()), sum(len(b.documents) for b in batches) - len(chosen), first


def _fill(taken: Mapping[UUID, SelectedDocumentRows], batch: ArchiveBatch) -> None:
    """Assign chunks and pages of a batch to their documents. ``Invalid`` if a document is incomplete."""
    for page in batch.pages:
        if page.doc_id in taken:
            taken[page.doc_id].pages.append(page)
    for part in batch.parts:
        for chunk in part.chunks:
            if chunk.doc_id in taken:
                taken[chunk.doc_id].chunks.append(chunk)
    for record in batch.documents:
        one = taken.get(record.doc_id)
        if one is not None and not _is_whole(one, record.live_chunks):
            raise Invalid(
                f"Document '{record.uri[:200]}' of the archive has missing chunks or chunks in the wrong order."
            )


def _is_whole(one: SelectedDocumentRows, live_chunks: int) -> bool:
    """Whether all chunks are there, each in a place of its own: those of the source in order, generated ones behind."""
    own = [c.ordinal for c in one.chunks if c.ordinal < FIRST_POSITION]
    behind = {
        c.ordinal
        for c in one.chunks
        if c.generated is not None and FIRST_POSITION <= c.ordinal < MAX_POSITION
    }
    return own == list(range(len(own))) and len(own) + len(behind) == len(one.chunks) == live_chunks


def check_numbers(batches: Sequence[ArchiveBatch], first: int) -> int:
    """``Invalid`` unless chunks are numbered from ``first`` without gaps; returns the next number."""
    for batch in batches:
        for part in batch.parts:
            for chunk in part.chunks:
                if chunk.n != first or (chunk.original is not None and chunk.original >= first):
                    raise Invalid(f"The archive has chunk {chunk.n} in the place of chunk {first}.")
                first += 1
    return first


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


def _wins(policy: ImportPolicy, record: DocumentRecord, there: Mapping[str, Any]) -> bool:
    """Whether the archive's document replaces the existing one. A pending request counts as newer."""
    match policy:
        case ImportPolicy.SKIP:
            return False
        case ImportPolicy.REPLACE:
            return True
        case ImportPolicy.NEWEST if there["awaited"]:
            return False
        case ImportPolicy.NEWEST:
            mine, theirs = record.source_modified_at, there["source_modified_at"]
            if mine is None or theirs is None:
                mine, theirs = record.fetched_at, there["fetched_at"]
            newer: bool = mine > (theirs or _NEVER)
            return newer
