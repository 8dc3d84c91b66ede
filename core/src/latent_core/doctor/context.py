"""What every repair works with."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from latent_core.blobs.port import BlobStore
from latent_core.db.connection import Connection, Database
from latent_core.db.documents import documents
from latent_core.domain.errors import NotFound
from latent_core.domain.ids import Sha256
from latent_core.vectors.port import VectorIndex

IN_MOTION: Final = "a job works on it: run doctor again when the job has ended"


class NotRepairable(Exception):
    """A difference that no repair can mend; the message says what a person can do."""


@dataclass(frozen=True, slots=True)
class RepairContext:
    db: Database
    index: VectorIndex
    blobs: BlobStore
    principal: str
    lease_seconds: float
    alone: bool = False
    """As for ``Doctor``."""

    async def sound_size(self, sha256: Sha256) -> int | None:
        """The blob's length when its bytes have the hash they should have."""
        digest, size = hashlib.sha256(), 0
        try:
            async for piece in self.blobs.stream(sha256):
                digest.update(piece)
                size += len(piece)
        except NotFound:
            return None
        return size if digest.hexdigest() == sha256 else None


async def lock_document(conn: Connection, doc_id: UUID) -> None:
    """A document, and first the corpus it is a record of: in the order of a corpus's own job."""
    row = await documents.row(conn, doc_id)
    if row is not None and row["parent_id"] is not None:
        await documents.lock(conn, [row["parent_id"]])
    await documents.lock(conn, [doc_id])
