"""Delete: a tombstone makes it invisible in one transaction; purges remove what the stores still hold.

A second purge follows after two leases, since a worker that was frozen may write points of an old
generation until its lease has run out (DESIGN §7.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from latent_core.domain.ids import JobId
from latent_core.domain.job import PRIORITY_LATER, PRIORITY_NORMAL, JobKind, NewJob
from latent_core.keywords import postings
from latent_core.queue.enqueue import enqueue
from latent_core.registry import chunks, containers, documents
from latent_core.registry.connection import Connection

LEASES_BEFORE_LAST_PURGE: Final = 2
RECORDS_A_DELETION: Final = 2000


class PurgePayload(BaseModel):
    """What a purge removes. Only the spaces of its enqueue are touched: a container that is deleted and
    made again has other spaces, and generations that begin anew."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    spaces: list[int]
    below: list[tuple[UUID, int]] = []
    """Generations of a document below a number."""
    only: list[tuple[UUID, int]] = []
    """Single generations that never became live."""
    corpus: UUID | None = None
    """Records of this deleted corpus are tombstoned first."""
    last: bool = False
    """Two leases have passed: blobs that nothing refers to may go."""


async def enqueue_purges(
    conn: Connection,
    container_id: str,
    *,
    below: Sequence[tuple[UUID, int]] = (),
    only: Sequence[tuple[UUID, int]] = (),
    principal: str,
    lease_seconds: float,
    priority: int = PRIORITY_LATER,
    corpus: UUID | None = None,
    twice: bool = True,
) -> JobId:
    """Enqueue a purge now and, with ``twice``, another one after two leases; answers the first."""
    payload = PurgePayload(
        spaces=[s.id for s in await containers.spaces(conn, container_id)],
        below=list(below),
        only=list(only),
        corpus=corpus,
    )
    doc_ids = {doc for doc, _ in (*below, *only)}

    def job(*, last: bool) -> NewJob:
        return NewJob(
            kind=JobKind.PURGE,
            container_id=container_id,
            doc_id=next(iter(doc_ids)) if len(doc_ids) == 1 else None,
            payload=payload.model_copy(update={"last": last}).model_dump(mode="json"),
            priority=PRIORITY_LATER if last else priority,
            delay_seconds=LEASES_BEFORE_LAST_PURGE * lease_seconds if last else 0.0,
            max_attempts=20,
            principal=principal,
        )

    first = await enqueue(conn, job(last=False))
    if twice:
        await enqueue(conn, job(last=True))
    return first


async def delete_documents(
    conn: Connection,
    container_id: str,
    doc_ids: Sequence[UUID],
    *,
    principal: str,
    lease_seconds: float,
    corpus: UUID | None = None,
) -> JobId | None:
    """Tombstone documents in the caller's transaction; answers the purge job, None when nothing was there.

    ``corpus`` names a document whose records go too: the purge job sees to those that nobody has
    tombstoned by then.

    Lock order as in a publication: container → documents → dead ords → stats → queued jobs. What is
    read is read after the locks are held, by statements of their own.
    """
    if await containers.hold(conn, container_id) is None:
        return None
    await documents.lock(conn, doc_ids)
    dead = await chunks.live_lengths(conn, doc_ids)
    floors = await documents.tombstone(conn, doc_ids)
    if not floors:
        return None
    await postings.bury(
        conn, container_id, [(ord_, length) for doc, ord_, length in dead if doc in floors]
    )
    return await enqueue_purges(
        conn,
        container_id,
        below=sorted(floors.items()),
        principal=principal,
        lease_seconds=lease_seconds,
        priority=PRIORITY_NORMAL,
        corpus=corpus,
    )


async def delete_corpus_records(
    conn: Connection, container_id: str, corpus_id: UUID, *, principal: str, lease_seconds: float
) -> int:
    """Tombstone a bounded number of a corpus's records; call it again until it answers 0."""
    ids = await documents.records(conn, corpus_id, RECORDS_A_DELETION)
    if ids:
        await delete_documents(
            conn, container_id, ids, principal=principal, lease_seconds=lease_seconds
        )
    return len(ids)


async def delete_container(conn: Connection, container_id: str, *, principal: str) -> JobId | None:
    """Tombstone a container in the caller's transaction; answers the job that removes it, None when it is not there."""
    if not await containers.tombstone(conn, container_id):
        return None
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
