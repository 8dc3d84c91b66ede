"""What repairs share: their context, and the pauses of a doctor run."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from latent_core.blobs.port import BlobStores
from latent_core.db.connection import Connection, Database
from latent_core.db.documents import documents
from latent_core.domain.errors import NotFound
from latent_core.domain.findings import StoreDifference
from latent_core.domain.ids import Sha256
from latent_core.vectors.port import VectorIndex

IN_MOTION: Final = "A job is working on it. Run doctor again when the job has finished."


class NotRepairable(Exception):
    """A difference that cannot be repaired automatically; the message says what to do."""


@dataclass(frozen=True, slots=True)
class RepairContext:
    db: Database
    index: VectorIndex
    blobs: BlobStores
    principal: str
    lease_seconds: float
    alone: bool = False
    """As for ``Doctor``."""

    async def sound_size(self, bucket: str, sha256: Sha256) -> int | None:
        """The blob's size if its bytes match its hash, else None."""
        digest, size = hashlib.sha256(), 0
        try:
            async for piece in self.blobs.of(bucket).stream(sha256):
                digest.update(piece)
                size += len(piece)
        except NotFound:
            return None
        return size if digest.hexdigest() == sha256 else None


async def lock_document(conn: Connection, doc_id: UUID) -> None:
    """Lock a document, and before it the corpus it belongs to: the lock order of a corpus job."""
    row = await documents.row(conn, doc_id)
    if row is not None and row["parent_id"] is not None:
        await documents.lock(conn, [row["parent_id"]])
    await documents.lock(conn, [doc_id])


PAGE: Final = 1000
MAX_DIFFERENCES: Final = 200
"""Per kind and container: enough to see what is wrong."""
MAX_PAUSE_SECONDS: Final = 0.25


class DoctorThrottle:
    """Slows a long comparison so that searches stay fast: after each step it pauses as long as the step took."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    async def rest(self) -> None:
        worked = time.monotonic() - self._since
        await asyncio.sleep(min(worked, MAX_PAUSE_SECONDS))
        self._since = time.monotonic()


async def first_of(differences: AsyncIterator[StoreDifference]) -> list[StoreDifference]:
    """The first ``MAX_DIFFERENCES`` of a kind."""
    kept: list[StoreDifference] = []
    async for difference in differences:
        kept.append(difference)
        if len(kept) >= MAX_DIFFERENCES:
            break
    return kept
