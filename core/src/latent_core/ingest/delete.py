"""Delete: a tombstone hides a document in one transaction; purges then remove its data from the stores.

A second purge follows after two leases, because a frozen worker may write points of an old generation until its lease
expires (DESIGN §7.3). Blobs are shared: code that removes a reference enqueues the one job that collects unreferenced
blobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from latent_core.bm25 import postings
from latent_core.db import containers
from latent_core.db.connection import Connection, Database
from latent_core.db.documents import chunks, documents, duplicates, notes, records as record_rows
from latent_core.db.documents.documents import DeletionFloor
from latent_core.domain.ids import JobId
from latent_core.domain.job import NO_CONTAINER, PRIORITY_LATER, PRIORITY_NORMAL, JobKind, NewJob
from latent_core.ingest.stage import Checkpoint, enqueue_dedup_pending
from latent_core.queue.enqueue import enqueue

LEASES_TO_WAIT: Final = 2
"""Delay of the second purge, and the minimum age of an unreferenced blob before its removal."""
LEASES_BETWEEN_LOOKS: Final = 10
"""Time between two rounds of maintenance, each of which has unreferenced blobs removed."""
LEASES_TO_COLLECT: Final = 2 * LEASES_BETWEEN_LOOKS
"""Within this time maintenance removes what became unreferenced: two rounds at the outside, since a blob may be too
young for the first. What is still there then is a difference."""
RECORDS_PER_DELETION: Final = 2000


class ChunkPoints(NamedTuple):
    """The points of a generated chunk."""

    doc_id: UUID
    generation: int
    chunk: UUID
    windows: int
    """At most this many, in any collection."""


class PurgePayload(BaseModel):
    """What a purge removes. It touches only the spaces that existed when it was enqueued: a container that is deleted
    and created again has other spaces, and its generations start again at 1."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    spaces: list[int]
    below: list[tuple[UUID, int]] = []
    """Documents, each with the generation below which all are removed."""
    only: list[tuple[UUID, int]] = []
    """Single generations that never became live."""
    chunks: list[ChunkPoints] = []
    """Generated chunks: their points are deleted unless they have a row."""
    job: JobId | None = None
    """The job that writes ``chunks``: the purge waits for its end, and two leases more."""
    records: list[tuple[UUID, int]] = []
    """Corpora, each with a request number: records last seen by an earlier request are tombstoned first."""
    forget: bool = False
    """An explicit deletion: postings are removed now, not by a later compaction, and the job reports all that it
    removed, including records."""
    of: JobId | None = None
    """The purge of the corpus that holds these records: it ends after this one and reports both."""
    points: int | None = None
    """Number of points before the first attempt; an attempt after a crash can no longer count them."""
    looks: int = 0
    """How often it found open purges of its records."""


@dataclass(frozen=True, slots=True)
class DeletionResult:
    """Result of a deletion in the caller's transaction."""

    job_id: JobId
    """The purge."""
    corpora: tuple[tuple[UUID, int], ...]
    """Deleted corpora, for ``delete_records``; the purge handles records that remain."""
    restorable_until: datetime | None = None
    """None: at once and for good."""


async def enqueue_purges(
    conn: Connection,
    container_id: str,
    *,
    below: Sequence[tuple[UUID, int]] = (),
    only: Sequence[tuple[UUID, int]] = (),
    records: Sequence[tuple[UUID, int]] = (),
    principal: str,
    lease_seconds: float,
    priority: int = PRIORITY_LATER,
    twice: bool = True,
    forget: bool = False,
    of: JobId | None = None,
) -> JobId:
    """Enqueue a purge now and, with ``twice``, another after two leases; returns the first job."""
    payload = PurgePayload(
        spaces=[s.id for s in await containers.spaces(conn, container_id)],
        below=list(below),
        only=list(only),
        records=list(records),
    )
    doc_ids = {doc for doc, _ in (*below, *only, *records)}

    def job(*, last: bool) -> NewJob:
        return NewJob(
            kind=JobKind.PURGE,
            container_id=container_id,
            doc_id=next(iter(doc_ids)) if len(doc_ids) == 1 else None,
            payload=payload.model_copy(
                update={"forget": forget and not last, "of": None if last else of}
            ).model_dump(mode="json"),
            priority=PRIORITY_LATER if last else priority,
            delay_seconds=LEASES_TO_WAIT * lease_seconds if last else 0.0,
            max_attempts=20,
            principal=principal,
        )

    first = await enqueue(conn, job(last=False))
    if twice:
        await enqueue(conn, job(last=True))
    return first


async def enqueue_point_purges(
    conn: Connection,
    container_id: str,
    chunks: Sequence[ChunkPoints],
    *,
    principal: str,
    lease_seconds: float,
    job: JobId | None = None,
) -> JobId:
    """Have the points of generated chunks of one document deleted, now and again after two leases; with ``job``, once,
    when it is over. Returns the first purge."""
    payload = PurgePayload(
        spaces=[s.id for s in await containers.spaces(conn, container_id)],
        chunks=list(chunks),
        job=job,
    ).model_dump(mode="json")
    wait = LEASES_TO_WAIT * lease_seconds
    first, *_ = [
        await enqueue(
            conn,
            NewJob(
                kind=JobKind.PURGE,
                container_id=container_id,
                doc_id=chunks[0].doc_id,
                payload=payload,
                priority=PRIORITY_LATER,
                delay_seconds=delay,
                max_attempts=20,
                principal=principal,
            ),
        )
        for delay in ([wait] if job is not None else [0.0, wait])
    ]
    return first


