"""Deletes many documents of one request, some per transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from latent_core.db import audit
from latent_core.ingest.delete import delete_documents, delete_records
from latent_gateway.auth import access
from latent_gateway.auth.access import Writable
from latent_gateway.context import Caller, Shared

MAX_DELETIONS: Final = 5000
"""Per request; each deletion removes rows, chunk_nos and postings."""
DELETIONS_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class VanishedDocument:
    """A document whose file is no longer in the folder."""

    doc_id: UUID
    uri: str


def deletions(gone: Sequence[VanishedDocument]) -> Iterator[Sequence[VanishedDocument]]:
    """The deletions of one request, one transaction each. Further ones wait for the next request."""
    for start in range(0, min(len(gone), MAX_DELETIONS), DELETIONS_AT_ONCE):
        yield gone[start : min(start + DELETIONS_AT_ONCE, MAX_DELETIONS)]


async def delete_batch(
    shared: Shared,
    caller: Caller,
    container: Writable,
    gone: Sequence[VanishedDocument],
    request_id: str,
) -> list[int]:
    """Delete in one transaction; returns the job."""
    async with shared.stack.db.transaction() as conn:
        await access.held(conn, container)
        deleted = await delete_documents(
            conn,
            container.id,
            [document.doc_id for document in gone],
            principal=caller.name,
            lease_seconds=shared.settings.lease_seconds,
        )
        await audit.note_each(
            conn,
            principal=caller.name,
            token_id=caller.token_id,
            action="document.delete",
            container_id=container.id,
            objects=[document.uri for document in gone],
            request_id=request_id,
        )
    if deleted is None:
        return []
    await delete_records(
        shared.stack.db,
        container.id,
        deleted.corpora,
        principal=caller.name,
        lease_seconds=shared.settings.lease_seconds,
        of=deleted.job_id,
    )
    shared.stack.wake()
    return [deleted.job_id]
