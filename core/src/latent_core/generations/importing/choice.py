"""Which documents of an archive are taken in, and under which generations and ords."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set as AbstractSet
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from latent_core.archive.batches import Batch
from latent_core.archive.records import DocumentRecord
from latent_core.domain.errors import Invalid
from latent_core.domain.ids import document_id
from latent_core.generations.importing.container import gone, hold_open
from latent_core.generations.importing.payload import Policy
from latent_core.generations.importing.step import Taken, Target
from latent_core.registry import containers, importing as rows, spaces
from latent_core.registry.connection import Connection

_NEVER: Final = datetime(1, 1, 1, tzinfo=UTC)


async def begin(
    conn: Connection, target: Target, batches: Sequence[Batch], under_way: AbstractSet[UUID]
) -> tuple[list[Taken], int, int]:
    """Choose documents and give them generations and ords; answers them, the skipped and the first ord.

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
        raise gone(container_id)
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


def check_numbers(batches: Sequence[Batch], first: int) -> int:
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