async def enqueue_collection(conn: Connection, *, principal: str, delay_seconds: float) -> JobId:
    """Enqueue the removal of unreferenced blobs. One queued job serves all requests: it checks every blob and
    runs again later for those that are too young."""
    return await enqueue(
        conn,
        NewJob(
            kind=JobKind.GARBAGE,
            container_id=NO_CONTAINER,
            doc_key="garbage",
            dedupe_key="garbage",
            priority=PRIORITY_LATER,
            delay_seconds=delay_seconds,
            max_attempts=20,
            principal=principal,
        ),
    )


async def delete_documents(
    conn: Connection,
    container_id: str,
    doc_ids: Sequence[UUID],
    *,
    principal: str,
    lease_seconds: float,
    restorable_until: datetime | None = None,
) -> DeletionResult | None:
    """Tombstone documents in the caller's transaction; None if there was nothing to delete. Former texts of notes are
    deleted with them. Until ``restorable_until`` the newest bytes are kept, except of corpora and their records.

    Lock order as in a publication: container → documents → dead chunk_nos → stats → queued jobs. Rows are read by
    separate statements after the locks are held.
    """
    if await containers.hold(conn, container_id) is None:
        return None
    await documents.lock(conn, doc_ids)
    former = await notes.versions(conn, doc_ids)
    doc_ids = [*doc_ids, *former]
    await documents.lock(conn, former)
    dead = await chunks.live_lengths(conn, doc_ids)
    floors = await documents.tombstone(conn, doc_ids, restorable_until)
    if not floors:
        return None
    await _mark_dead(conn, container_id, dead, floors)
    corpora = [(c, floors[c].request) for c in await record_rows.corpora(conn, list(floors))]
    job_id = await enqueue_purges(
        conn,
        container_id,
        below=_generations(floors),
        records=corpora,
        principal=principal,
        lease_seconds=lease_seconds,
        priority=PRIORITY_NORMAL,
        forget=True,
    )
    await enqueue_dedup_pending(conn, container_id, principal=principal)
    kept = any(floor.restorable for floor in floors.values())
    return DeletionResult(job_id, tuple(corpora), restorable_until if kept else None)


async def delete_records(
    db: Database,
    container_id: str,
    corpora: Iterable[tuple[UUID, int]],
    *,
    principal: str,
    lease_seconds: float,
    of: JobId | None = None,
    checkpoint: Checkpoint | None = None,
) -> None:
    """Tombstone the records of each corpus that only requests below a number hold, in bounded transactions.

    ``of``: the purge of the corpus, which also reports these records.
    """
    for corpus, below in corpora:
        found = RECORDS_PER_DELETION
        while found == RECORDS_PER_DELETION:
            if checkpoint is not None:
                await checkpoint()
            async with db.transaction() as conn:
                found = await _delete_some(
                    conn, container_id, corpus, below, principal, lease_seconds, of
                )


async def _delete_some(
    conn: Connection,
    container_id: str,
    corpus: UUID,
    below: int,
    principal: str,
    lease_seconds: float,
    of: JobId | None,
) -> int:
    if await containers.hold(conn, container_id) is None:
        return 0
    ids = await record_rows.vanished(conn, corpus, below, RECORDS_PER_DELETION)
    await documents.lock(conn, ids)
    dead = await chunks.live_lengths(conn, ids)
    floors = await record_rows.tombstone(conn, ids, below)
    await _mark_dead(conn, container_id, dead, floors)
    if floors:
        await enqueue_purges(
            conn,
            container_id,
            below=_generations(floors),
            principal=principal,
            lease_seconds=lease_seconds,
            priority=PRIORITY_NORMAL,
            forget=True,
            of=of,
        )
        await enqueue_dedup_pending(conn, container_id, principal=principal)
    return len(ids)


async def _mark_dead(
    conn: Connection,
    container_id: str,
    lengths: Sequence[tuple[UUID, int, int]],
    deleted: dict[UUID, DeletionFloor],
) -> None:
    dead = [(chunk_no, length) for doc, chunk_no, length in lengths if doc in deleted]
    await postings.mark_dead(conn, container_id, dead)
    await duplicates.leave(conn, container_id, [chunk_no for chunk_no, _ in dead])


def _generations(floors: dict[UUID, DeletionFloor]) -> list[tuple[UUID, int]]:
    return sorted((doc, floor.generation) for doc, floor in floors.items())


async def delete_container(conn: Connection, container_id: str, *, principal: str) -> JobId | None:
    """Tombstone a container in the caller's transaction; returns the job that removes it, None if there is none."""
    if not await containers.tombstone(conn, container_id):
        return None
    return await enqueue_removal(conn, container_id, principal=principal)


async def enqueue_removal(conn: Connection, container_id: str, *, principal: str) -> JobId:
    """Enqueue the job that removes a tombstoned container."""
    return await enqueue(
        conn,
        NewJob(
            kind=JobKind.DELETE_CONTAINER,
            container_id=container_id,
            doc_key=f"container:{container_id}",
            dedupe_key=f"delete-container:{container_id}",
            max_attempts=20,
            principal=principal,
        ),
    )
