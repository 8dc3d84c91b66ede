"""The documents of one step of an import: which are taken in, and under which generations and chunk_nos."""

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
from latent_core.domain.ids import ChunkId, chunk_id, document_id
from latent_core.domain.recipe import recipe
from latent_core.domain.vector import Matrix
from latent_core.transfer.batches import ArchiveBatch
from latent_core.transfer.import_container import gone, hold_open
from latent_core.transfer.records import ChunkRecord, DocumentRecord, Header, PageRecord
from latent_core.transfer.requests import ImportPayload, ImportPolicy


@dataclass(frozen=True, slots=True)
class ImportTarget:
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
class SelectedDocumentRows:
    """A document that is taken in, with its chunks in their order."""

    record: DocumentRecord
    doc_id: UUID
    request: int
    generation: int
    pages: list[PageRecord] = field(default_factory=list)
    chunks: list[ChunkRecord] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class NumberedChunk:
    """A chunk with its document, where it belongs."""

    document: SelectedDocumentRows
    chunk: ChunkRecord
    chunk_no: int
    id: ChunkId


@dataclass(slots=True)
class Step:
    """Documents of one transaction, and the chunks of them all, in the order of the chunk_nos."""

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
            occurrence = seen[chunk.content_hash]
            seen[chunk.content_hash] += 1
            number = chunk.n if target.founded else chunk_no
            yield NumberedChunk(
                one, chunk, number, chunk_id(one.doc_id, chunk.content_hash, occurrence)
            )
            chunk_no += 1


_NEVER: Final = datetime(1, 1, 1, tzinfo=UTC)


async def begin(
    conn: Connection,
    target: ImportTarget,
    batches: Sequence[ArchiveBatch],
    under_way: AbstractSet[UUID],
) -> tuple[list[SelectedDocumentRows], int, int]:
    """Choose documents and give them generations and chunk_nos; answers them, the skipped and the first chunk_no.

    Commit before the first outside write. ``under_way`` are documents of a step that is not committed yet.
    """
    container_id = target.container.id
    if not target.founded:
        await spaces.lock(conn, container_id)  # nothing is accepted between the look and the choice
        await hold_open(conn, container_id)
    found = {
        document_id(container_id, record.uri): record
        for batch in batches
        for record in batch.documents
    }
    if again := [record.uri for doc_id, record in found.items() if doc_id in under_way]:
        raise Invalid(f"document '{again[0][:200]}' stands in the archive more than once")
    there = await rows.existing(conn, list(found))
    chosen = {
        doc_id: record
        for doc_id, record in found.items()
        if doc_id not in there or _wins(target.payload.policy, record, there[doc_id])
    }
    # Nobody sees a container that is being founded, and what is written there is the same at each attempt: one that
    # follows another writes over its points, whose chunk_nos are those of the archive, instead of beside them.
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


def check_numbers(batches: Sequence[ArchiveBatch], first: int) -> int:
    """Chunks are numbered without gaps from ``first``; answers the next number."""
    for batch in batches:
        for part in batch.parts:
            for chunk in part.chunks:
                if chunk.n != first or (chunk.original is not None and chunk.original >= first):
                    raise Invalid(f"chunk {chunk.n} of the archive stands where {first} must")
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
    """Whether the archive's document takes the place of the one that is live, or accepted: that one is newer."""
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
