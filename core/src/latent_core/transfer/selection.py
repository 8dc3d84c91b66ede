"""Select the documents of one import step and assign their generations and chunk_nos."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Protocol
from uuid import UUID

from latent_core.db import audit, containers
from latent_core.db.connection import Connection
from latent_core.db.containers import Container
from latent_core.db.spaces import spaces
from latent_core.db.transfer import import_rows as rows
from latent_core.domain import versions
from latent_core.domain.chunk import Matrix
from latent_core.domain.errors import Conflict, Invalid, NotFound
from latent_core.domain.ids import ChunkId, chunk_id, document_id
from latent_core.domain.manifest.model import Manifest
from latent_core.domain.versions import recipe
from latent_core.ingest.containers import etag, taken_id
from latent_core.models.embedding.port import EmbeddingModel
from latent_core.transfer.batches import ArchiveBatch
from latent_core.transfer.records import ChunkRecord, DocumentRecord, Header, PageRecord
from latent_core.transfer.requests import ImportPayload, ImportPolicy
from latent_core.wire.containers import ContainerState


class ModelLookup(Protocol):
    """Finds the model of a manifest's embedder."""

    def model_of(self, manifest: Manifest) -> EmbeddingModel: ...


def with_model(
    models: ModelLookup, manifest: Manifest
) -> tuple[Manifest, EmbeddingModel, list[str]]:
    """The manifest with an available model, that model, and the pins that were dropped for it.

    A refresh pins the version of the installed model. A later release with another version must still restore the
    archive, so it drops the pins and embeds all texts again. An unknown model name is ``Invalid``.
    """
    try:
        return manifest, models.model_of(manifest), []
    except Invalid:
        unpinned = manifest.model_copy(update={"embedder_version": None, "dims": None})
        model = models.model_of(unpinned)
        given_pins = {"embedder_version": manifest.embedder_version, "dims": manifest.dims}
        pins = [f"{key} {pinned}" for key, pinned in given_pins.items() if pinned is not None]
        there = f"{model.embedder} is {model.version} with {model.dims} dimensions; all texts were embedded again"
        return unpinned, model, [f"{' and '.join(pins)} ({there})"]


async def found(
    conn: Connection, manifest: Manifest, model: EmbeddingModel, *, job_id: int, principal: str
) -> None:
    """Insert the container; only this job makes it visible. ``Conflict`` if the id is taken."""
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
    """The new container, which is not visible yet."""
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


async def hold_open(conn: Connection, container_id: str) -> None:
    """Hold the target of a merge; ``NotFound`` if it was deleted, ``Conflict`` unless it is active."""
    state = await containers.hold(conn, container_id)
    if state is None:
        raise gone(container_id)
    if state is not ContainerState.ACTIVE:
        raise Conflict(
            f"Container '{container_id}' is {state.value} and accepts no documents. Make it active, then requeue the job."
        )


def gone(container_id: str) -> NotFound:
    return NotFound(
        f"Container '{container_id}' was deleted while an archive was imported into it."
    )


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
        if one is not None and [c.ordinal for c in one.chunks] != list(range(record.live_chunks)):
            raise Invalid(
                f"Document '{record.uri[:200]}' of the archive has missing chunks or chunks in the wrong order."
            )


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
