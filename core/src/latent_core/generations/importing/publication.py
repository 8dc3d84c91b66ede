"""The transaction that makes a step's documents live."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence, Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from latent_core.domain.errors import Conflict
from latent_core.generations.importing.container import hold_open
from latent_core.generations.importing.step import Step, Taken, Target
from latent_core.generations.importing.tables import Written
from latent_core.ingest.publish import live_collection, switched
from latent_core.keywords import postings
from latent_core.registry import (
    chunks as chunk_rows,
    containers,
    documents,
    importing as rows,
    likenesses,
)
from latent_core.registry.connection import Connection

SETTLED_CHUNKS: Final = 4000
"""A step of so many writes postings that need no compaction."""


class BlobsGone(Conflict):
    """Bytes that the archive brought are not stored any more: the step is repeated, and brings them again."""

    transient = True


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
        await hold_open(conn, container_id)
    live_in = await live_collection(conn, container_id, [target.container.space.made_by])
    if live_in != target.container.space.stored_in and not target.founded:
        raise switched(container_id)
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
