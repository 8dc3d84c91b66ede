"""Compare the rows of blobs with the stored bytes, and find blobs that nothing refers to."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from uuid import UUID

from latent_core.blobs.port import BlobStore
from latent_core.db.connection import Database
from latent_core.db.doctor import checks
from latent_core.db.doctor.checks import ArchiveRow, LiveRefRow
from latent_core.db.transfer import archives
from latent_core.doctor.context import MAX_DIFFERENCES, PAGE, DoctorThrottle
from latent_core.domain.errors import NotFound
from latent_core.domain.findings import Remedy, StoreDifference
from latent_core.domain.ids import Sha256
from latent_core.domain.job import ArchiveKind


class BlobCheck:
    def __init__(self, db: Database, blobs: BlobStore, pace: DoctorThrottle, *, deep: bool) -> None:
        """``deep``: bytes are read and hashed, not only measured."""
        self._db = db
        self._blobs = blobs
        self._pace = pace
        self._deep = deep

    async def of_documents(self, container_id: str) -> AsyncIterator[StoreDifference]:
        """References of live documents to blobs that are missing or damaged."""
        after = (UUID(int=0), "", 0)
        while True:
            async with self._db.transaction() as conn:
                rows = await checks.live_refs(conn, container_id, after, PAGE)
            if not rows:
                return
            after = (rows[-1].doc_id, rows[-1].role, rows[-1].part)
            await self._pace.rest()
            for row in rows:
                cause = await self._wrong_bytes(row)
                if cause is not None and await self._still_refers(row):
                    yield StoreDifference(
                        kind="blob",
                        object=row.sha256,
                        message=f"{row.role} of document {row.doc_id} {cause}",
                        repair=Remedy.REINGEST,
                        doc_id=row.doc_id,
                        generation=row.generation,
                    )

    async def of_archives(self, container_id: str | None) -> AsyncIterator[StoreDifference]:
        """Exports and backups whose file is missing or damaged; None: those of deleted containers."""
        after = 0
        while True:
            async with self._db.transaction() as conn:
                rows = await checks.archives(conn, container_id, after, PAGE)
            if not rows:
                return
            after = rows[-1].id
            await self._pace.rest()
            for row in rows:
                cause = await self._wrong_bytes(row)
                if cause is not None and await self._still_kept(row):
                    yield _archive(row, cause)

    async def without_purpose(self, grace_seconds: float) -> AsyncIterator[StoreDifference]:
        """Rows that are unreferenced for longer than the grace period, and bytes without a row."""
        async with self._db.transaction() as conn:
            garbage = await checks.blob_garbage(conn, grace_seconds, MAX_DIFFERENCES)
        for row in garbage:
            yield _orphan(row.sha256, f"nothing refers to it ({row.state})")
        batch: list[str] = []
        async for sha256 in self._blobs.hashes():
            batch.append(sha256)
            if len(batch) == PAGE:
                for difference in await self._without_row(batch):
                    yield difference
                batch = []
        for difference in await self._without_row(batch):
            yield difference

    async def _without_row(self, hashes: list[str]) -> list[StoreDifference]:
        if not hashes:
            return []
        await self._pace.rest()
        async with self._db.transaction() as conn:
            known = await checks.known_blobs(conn, hashes)
        return [
            _orphan(sha256, "is stored and has no row")
            for sha256 in hashes
            if sha256 not in known and await self._blobs.size(Sha256(sha256)) is not None
        ]

    async def _wrong_bytes(self, row: LiveRefRow | ArchiveRow) -> str | None:
        sha256 = Sha256(row.sha256)
        size = await self._blobs.size(sha256)
        if size is None:
            return f"is missing; {row.bytes} bytes expected"
        if row.state != "present" or size != row.bytes:
            return f"has {size} bytes ({row.state}); {row.bytes} expected"
        if self._deep and await self._hashed(sha256) not in (None, sha256):
            return "is damaged: its bytes do not match its hash"
        return None

    async def _hashed(self, sha256: Sha256) -> str | None:
        """The hash of the stored bytes; None when they were removed meanwhile."""
        digest = hashlib.sha256()
        try:
            async for piece in self._blobs.stream(sha256):
                digest.update(piece)
                await self._pace.rest()
        except NotFound:
            return None
        return digest.hexdigest()

    async def _still_refers(self, row: LiveRefRow) -> bool:
        async with self._db.transaction() as conn:
            return await checks.refers(conn, row.doc_id, row.generation, row.role, row.part)

    async def _still_kept(self, row: ArchiveRow) -> bool:
        async with self._db.transaction() as conn:
            return await archives.get(conn, row.id, ArchiveKind(row.kind)) is not None


def _orphan(sha256: str, message: str) -> StoreDifference:
    return StoreDifference(kind="blob", object=sha256, message=message, repair=Remedy.DROP)


def _archive(row: ArchiveRow, cause: str) -> StoreDifference:
    message = f"its file {cause}"
    if row.kind == ArchiveKind.BACKUP:
        message += (
            f". Create a new backup (`latent backup now {row.container_id}`) and delete this one "
            f"(`latent backup delete {row.id} --yes`). A downloaded copy can still be imported with `latent import`."
        )
    return StoreDifference(
        kind=row.kind,
        object=str(row.id),
        message=message,
        repair=Remedy.NONE if row.kind == ArchiveKind.BACKUP else Remedy.DROP,
    )
